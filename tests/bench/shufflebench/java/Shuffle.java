import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** ShuffleBench on Kafka Streams, with the functions of functions.py: `Shuffle PROPERTIES`; runs until SIGTERM. */
public final class Shuffle {
    private Shuffle() {}

    public static void main(String[] args) throws IOException, InterruptedException {
        Properties config = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(args[0]))) {
            config.load(reader);
        }
        Index index = new Index(
            Integer.parseInt(config.getProperty("bench.rules")),
            Double.parseDouble(config.getProperty("bench.selectivity")),
            Double.parseDouble(config.getProperty("bench.exponent"))
        );
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(config.getProperty("bench.input"), Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .flatMap((key, value) -> {
                String[] consumers = index.consumers(value);
                List<KeyValue<String, byte[]>> found = new ArrayList<>(consumers.length);
                for (String consumer : consumers) {
                    found.add(KeyValue.pair(consumer, value));
                }
                return found;
            })
            .repartition(Repartitioned.with(Serdes.String(), Serdes.ByteArray()).withName("consumers"))
            .processValues(new Supplier(config))
            .to(config.getProperty("bench.output"), Produced.with(Serdes.String(), Serdes.ByteArray()));
        KafkaStreams streams = new KafkaStreams(builder.build(config), config);
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close();
            closed.countDown();
        }));
        streams.start();
        closed.await();
    }

    /** A consumer's state, and its result with every n-th record. */
    private static final class Consumer extends ContextualFixedKeyProcessor<String, byte[], byte[]> {
        private final int rate;
        private final int size;
        private final boolean random;
        private KeyValueStore<String, byte[]> states;

        Consumer(Properties config) {
            rate = Integer.parseInt(config.getProperty("bench.rate"));
            size = Integer.parseInt(config.getProperty("bench.size"));
            random = Boolean.parseBoolean(config.getProperty("bench.random_start"));
        }

        @Override
        public void init(FixedKeyProcessorContext<String, byte[]> context) {
            super.init(context);
            states = context.getStateStore("consumers");
        }

        @Override
        public void process(FixedKeyRecord<String, byte[]> record) {
            byte[] found = states.get(record.key());
            byte[] state = found == null ? new byte[size] : found;
            long count = Step.take(state, found == null && random ? rate : 0, record.value(), record.timestamp());
            if (count < rate) {
                states.put(record.key(), state);
            } else {
                states.put(record.key(), new byte[size]);
                context().forward(record.withValue(state));
            }
        }
    }

    private record Supplier(Properties config) implements FixedKeyProcessorSupplier<String, byte[], byte[]> {
        @Override
        public FixedKeyProcessor<String, byte[], byte[]> get() {
            return new Consumer(config);
        }

        @Override
        public Set<StoreBuilder<?>> stores() {
            return Set.of(
                Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("consumers"), Serdes.String(), Serdes.ByteArray())
            );
        }
    }
}
