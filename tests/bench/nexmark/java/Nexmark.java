import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

/** The queries of topologies/ on Kafka Streams: `Nexmark QUERY PROPERTIES`; runs until SIGTERM. */
public final class Nexmark {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<JsonNode> TREE = Serdes.serdeFrom((topic, tree) -> write(tree), (topic, data) -> read(data));
    private static final Set<String> STATES = Set.of("OR", "ID", "CA");

    private final StreamsBuilder builder = new StreamsBuilder();
    private final Properties config;

    private Nexmark(Properties config) {
        this.config = config;
    }

    public static void main(String[] args) throws IOException, InterruptedException {
        Properties config = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(args[1]))) {
            config.load(reader);
        }
        Nexmark nexmark = new Nexmark(config);
        nexmark.query(args[0]).to(config.getProperty("bench.output"), Produced.with(TEXT, TREE));
        KafkaStreams streams = new KafkaStreams(nexmark.builder.build(config), config);
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close();
            closed.countDown();
        }));
        streams.start();
        closed.await();
    }

    private KStream<String, JsonNode> query(String name) {
        return switch (name) {
            case "q0" -> stream("bids");
            case "q1" -> stream("bids").mapValues(bid ->
                (JsonNode) ((ObjectNode) bid).put("price", Math.floorDiv(bid.get("price").asLong() * 908, 1000L)));
            case "q2" -> stream("bids")
                .filter((key, bid) -> bid.get("auction").asLong() % 123 == 0)
                .mapValues(bid -> picked(bid, "auction", "price"));
            case "q3" -> localItems();
            case "q4" -> averagePrices();
            case "q5" -> hottestItems();
            case "q7" -> highestBids();
            case "q8" -> newSellers();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private KStream<String, JsonNode> localItems() {
        KTable<String, JsonNode> sellers = table("persons").filter((key, person) -> STATES.contains(person.get("state").asText()));
        return table("auctions")
            .filter((key, auction) -> auction.get("category").asLong() == 10)
            .join(sellers, auction -> auction.get("seller").asText(), (auction, person) -> {
                ObjectNode found = picked(person, "name", "city", "state");
                return (JsonNode) found.set("id", auction.get("id"));
            })
            .toStream();
    }

    private KStream<String, JsonNode> averagePrices() {
        return stream("bids")
            .join(table("auctions"), (bid, auction) -> {
                long time = bid.get("dateTime").asLong();
                boolean open = auction.get("dateTime").asLong() <= time && time <= auction.get("expires").asLong();
                ObjectNode found = picked(auction, "category");
                found.set("price", bid.get("price"));
                return (JsonNode) found.put("open", open);
            }, Joined.with(TEXT, TREE, TREE))
            .filter((key, bid) -> bid.get("open").asBoolean())
            .groupByKey(Grouped.with(TEXT, TREE))
            .reduce((highest, bid) -> bid.get("price").asLong() > highest.get("price").asLong() ? bid : highest, store("highest"))
            .groupBy(
                (key, bid) -> KeyValue.pair(bid.get("category").asText(), bid.get("price").asLong()),
                Grouped.with(TEXT, Serdes.Long())
            )
            .aggregate(
                () -> sum(0, 0),
                (key, price, sum) -> sum(sum.get("sum").asLong() + price, sum.get("count").asLong() + 1),
                (key, price, sum) -> sum(sum.get("sum").asLong() - price, sum.get("count").asLong() - 1),
                store("categories")
            )
            .toStream()
            .mapValues(sum -> {
                long average = Math.floorDiv(sum.get("sum").asLong(), Math.max(sum.get("count").asLong(), 1));
                return (JsonNode) JSON.createObjectNode().put("average", average);
            });
    }

    private KStream<String, JsonNode> hottestItems() {
        return stream("bids")
            .groupByKey(Grouped.with(TEXT, TREE))
            .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(10)).advanceBy(Duration.ofSeconds(2)))
            .count(Materialized.as("counts"))
            .toStream()
            .map((key, number) -> {
                ObjectNode count = JSON.createObjectNode().put("auction", Long.parseLong(key.key())).put("number", number);
                return KeyValue.pair(Long.toString(key.window().start()), (JsonNode) count);
            })
            .groupByKey(Grouped.with(TEXT, TREE))
            .aggregate(() -> hottest(0, Set.of()), (key, count, before) -> {
                long number = count.get("number").asLong();
                long most = before.get("number").asLong();
                if (number < most) {
                    return before;
                }
                TreeSet<Long> auctions = new TreeSet<>(Set.of(count.get("auction").asLong()));
                if (number == most) {
                    before.get("auctions").forEach(auction -> auctions.add(auction.asLong()));
                }
                return hottest(number, auctions);
            }, store("hottest"))
            .toStream();
    }

    private KStream<String, JsonNode> highestBids() {
        KGroupedStream<String, JsonNode> all = stream("bids")
            .mapValues(bid -> (JsonNode) picked(bid, "auction", "bidder", "price", "dateTime"))
            .groupBy((key, bid) -> "all", Grouped.with(TEXT, TREE));
        return all
            .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(10)))
            .aggregate(
                () -> highest(0, JSON.createArrayNode()),
                (key, bid, before) -> {
                    long price = bid.get("price").asLong();
                    long most = before.get("price").asLong();
                    if (price < most) {
                        return before;
                    }
                    ArrayNode bids = JSON.createArrayNode();
                    if (price == most) {
                        bids.addAll((ArrayNode) before.get("bids"));
                    }
                    return highest(price, bids.add(bid));
                },
                Materialized.<String, JsonNode, WindowStore<Bytes, byte[]>>as("highest")
                    .withKeySerde(TEXT).withValueSerde(TREE)
            )
            .toStream()
            .selectKey((key, value) -> Long.toString(key.window().start()));
    }

    private KStream<String, JsonNode> newSellers() {
        KGroupedStream<String, JsonNode> sellers = stream("auctions")
            .mapValues(auction -> (JsonNode) picked(auction, "seller"))
            .groupBy((key, auction) -> auction.get("seller").asText(), Grouped.with(TEXT, TREE));
        return stream("persons")
            .mapValues(person -> (JsonNode) picked(person, "id", "name"))
            .groupByKey(Grouped.with(TEXT, TREE))
            .<JsonNode>cogroup((key, person, before) -> newcomer(person, before.get("sells").asBoolean()))
            .cogroup(sellers, (key, auction, before) -> newcomer(before.get("person"), true))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofDays(1)))
            .aggregate(
                () -> newcomer(JSON.nullNode(), false),
                Materialized.<String, JsonNode, WindowStore<Bytes, byte[]>>as("newcomers")
                    .withKeySerde(TEXT).withValueSerde(TREE)
            )
            .toStream()
            .filter((key, found) -> found.get("sells").asBoolean() && !found.get("person").isNull())
            .map((key, found) -> {
                ObjectNode person = picked(found.get("person"), "id", "name").put("start", key.window().start());
                return KeyValue.pair(key.key() + "@" + key.window().start(), (JsonNode) person);
            });
    }

    private KStream<String, JsonNode> stream(String topic) {
        return builder.stream(config.getProperty("bench." + topic), Consumed.with(TEXT, TREE));
    }

    private KTable<String, JsonNode> table(String topic) {
        return builder.table(config.getProperty("bench." + topic), Consumed.with(TEXT, TREE));
    }

    private static Materialized<String, JsonNode, KeyValueStore<Bytes, byte[]>> store(String name) {
        return Materialized.<String, JsonNode, KeyValueStore<Bytes, byte[]>>as(name).withKeySerde(TEXT).withValueSerde(TREE);
    }

    private static ObjectNode picked(JsonNode from, String... fields) {
        ObjectNode found = JSON.createObjectNode();
        for (String field : fields) {
            found.set(field, from.get(field));
        }
        return found;
    }

    private static JsonNode sum(long sum, long count) {
        return JSON.createObjectNode().put("sum", sum).put("count", count);
    }

    private static JsonNode hottest(long number, Set<Long> auctions) {
        ObjectNode found = JSON.createObjectNode().put("number", number);
        auctions.forEach(found.putArray("auctions")::add);
        return found;
    }

    private static JsonNode highest(long price, ArrayNode bids) {
        return JSON.createObjectNode().put("price", price).set("bids", bids);
    }

    private static JsonNode newcomer(JsonNode person, boolean sells) {
        ObjectNode found = JSON.createObjectNode();
        found.set("person", person);
        return found.put("sells", sells);
    }

    private static byte[] write(JsonNode tree) {
        if (tree == null) {
            return null;
        }
        try {
            return JSON.writeValueAsBytes(tree);
        } catch (JsonProcessingException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static JsonNode read(byte[] data) {
        if (data == null) {
            return null;
        }
        try {
            return JSON.readTree(data);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
