import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** Queries 15 and 16, as topologies/distinct.py: bids, bidders and auctions of a group, of all prices and of three ranges. */
final class Distinct extends ContextualFixedKeyProcessor<String, JsonNode, JsonNode> {
    private static final String[] WAYS = {"total", "rank1", "rank2", "rank3"};
    private final List<String> fields;
    private KeyValueStore<String, JsonNode> totals;
    private KeyValueStore<String, Integer> seen;

    private Distinct(List<String> fields) {
        this.fields = fields;
    }

    @Override
    public void init(FixedKeyProcessorContext<String, JsonNode> context) {
        super.init(context);
        totals = context.getStateStore("totals");
        seen = context.getStateStore("seen");
    }

    @Override
    public void process(FixedKeyRecord<String, JsonNode> record) {
        JsonNode bid = record.value();
        long price = bid.get("price").asLong();
        int rank = price < 10_000 ? 1 : price < 1_000_000 ? 2 : 3;
        JsonNode before = totals.get(record.key());
        ObjectNode found = before == null ? JsonNodeFactory.instance.objectNode() : (ObjectNode) before;
        add(found, "bids", rank, 0);
        add(found, "bidders", rank, seen(record.key() + "|bidder|" + bid.get("bidder").asText(), rank));
        add(found, "auctions", rank, seen(record.key() + "|auction|" + bid.get("auction").asText(), rank));
        for (String field : fields) {
            found.set(field, bid.get(field));
        }
        totals.put(record.key(), found);
        context().forward(record.withValue(found));
    }

    /** In which ranges a value was before; remembers that it is in this one. */
    private int seen(String place, int rank) {
        Integer found = seen.get(place);
        int before = found == null ? 0 : found;
        if ((before & 1 << rank) == 0) {
            seen.put(place, before | 1 << rank | 1);
        }
        return before;
    }

    private static void add(ObjectNode found, String what, int rank, int before) {
        for (int way = 0; way < WAYS.length; way++) {
            String name = WAYS[way] + "_" + what;
            boolean counts = (way == 0 || way == rank) && (before & 1 << way) == 0;
            found.put(name, found.path(name).asLong() + (counts ? 1 : 0));
        }
    }

    record Supplier(Serde<JsonNode> tree, List<String> fields) implements FixedKeyProcessorSupplier<String, JsonNode, JsonNode> {
        @Override
        public FixedKeyProcessor<String, JsonNode, JsonNode> get() {
            return new Distinct(fields);
        }

        @Override
        public Set<StoreBuilder<?>> stores() {
            return Set.of(
                Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("totals"), Serdes.String(), tree).withCachingEnabled(),
                Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("seen"), Serdes.String(), Serdes.Integer())
                    .withCachingEnabled()
            );
        }
    }
}
