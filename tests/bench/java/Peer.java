import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.StateRestoreListener;

/** The topologies on Kafka Streams, one thread: `Peer NAME PROPERTIES`; runs until SIGTERM, then closes in order. */
public final class Peer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<JsonNode> TREE = Serdes.serdeFrom((topic, tree) -> write(tree), (topic, data) -> read(data));

    private final StreamsBuilder builder = new StreamsBuilder();
    private final Properties config;

    private Peer(Properties config) {
        this.config = config;
    }

    public static void main(String[] args) throws IOException, InterruptedException {
        Properties config = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(args[1]))) {
            config.load(reader);
        }
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        Peer peer = new Peer(config);
        peer.build(args[0]);
        KafkaStreams streams = new KafkaStreams(peer.builder.build(config), config);
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close();
            closed.countDown();
        }));
        streams.setGlobalStateRestoreListener(new Restored());
        streams.start();
        closed.await();
    }

    /** Prints what was read of each changelog and how long it took, in the words of streamkit's log. */
    private static final class Restored implements StateRestoreListener {
        private final Map<TopicPartition, Long> began = new ConcurrentHashMap<>();

        @Override
        public void onRestoreStart(TopicPartition partition, String store, long start, long end) {
            began.put(partition, System.nanoTime());
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {
            double seconds = (System.nanoTime() - began.get(partition)) / 1e9;
            System.out.println(String.format(Locale.ROOT, "restored %d records of %s in %.2f s", total, partition, seconds));
        }
    }

    private void build(String name) {
        if (name.equals("json")) {
            json();
            return;
        }
        KStream<String, String> input = builder.stream(topic("input_1"), Consumed.with(TEXT, TEXT));
        switch (name) {
            case "stateless" -> input
                .filter((key, value) -> value.charAt(0) < 'n')
                .mapValues(value -> value.toUpperCase(Locale.ROOT))
                .to(topic("output"), Produced.with(TEXT, TEXT));
            case "count" -> {
                count(input);
                progress(input);
            }
            case "words" -> {
                KStream<String, String> words = input
                    .flatMapValues(value -> Arrays.asList(value.split(" ")))
                    .selectKey((key, value) -> value)
                    .repartition(Repartitioned.with(TEXT, TEXT));
                count(words);
                progress(words);
            }
            case "tumbling" -> {
                tumbling(input);
                progress(input);
            }
            case "table" -> {
                input.join(
                    builder.table(topic("input_2"), Consumed.with(TEXT, TEXT)),
                    (left, right) -> left + " " + right,
                    Joined.with(TEXT, TEXT, TEXT)
                ).to(topic("output"), Produced.with(TEXT, TEXT));
                progress(input);
            }
            case "streams" -> {
                input.join(
                    builder.stream(topic("input_2"), Consumed.with(TEXT, TEXT)),
                    (left, right) -> left + " " + right,
                    JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofSeconds(10)),
                    StreamJoined.with(TEXT, TEXT, TEXT)
                ).to(topic("output"), Produced.with(TEXT, TEXT));
                progress(input);
            }
            case "filter" -> input
                .filter((key, value) -> value.charAt(0) < 'n')
                .to(topic("output"), Produced.with(TEXT, TEXT));
            case "latest" -> latest(input);
            case "moved" -> latest(input.selectKey((key, value) -> value.substring(5, 8)));
            case "pairs" -> input.join(
                builder.stream(topic("input_2"), Consumed.with(TEXT, TEXT)),
                (left, right) -> left,
                JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofSeconds(1)),
                StreamJoined.with(TEXT, TEXT, TEXT)
            ).to(topic("output"), Produced.with(TEXT, TEXT));
            default -> throw new IllegalArgumentException(name);
        }
    }

    private void json() {
        builder.stream(topic("input_1"), Consumed.with(TEXT, TREE))
            .filter((key, value) -> value.get("took").asInt() >= 200)
            .mapValues(value -> {
                ObjectNode tree = value.deepCopy();
                return (JsonNode) tree.put("slow", value.get("took").asInt() > 1000);
            })
            .to(topic("output"), Produced.with(TEXT, TREE));
    }

    private void count(KStream<String, String> stream) {
        stream.groupByKey(Grouped.with(TEXT, TEXT))
            .count(Materialized.as("counts"))
            .toStream()
            .to(topic("output"), Produced.with(TEXT, Serdes.Long()));
    }

    private void latest(KStream<String, String> stream) {
        stream.groupByKey(Grouped.with(TEXT, TEXT))
            .reduce((last, value) -> value, Materialized.as("latest"))
            .toStream()
            .to(topic("output"), Produced.with(TEXT, TEXT));
    }

    private void tumbling(KStream<String, String> stream) {
        stream.groupByKey(Grouped.with(TEXT, TEXT))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofSeconds(30)))
            .count(Materialized.as("counts"))
            .toStream()
            .to(topic("output"), Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 60_000), Serdes.Long()));
    }

    private void progress(KStream<String, String> stream) {
        stream.filter((key, value) -> key.startsWith("@")).to(topic("progress"), Produced.with(TEXT, TEXT));
    }

    private String topic(String which) {
        return config.getProperty("bench." + which);
    }

    private static byte[] write(JsonNode tree) {
        try {
            return JSON.writeValueAsBytes(tree);
        } catch (JsonProcessingException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static JsonNode read(byte[] data) {
        try {
            return JSON.readTree(data);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
