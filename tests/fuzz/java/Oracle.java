import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.errors.LogAndContinueExceptionHandler;
import org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.internals.LeftOrRightValue;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Runs folders with `topology.yaml` and `input.jsonl` on Kafka Streams and writes beside them what it did.
 *
 * The arguments are folders of such folders; without arguments, lines on stdin name single ones and each is
 * answered by a line. A refusal is written to `error.txt`: the stage (read, build, start or run), then the exception.
 * Where a case has `counts.json`, the sizes of its input topics, `layout.json` says what Kafka Streams makes of them.
 */
public final class Oracle {
    private static final Map<String, Class<?>> CONTINUING = Map.of(
        "processing.exception.handler", LogAndContinueProcessingExceptionHandler.class,
        "deserialization.exception.handler", LogAndContinueExceptionHandler.class);
    private static final boolean LOGS_HEADERS = logsHeaders();
    private final Path folder;
    private String stage = "read";
    private long clock;
    private Held held;

    private Oracle(Path folder) {
        this.folder = folder;
    }

    public static void main(String[] args) throws IOException {
        if (args.length == 0) {
            new java.io.BufferedReader(new java.io.InputStreamReader(System.in, StandardCharsets.UTF_8)).lines().forEach(line -> {
                Path path = Path.of(line);
                (Files.exists(path.resolve("topology.yaml")) ? Stream.of(path) : cases(path)).parallel().forEach(each -> new Oracle(each).run());
                System.out.println(line);
            });
        }
        for (String root : args) {
            cases(Path.of(root)).parallel().forEach(each -> new Oracle(each).run());
        }
    }

    private static Stream<Path> cases(Path root) {
        try (Stream<Path> found = Files.list(root)) {
            return found.filter(path -> Files.exists(path.resolve("topology.yaml"))).sorted().toList().stream();
        } catch (IOException e) {
            throw new IllegalArgumentException(root.toString(), e);
        }
    }

    private void run() {
        try {
            for (String old : List.of("error.txt", "describe.txt", "expected.jsonl", "stores.json", "keys.json", "dropped.json", "changelogs.jsonl", "layout.json")) {
                Files.deleteIfExists(folder.resolve(old));
            }
            Path state = Files.createTempDirectory("fuzz-oracle");
            try {
                answer(state);
            } catch (Exception | StackOverflowError e) {
                StringWriter text = new StringWriter();
                e.printStackTrace(new PrintWriter(text));
                Files.writeString(folder.resolve("error.txt"), stage + "\n" + text);
            } finally {
                delete(state);
            }
        } catch (IOException e) {
            throw new IllegalStateException(folder.toString(), e);
        }
    }

    private void answer(Path state) throws IOException {
        Model model = new Model(Data.YAML.readTree(folder.resolve("topology.yaml").toFile()));
        Properties config = config(model, state);
        stage = "build";
        Builder builder = new Builder(model);
        builder.build();
        Topology topology = builder.dsl.build(config);
        Files.writeString(folder.resolve("describe.txt"), topology.describe().toString());
        Path counts = folder.resolve("counts.json");
        if (Files.exists(counts)) {
            Builder another = new Builder(model);
            another.build();
            String layout = Layouts.of(another.dsl.build(config), config, Data.JSON.readTree(counts.toFile()));
            Files.writeString(folder.resolve("layout.json"), layout + "\n");
        }
        Path inputs = folder.resolve("input.jsonl");
        if (!Files.exists(inputs)) {
            return;
        }
        List<String> expected = new ArrayList<>();
        stage = "start";
        try (TopologyTestDriver driver = new TopologyTestDriver(topology, config, Instant.EPOCH)) {
            stage = "run";
            Here.begin(driver);
            held = Files.exists(folder.resolve("held")) ? new Held(driver) : null;
            try {
                for (String line : Files.readAllLines(inputs)) {
                    feed(driver, model, Data.JSON.readTree(line));
                }
                Files.writeString(folder.resolve("stores.json"), storesText(driver));
                Files.writeString(folder.resolve("keys.json"), Data.text(keys(driver)) + "\n");
                Files.writeString(folder.resolve("dropped.json"), dropped(driver) + "\n");
            } finally {
                Here.end();
                Files.writeString(folder.resolve("changelogs.jsonl"), changelogs(driver));
                collect(driver, model, expected);
                Files.writeString(folder.resolve("expected.jsonl"), expected.isEmpty() ? "" : String.join("\n", expected) + "\n");
            }
        }
    }

    /** How many records were dropped, by all tasks. */
    private static long dropped(TopologyTestDriver driver) {
        return Math.round(driver.metrics().entrySet().stream()
            .filter(metric -> metric.getKey().name().equals("dropped-records-total"))
            .mapToDouble(metric -> ((Number) metric.getValue().metricValue()).doubleValue())
            .sum());
    }

    private static Properties config(Model model, Path state) {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, model.yaml.path("application").asText());
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "localhost:9092");
        config.put(StreamsConfig.STATE_DIR_CONFIG, state.toString());
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Data.Tagged.class.getName());
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Data.Tagged.class.getName());
        model.yaml.path("config").properties().forEach(entry -> {
            String value = entry.getValue().asText();
            Class<?> handler = value.equals("continue") ? CONTINUING.get(entry.getKey()) : null;
            config.put(entry.getKey(), handler == null ? value : handler.getName());
        });
        return config;
    }

    private void feed(TopologyTestDriver driver, Model model, JsonNode line) {
        if (line.has("advance_wall_clock")) {
            clock += Data.duration(line.get("advance_wall_clock")).toMillis();
            Here.clock(clock);
            driver.advanceWallClockTime(Data.duration(line.get("advance_wall_clock")));
            return;
        }
        String topic = line.get("topic").asText();
        Model.Topic entry = model.physical(topic);
        Headers headers = new RecordHeaders();
        line.path("headers").forEach(header -> headers.add(header.get(0).asText(), header.get(1).asText().getBytes(StandardCharsets.UTF_8)));
        Object key = fromJson(line.path("key"), entry.key());
        Object value = fromJson(line.path("value"), entry.value());
        long timestamp = line.path("timestamp").asLong(clock);
        if (held != null) {
            byte[] keyBytes = entry.key().serializer().serialize(topic, key);
            held.pipe(topic, timestamp, keyBytes, entry.value().serializer().serialize(topic, value), headers, clock);
            return;
        }
        byte[] keyBytes = bytes(line, "key", entry.key().serializer().serialize(topic, key));
        byte[] valueBytes = bytes(line, "value", entry.value().serializer().serialize(topic, value));
        driver.createInputTopic(topic, new ByteArraySerializer(), new ByteArraySerializer())
            .pipeInput(new TestRecord<>(keyBytes, valueBytes, headers, timestamp));
    }

    /** The bytes of a side, or those that stand in the line because no serde gives them. */
    private static byte[] bytes(JsonNode line, String side, byte[] encoded) {
        JsonNode raw = line.path("raw").path(side);
        return raw.isMissingNode() ? encoded : HexFormat.of().parseHex(raw.asText());
    }

    private static Object fromJson(JsonNode node, Serde<Object> serde) {
        if (node.has(Data.BASE64)) {
            return Bytes.wrap(Base64.getDecoder().decode(node.get(Data.BASE64).asText()));
        }
        return node.isMissingNode() || node.isNull() ? null : Data.parse(node.toString());
    }

    private static void collect(TopologyTestDriver driver, Model model, List<String> expected) {
        for (String topic : new TreeSet<>(driver.producedTopicNames())) {
            Model.Topic entry = model.physical(topic);
            if (entry != null) {
                driver.createOutputTopic(topic, entry.key().deserializer(), entry.value().deserializer())
                    .readRecordsToList()
                    .forEach(record -> expected.add(line(topic, record)));
            }
        }
    }

    private static String changelogs(TopologyTestDriver driver) {
        StringBuilder lines = new StringBuilder();
        for (String topic : new TreeSet<>(driver.producedTopicNames())) {
            if (topic.endsWith("-changelog")) {
                driver.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer())
                    .readRecordsToList()
                    .forEach(record -> lines.append(Data.text(Arrays.asList(topic, hex(record.key()), hex(record.value()),
                        record.timestamp(), LOGS_HEADERS ? headers(record.getHeaders(), StandardCharsets.ISO_8859_1) : null))).append('\n'));
            }
        }
        return lines.toString();
    }

    /** Versions before 4.3 write no headers of records to changelogs; then they are null in the answer. */
    private static boolean logsHeaders() {
        try {
            Class.forName("org.apache.kafka.streams.state.TimestampedWindowStoreWithHeaders");
            return true;
        } catch (ClassNotFoundException e) {
            return false;
        }
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }

    private static String line(String topic, TestRecord<Object, Object> record) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("topic", topic);
        line.put("key", Data.plain(record.getKey()));
        line.put("value", Data.plain(record.getValue()));
        line.put("timestamp", record.timestamp());
        List<List<String>> headers = headers(record.getHeaders(), StandardCharsets.UTF_8);
        if (!headers.isEmpty()) {
            line.put("headers", headers);
        }
        return Data.text(line);
    }

    private static List<List<String>> headers(Headers headers, Charset charset) {
        List<List<String>> texts = new ArrayList<>();
        for (Header header : headers) {
            String value = header.value() == null ? null : new String(header.value(), charset);
            texts.add(Arrays.asList(header.key(), value));
        }
        return texts;
    }

    /** The rows of the tables' stores; buffers, versioned stores and those of stream joins and foreign keys are left out. */
    private static String storesText(TopologyTestDriver driver) {
        Map<String, String> stores = new TreeMap<>();
        driver.getAllStateStores().forEach((name, store) -> {
            List<String> rows = rows(driver, name, store);
            if (rows != null) {
                stores.put(name, rows.isEmpty() ? "[]" : "[\n  " + String.join(",\n  ", rows) + "]");
            }
        });
        List<String> texts = new ArrayList<>();
        stores.forEach((name, rows) -> texts.add(Data.text(name) + ": " + rows));
        return "{\n" + String.join(",\n", texts) + "\n}\n";
    }

    /** The metric num-keys of each store in memory (KIP-1250); versions before 4.3 have none. */
    private static Map<String, Object> keys(TopologyTestDriver driver) {
        Map<String, Object> keys = new TreeMap<>();
        driver.metrics().forEach((name, metric) -> {
            if (name.name().equals("num-keys")) {
                name.tags().forEach((tag, store) -> {
                    if (tag.endsWith("-state-id")) {
                        keys.put(store, metric.metricValue());
                    }
                });
            }
        });
        return keys;
    }

    private static List<String> rows(TopologyTestDriver driver, String name, StateStore store) {
        if (name.contains("-SUBSCRIPTION-STATE-STORE-") || name.endsWith("-subscription-store")) {
            return null;
        }
        List<String> rows = new ArrayList<>();
        try (KeyValueIterator<?, ?> all = iterator(driver, name)) {
            if (all == null) {
                return null;
            }
            while (all.hasNext()) {
                KeyValue<?, ?> row = all.next();
                Object value = unwrapped(row.value);
                if (value instanceof LeftOrRightValue) {
                    return null;
                }
                rows.add(Data.text(Arrays.asList(Data.plain(row.key), Data.plain(value))));
            }
        } catch (IllegalArgumentException e) {
            if (e.getMessage().startsWith("Window endMs")) {
                // The store of a join of records of one time: Java has no form for windows of size 0.
                return null;
            }
            throw e;
        }
        return rows;
    }

    private static Object unwrapped(Object value) {
        return value instanceof ValueAndTimestamp<?> stamped ? stamped.value() : value;
    }

    private static KeyValueIterator<?, ?> iterator(TopologyTestDriver driver, String name) {
        SessionStore<?, ?> sessions = driver.getSessionStore(name);
        if (sessions != null) {
            return sessions.findSessions(null, null, 0, Long.MAX_VALUE);
        }
        WindowStore<?, ?> windows = driver.getWindowStore(name);
        if (windows != null) {
            return name.endsWith("-store") && !windowsOfTable(driver, name) ? null : windows.all();
        }
        var keyValues = driver.getKeyValueStore(name);
        return keyValues == null ? null : keyValues.all();
    }

    /** A table's windows keep timestamps, those of a stream join don't. */
    private static boolean windowsOfTable(TopologyTestDriver driver, String name) {
        return driver.getTimestampedWindowStore(name) != null;
    }

    private static void delete(Path state) throws IOException {
        try (Stream<Path> files = Files.walk(state)) {
            files.sorted((a, b) -> b.compareTo(a)).forEach(path -> path.toFile().delete());
        }
    }
}
