import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;

/** The scenarios of scenarios.py on Kafka Streams, one thread; runs until SIGTERM, then closes in order. */
public final class Peer {
    private Peer() {}

    /** Arguments: scenario, bootstrap servers, application id, state directory, input, output and progress topic. */
    public static void main(String[] args) throws InterruptedException {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, args[2]);
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[1]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, args[3]);
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> input = builder.stream(args[4], Consumed.with(Serdes.String(), Serdes.String()));
        switch (args[0]) {
            case "stateless" -> input
                .filter((key, value) -> value.charAt(0) < 'n')
                .mapValues(value -> value.toUpperCase(Locale.ROOT))
                .to(args[5], Produced.with(Serdes.String(), Serdes.String()));
            case "count" -> {
                count(input, args[5]);
                progress(input, args[6]);
            }
            case "words" -> {
                KStream<String, String> words = input
                    .flatMapValues(value -> Arrays.asList(value.split(" ")))
                    .selectKey((key, value) -> value)
                    .repartition(Repartitioned.with(Serdes.String(), Serdes.String()));
                count(words, args[5]);
                progress(words, args[6]);
            }
            default -> throw new IllegalArgumentException(args[0]);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(config), config);
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close();
            closed.countDown();
        }));
        streams.start();
        closed.await();
    }

    private static void count(KStream<String, String> stream, String output) {
        stream.groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .to(output, Produced.with(Serdes.String(), Serdes.Long()));
    }

    private static void progress(KStream<String, String> stream, String topic) {
        stream.filter((key, value) -> key.startsWith("@")).to(topic, Produced.with(Serdes.String(), Serdes.String()));
    }
}
