import java.io.IOException;
import java.io.Reader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
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
    private static final double RING = 9.223372036854775808E18;
    private static final long SEED = 0x53485546464C4531L;
    private static final long STEP = 0x9E3779B97F4A7C15L;
    private static final int HEAD = 4 * Long.BYTES;

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
            .flatMap((key, value) -> index.matches(value))
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

    private static long mixed(long number) {
        number = (number ^ (number >>> 30)) * 0xBF58476D1CE4E5B9L;
        number = (number ^ (number >>> 27)) * 0x94D049BB133111EBL;
        return number ^ (number >>> 31);
    }

    private static long place(ByteBuffer data) {
        return mixed(data.getLong(0) + data.getLong(Long.BYTES) * STEP) >>> 1;
    }

    /** The rules of each part of the ring between two neighbouring bounds of ranges. */
    private static final class Index {
        private final long[] bounds;
        private final String[][] names;

        Index(int rules, double selectivity, double exponent) {
            double total = 0;
            for (int rule = 0; rule < rules; rule++) {
                total += 1 / Math.pow(rule + 1, exponent);
            }
            TreeMap<Long, List<List<Integer>>> changes = new TreeMap<>();
            TreeSet<Integer> active = new TreeSet<>();
            at(changes, 0);
            for (int rule = 0; rule < rules; rule++) {
                double width = 1 / Math.pow(rule + 1, exponent) / total * selectivity * RING;
                long begin = mixed(SEED + rule * STEP) >>> 1;
                if (width >= RING) {
                    active.add(rule);
                    continue;
                }
                if ((long) width == 0) {
                    continue;
                }
                long end = (begin + (long) width) & Long.MAX_VALUE;
                if (end < begin) {
                    active.add(rule);
                }
                at(changes, begin).get(0).add(rule);
                at(changes, end).get(1).add(rule);
            }
            bounds = new long[changes.size()];
            names = new String[changes.size()][];
            int part = 0;
            for (var change : changes.entrySet()) {
                active.removeAll(change.getValue().get(1));
                active.addAll(change.getValue().get(0));
                bounds[part] = change.getKey();
                names[part++] = active.stream().map(rule -> "consumer_" + rule).toArray(String[]::new);
            }
        }

        private static List<List<Integer>> at(TreeMap<Long, List<List<Integer>>> changes, long bound) {
            return changes.computeIfAbsent(bound, key -> List.of(new ArrayList<>(), new ArrayList<>()));
        }

        List<KeyValue<String, byte[]>> matches(byte[] data) {
            int found = Arrays.binarySearch(bounds, place(ByteBuffer.wrap(data)));
            String[] consumers = names[found < 0 ? -found - 2 : found];
            if (consumers.length == 0) {
                return List.of();
            }
            List<KeyValue<String, byte[]>> result = new ArrayList<>(consumers.length);
            for (String consumer : consumers) {
                result.add(KeyValue.pair(consumer, data));
            }
            return result;
        }
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
            ByteBuffer data = ByteBuffer.wrap(record.value());
            byte[] state = states.get(record.key());
            long count;
            long sum = 0;
            long began = record.timestamp();
            if (state == null) {
                state = new byte[size];
                count = random ? place(data) % rate : 0;
            } else {
                ByteBuffer before = ByteBuffer.wrap(state);
                count = before.getLong();
                sum = before.getLong();
                if (count > 0) {
                    began = before.getLong();
                }
            }
            ByteBuffer after = ByteBuffer.wrap(state);
            after.putLong(++count).putLong(sum + data.getLong(0)).putLong(began).putLong(record.timestamp());
            after.put(record.value(), 0, Math.min(after.remaining(), record.value().length));
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
