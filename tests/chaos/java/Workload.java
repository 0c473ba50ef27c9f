import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;

/** The topology of tests/chaos/workload.py on Kafka Streams: `Workload NAME=VALUE …`; runs until SIGTERM, then closes in order. */
public final class Workload {
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> COUNT = Serdes.Long();

    private Workload() {}

    public static void main(String[] settings) throws InterruptedException {
        Properties config = new Properties();
        for (String setting : settings) {
            int end = setting.indexOf('=');
            config.put(setting.substring(0, end), setting.substring(end + 1));
        }
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        StreamsBuilder builder = new StreamsBuilder();
        build(builder, config.getProperty(StreamsConfig.APPLICATION_ID_CONFIG) + ".");
        KafkaStreams streams = new KafkaStreams(builder.build(config), config);
        CountDownLatch failed = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            failed.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(60))));
        streams.start();
        failed.await();
        System.exit(1);
    }

    private static void build(StreamsBuilder builder, String prefix) {
        builder.<String, String>stream(prefix + "events")
                .groupByKey()
                .count(Materialized.as("running"))
                .toStream()
                .to(prefix + "counts", Produced.with(TEXT, COUNT));
        builder.<String, String>stream(prefix + "lines")
                .flatMapValues(value -> Arrays.asList(value.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(TEXT, TEXT))
                .count(Materialized.as("words"))
                .toStream()
                .to(prefix + "words", Produced.with(TEXT, COUNT));
        KStream<String, String> right = builder.stream(prefix + "right", Consumed.with(TEXT, TEXT));
        builder.<String, String>stream(prefix + "left")
                .join(
                        right,
                        (one, other) -> one + "+" + other,
                        JoinWindows.ofTimeDifferenceAndGrace(Duration.ofHours(1), Duration.ofDays(1)),
                        StreamJoined.with(TEXT, TEXT, TEXT))
                .to(prefix + "pairs", Produced.with(TEXT, TEXT));
    }
}
