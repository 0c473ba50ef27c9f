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
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.WallclockTimestampExtractor;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

/** The queries of topologies/ on Kafka Streams: `Nexmark QUERY PROPERTIES`; runs until SIGTERM. */
public final class Nexmark {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<JsonNode> TREE = Serdes.serdeFrom((topic, tree) -> write(tree), (topic, data) -> read(data));
    private static final DateTimeFormatter DAY = DateTimeFormatter.ofPattern("yyyy-MM-dd").withZone(ZoneOffset.UTC);
    private static final DateTimeFormatter MINUTE = DateTimeFormatter.ofPattern("HH:mm").withZone(ZoneOffset.UTC);
    private static final Pattern CHANNEL = Pattern.compile("(&|^)channel_id=([^&]*)");
    private static final Map<String, String> NUMBERS = Map.of("apple", "0", "google", "1", "facebook", "2", "baidu", "3");
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
            case "q6" -> averagesOfSellers();
            case "q8" -> newSellers();
            case "q9" -> winners();
            case "q10" -> stream("bids").mapValues(bid -> {
                ObjectNode found = picked(bid, "auction", "bidder", "price", "dateTime", "extra");
                return (JsonNode) found.put("dt", text(bid, DAY)).put("hm", text(bid, MINUTE));
            });
            case "q11" -> sessions();
            case "q12" -> byClock();
            case "q13" -> sideInput();
            case "q14" -> stream("bids")
                .filter((key, bid) -> {
                    long price = bid.get("price").asLong() * 908;
                    return price > 1_000_000_000L && price < 50_000_000_000L;
                })
                .mapValues(Nexmark::calculated);
            case "q15" -> distinct("days", List.of("day"), bid -> text(bid, DAY));
            case "q16" -> distinct(
                "channels", List.of("channel", "day", "minute"), bid -> bid.get("channel").asText() + "|" + text(bid, DAY));
            case "q17" -> pricesOfAuctions();
            case "q18" -> stream("bids")
                .selectKey((key, bid) -> bid.get("bidder").asText() + "@" + bid.get("auction").asText())
                .groupByKey(Grouped.with(TEXT, TREE))
                .reduce((last, bid) -> bid.get("dateTime").asLong() >= last.get("dateTime").asLong() ? bid : last, store("last"))
                .toStream();
            case "q19" -> tenHighest();
            case "q20" -> withAuctions();
            case "q21" -> stream("bids").mapValues(Nexmark::withChannel).filter((key, bid) -> !bid.get("channel_id").isNull());
            case "q22" -> stream("bids").mapValues(bid -> {
                String[] parts = bid.get("url").asText().split("/");
                ObjectNode found = picked(bid, "auction", "bidder", "price", "channel");
                return (JsonNode) found.put("dir1", parts[3]).put("dir2", parts[4]).put("dir3", parts[5]);
            });
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
                ObjectNode found = picked(auction, "category");
                found.set("price", bid.get("price"));
                return (JsonNode) found.put("open", open(bid, auction));
            }, Joined.with(TEXT, TREE, TREE))
            .filter((key, bid) -> bid.get("open").asBoolean())
            .groupByKey(Grouped.with(TEXT, TREE))
            .reduce(Nexmark::higher, store("highest"))
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

    private KStream<String, JsonNode> averagesOfSellers() {
        return stream("bids")
            .join(table("auctions"), (bid, auction) -> {
                ObjectNode found = picked(auction, "seller").put("open", open(bid, auction));
                found.set("auction", auction.get("id"));
                found.set("price", bid.get("price"));
                return (JsonNode) found.set("dateTime", bid.get("dateTime"));
            }, Joined.with(TEXT, TREE, TREE))
            .filter((key, bid) -> bid.get("open").asBoolean())
            .groupByKey(Grouped.with(TEXT, TREE))
            .reduce(Nexmark::higher, store("highest"))
            .groupBy(
                (key, bid) -> {
                    ArrayNode sold = JSON.createArrayNode().add(bid.get("dateTime")).add(bid.get("auction")).add(bid.get("price"));
                    return KeyValue.pair(bid.get("seller").asText(), (JsonNode) sold);
                },
                Grouped.with(TEXT, TREE)
            )
            .aggregate(
                JSON::createArrayNode,
                (key, sold, all) -> {
                    ArrayNode found = JSON.createArrayNode();
                    all.forEach(found::add);
                    int place = found.size();
                    while (place > 0 && found.get(place - 1).get(0).asLong() > sold.get(0).asLong()) {
                        place--;
                    }
                    return found.insert(place, sold);
                },
                (key, sold, all) -> {
                    ArrayNode found = JSON.createArrayNode();
                    all.forEach(each -> {
                        if (!each.equals(sold)) {
                            found.add(each);
                        }
                    });
                    return found;
                },
                store("sellers")
            )
            .toStream()
            .filter((key, all) -> !all.isEmpty())
            .mapValues(all -> {
                int first = Math.max(0, all.size() - 10);
                long sum = 0;
                for (int place = first; place < all.size(); place++) {
                    sum += all.get(place).get(2).asLong();
                }
                return (JsonNode) JSON.createObjectNode().put("average", sum / (all.size() - first));
            });
    }

    private KStream<String, JsonNode> winners() {
        return stream("bids")
            .join(table("auctions"), (bid, auction) -> {
                ObjectNode found = ((ObjectNode) auction).put("open", open(bid, auction));
                found.setAll(picked(bid, "auction", "bidder", "price"));
                found.set("bid_dateTime", bid.get("dateTime"));
                return (JsonNode) found.set("bid_extra", bid.get("extra"));
            }, Joined.with(TEXT, TREE, TREE))
            .filter((key, bid) -> ((ObjectNode) bid).remove("open").asBoolean())
            .groupByKey(Grouped.with(TEXT, TREE))
            .reduce(Nexmark::higher, store("winners"))
            .toStream();
    }

    private KStream<String, JsonNode> sessions() {
        return stream("bids")
            .mapValues(bid -> (JsonNode) picked(bid, "bidder"))
            .groupBy((key, bid) -> bid.get("bidder").asText(), Grouped.with(TEXT, TREE))
            .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofSeconds(10)))
            .count(Materialized.as("sessions"))
            .toStream()
            .map(Nexmark::numbered);
    }

    private KStream<String, JsonNode> byClock() {
        Consumed<String, JsonNode> arriving = Consumed.with(TEXT, TREE).withTimestampExtractor(new WallclockTimestampExtractor());
        return builder.stream(config.getProperty("bench.bids"), arriving)
            .mapValues(bid -> (JsonNode) picked(bid, "bidder"))
            .groupBy((key, bid) -> bid.get("bidder").asText(), Grouped.with(TEXT, TREE))
            .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(10)))
            .count(Materialized.as("counts"))
            .toStream()
            .map(Nexmark::numbered);
    }

    private KStream<String, JsonNode> sideInput() {
        GlobalKTable<String, JsonNode> side = builder.globalTable(config.getProperty("bench.side"), Consumed.with(TEXT, TREE));
        return stream("bids").join(side, (key, bid) -> Long.toString(bid.get("auction").asLong() % 10_000), (bid, row) -> {
            ObjectNode found = picked(bid, "auction", "bidder", "price", "dateTime");
            return (JsonNode) found.set("value", row.get("value"));
        });
    }

    private KStream<String, JsonNode> distinct(String name, List<String> fields, Function<JsonNode, String> key) {
        return stream("bids")
            .map((own, bid) -> {
                ObjectNode found = picked(bid, "auction", "bidder", "price", "channel");
                return KeyValue.pair(key.apply(bid), (JsonNode) found.put("day", text(bid, DAY)).put("minute", text(bid, MINUTE)));
            })
            .repartition(Repartitioned.with(TEXT, TREE).withName(name))
            .processValues(new Distinct.Supplier(TREE, fields));
    }

    private KStream<String, JsonNode> pricesOfAuctions() {
        return stream("bids")
            .map((key, bid) -> {
                ObjectNode found = picked(bid, "auction", "price").put("day", text(bid, DAY));
                return KeyValue.pair(key + "@" + found.get("day").asText(), (JsonNode) found);
            })
            .groupByKey(Grouped.with(TEXT, TREE))
            .aggregate(JSON::createObjectNode, (key, bid, before) -> {
                long price = bid.get("price").asLong();
                ObjectNode found = picked(bid, "auction", "day");
                found.put("total_bids", before.path("total_bids").asLong() + 1);
                found.put("rank1_bids", before.path("rank1_bids").asLong() + (price < 10_000 ? 1 : 0));
                found.put("rank2_bids", before.path("rank2_bids").asLong() + (price >= 10_000 && price < 1_000_000 ? 1 : 0));
                found.put("rank3_bids", before.path("rank3_bids").asLong() + (price >= 1_000_000 ? 1 : 0));
                found.put("min_price", Math.min(price, before.path("min_price").asLong(price)));
                found.put("max_price", Math.max(price, before.path("max_price").asLong(price)));
                return found.put("sum_price", before.path("sum_price").asLong() + price);
            }, store("days"))
            .toStream()
            .mapValues(found -> {
                long average = found.get("sum_price").asLong() / found.get("total_bids").asLong();
                return (JsonNode) ((ObjectNode) found).put("avg_price", average);
            });
    }

    private KStream<String, JsonNode> tenHighest() {
        return stream("bids")
            .groupByKey(Grouped.with(TEXT, TREE))
            .aggregate(() -> (JsonNode) JSON.createObjectNode().set("bids", JSON.createArrayNode()), (key, bid, before) -> {
                ArrayNode bids = (ArrayNode) before.get("bids");
                int place = bids.size();
                while (place > 0 && bids.get(place - 1).get("price").asLong() < bid.get("price").asLong()) {
                    place--;
                }
                bids.insert(place, bid);
                if (bids.size() > 10) {
                    bids.remove(10);
                }
                return before;
            }, store("highest"))
            .toStream();
    }

    private KStream<String, JsonNode> withAuctions() {
        KTable<String, JsonNode> auctions =
            table("auctions").filter((key, auction) -> auction.get("category").asLong() == 10, store("auctions"));
        return stream("bids").join(auctions, (bid, auction) -> {
            ObjectNode found = picked(bid, "auction", "bidder", "price", "channel", "url");
            found.set("bid_dateTime", bid.get("dateTime"));
            found.set("bid_extra", bid.get("extra"));
            found.setAll(picked(auction, "itemName", "description", "initialBid", "reserve", "expires", "seller", "category"));
            found.set("auction_dateTime", auction.get("dateTime"));
            return (JsonNode) found.set("auction_extra", auction.get("extra"));
        }, Joined.with(TEXT, TREE, TREE));
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

    private static boolean open(JsonNode bid, JsonNode auction) {
        long time = bid.get("dateTime").asLong();
        return auction.get("dateTime").asLong() <= time && time <= auction.get("expires").asLong();
    }

    private static JsonNode higher(JsonNode highest, JsonNode bid) {
        return bid.get("price").asLong() > highest.get("price").asLong() ? bid : highest;
    }

    private static String text(JsonNode bid, DateTimeFormatter form) {
        return form.format(Instant.ofEpochMilli(bid.get("dateTime").asLong()));
    }

    private static KeyValue<String, JsonNode> numbered(Windowed<String> key, Long number) {
        ObjectNode found = JSON.createObjectNode().put("bidder", Long.parseLong(key.key())).put("number", number);
        return KeyValue.pair(key.key() + "@" + key.window().start(), number == null ? null : found);
    }

    private static JsonNode calculated(JsonNode bid) {
        int hour = Instant.ofEpochMilli(bid.get("dateTime").asLong()).atOffset(ZoneOffset.UTC).getHour();
        ObjectNode found = picked(bid, "auction", "bidder", "dateTime", "extra");
        found.put("price", bid.get("price").asLong() * 908 / 1000);
        found.put("bidTimeType", hour >= 8 && hour <= 18 ? "dayTime" : hour <= 6 || hour >= 20 ? "nightTime" : "otherTime");
        return found.put("c_counts", bid.get("extra").asText().chars().filter(each -> each == 'c').count());
    }

    private static JsonNode withChannel(JsonNode bid) {
        String number = NUMBERS.get(bid.get("channel").asText().toLowerCase(Locale.ROOT));
        if (number == null) {
            Matcher found = CHANNEL.matcher(bid.get("url").asText());
            number = found.find() ? found.group(2) : null;
        }
        return picked(bid, "auction", "bidder", "price", "channel").put("channel_id", number);
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
