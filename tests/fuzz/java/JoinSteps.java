import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.function.BiFunction;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.ValueJoinerWithKey;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueStore;

/** The joins: their kind follows from what stands on each side. */
@SuppressWarnings("unchecked")
final class JoinSteps {
    private final Builder builder;
    private final Model model;

    JoinSteps(Builder builder) {
        this.builder = builder;
        this.model = builder.model;
    }

    Flow apply(Flow flow, Model.Options options) {
        Flow other = builder.with(options.get("with"));
        Serde<Object> value = model.serde(options.get("value_serde"), model.defaultValue);
        Expr.Node expression = model.expression(options.get("value"));
        if (flow.dsl() instanceof KTable<?, ?> table) {
            ValueJoiner<Object, Object, Object> joiner = (left, right) -> expression.eval(Model.env("left", left, "right", right));
            return new Flow(tables((KTable<Object, Object>) table, flow, other, options, joiner, value), flow.key(), value, flow.sessions());
        }
        KStream<Object, Object> stream = (KStream<Object, Object>) flow.dsl();
        ValueJoinerWithKey<Object, Object, Object, Object> joiner =
            (key, left, right) -> expression.eval(Model.env("key", key, "left", left, "right", right));
        if (other.dsl() instanceof GlobalKTable<?, ?> global) {
            return Flow.of(global(stream, (GlobalKTable<Object, Object>) global, options, joiner), flow.key(), value);
        }
        if (other.dsl() instanceof KTable<?, ?> table) {
            return Flow.of(table(stream, (KTable<Object, Object>) table, flow, other, options, joiner), flow.key(), value);
        }
        return Flow.of(streams(stream, (KStream<Object, Object>) other.dsl(), flow, other, options, joiner), flow.key(), value);
    }

    private KStream<Object, Object> streams(KStream<Object, Object> left, KStream<Object, Object> right, Flow flow, Flow other,
            Model.Options options, ValueJoinerWithKey<Object, Object, Object, Object> joiner) {
        StreamJoined<Object, Object, Object> joined = StreamJoined.with(flow.key(), flow.value(), other.value());
        if (options.name() != null) {
            joined = joined.withName(options.name());
        }
        JoinWindows windows = windows(options);
        joined = stores(joined, options, windows);
        return switch (options.step()) {
            case "join" -> left.join(right, joiner, windows, joined);
            case "left_join" -> left.leftJoin(right, joiner, windows, joined);
            default -> left.outerJoin(right, joiner, windows, joined);
        };
    }

    private static StreamJoined<Object, Object, Object> stores(
            StreamJoined<Object, Object, Object> joined, Model.Options options, JoinWindows windows) {
        Stores all = new Stores(options.get("store"));
        if (all.given() && all.name() != null) {
            joined = joined.withStoreName(all.name());
        }
        if (all.given() && all.inMemory()) {
            joined = joined.withDslStoreSuppliers(BuiltInDslStoreSuppliers.IN_MEMORY);
        }
        if (!options.get("store").path("logging").asBoolean(true)) {
            joined = joined.withLoggingDisabled();
        }
        Stores left = new Stores(options.get("this_store"));
        Stores right = new Stores(options.get("other_store"));
        joined = left.given() ? joined.withThisStoreSupplier(left.supplier(windows.size(), windows.gracePeriodMs())) : joined;
        return right.given() ? joined.withOtherStoreSupplier(right.supplier(windows.size(), windows.gracePeriodMs())) : joined;
    }

    private static JoinWindows windows(Model.Options options) {
        Duration grace = time(options.get("grace"));
        if (!options.get("within").isMissingNode()) {
            return JoinWindows.ofTimeDifferenceAndGrace(Data.duration(options.get("within")), grace);
        }
        Duration before = time(options.get("before"));
        Duration after = time(options.get("after"));
        Duration wider = before.compareTo(after) > 0 ? before : after;
        return JoinWindows.ofTimeDifferenceAndGrace(wider, grace).before(before).after(after);
    }

    private static Duration time(JsonNode node) {
        return node.isMissingNode() ? Duration.ZERO : Data.duration(node);
    }

    private KStream<Object, Object> table(KStream<Object, Object> stream, KTable<Object, Object> table, Flow flow, Flow other,
            Model.Options options, ValueJoinerWithKey<Object, Object, Object, Object> joiner) {
        Joined<Object, Object, Object> joined = Joined.with(flow.key(), flow.value(), other.value());
        if (options.name() != null) {
            joined = joined.withName(options.name());
        }
        if (!options.get("grace").isMissingNode()) {
            joined = joined.withGracePeriod(Data.duration(options.get("grace")));
        }
        return options.step().equals("join") ? stream.join(table, joiner, joined) : stream.leftJoin(table, joiner, joined);
    }

    private KStream<Object, Object> global(KStream<Object, Object> stream, GlobalKTable<Object, Object> global,
            Model.Options options, ValueJoinerWithKey<Object, Object, Object, Object> joiner) {
        Expr.Node on = model.expression(options.get("on"));
        KeyValueMapper<Object, Object, Object> key = (k, v) -> Model.eval(on, k, v);
        Named named = options.named();
        if (options.step().equals("join")) {
            return named == null ? stream.join(global, key, joiner) : stream.join(global, key, joiner, named);
        }
        return named == null ? stream.leftJoin(global, key, joiner) : stream.leftJoin(global, key, joiner, named);
    }

    private KTable<Object, Object> tables(KTable<Object, Object> left, Flow flow, Flow other, Model.Options options,
            ValueJoiner<Object, Object, Object> joiner, Serde<Object> value) {
        KTable<Object, Object> right = (KTable<Object, Object>) other.dsl();
        Stores store = new Stores(options.get("store"));
        Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> kv = store.given() ? store.keyValue(flow.key(), value) : null;
        if (!options.get("on").isMissingNode()) {
            return foreign(left, right, options, joiner, kv == null ? Materialized.with(flow.key(), value) : kv);
        }
        Named named = options.named();
        if (kv == null) {
            return switch (options.step()) {
                case "join" -> named == null ? left.join(right, joiner) : left.join(right, joiner, named);
                case "left_join" -> named == null ? left.leftJoin(right, joiner) : left.leftJoin(right, joiner, named);
                default -> named == null ? left.outerJoin(right, joiner) : left.outerJoin(right, joiner, named);
            };
        }
        return switch (options.step()) {
            case "join" -> named == null ? left.join(right, joiner, kv) : left.join(right, joiner, named, kv);
            case "left_join" -> named == null ? left.leftJoin(right, joiner, kv) : left.leftJoin(right, joiner, named, kv);
            default -> named == null ? left.outerJoin(right, joiner, kv) : left.outerJoin(right, joiner, named, kv);
        };
    }

    private KTable<Object, Object> foreign(KTable<Object, Object> left, KTable<Object, Object> right, Model.Options options,
            ValueJoiner<Object, Object, Object> joiner, Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> kv) {
        Expr.Node on = model.expression(options.get("on"));
        BiFunction<Object, Object, Object> key = (k, v) -> Model.eval(on, k, v);
        TableJoined<Object, Object> joined = joined(options);
        boolean inner = options.step().equals("join");
        if (joined == null) {
            return inner ? left.join(right, key, joiner, kv) : left.leftJoin(right, key, joiner, kv);
        }
        return inner ? left.join(right, key, joiner, joined, kv) : left.leftJoin(right, key, joiner, joined, kv);
    }

    private TableJoined<Object, Object> joined(Model.Options options) {
        boolean partitioned = !options.get("partition").isMissingNode() || !options.get("other_partition").isMissingNode();
        if (!partitioned) {
            return options.name() == null ? null : TableJoined.as(options.name());
        }
        TableJoined<Object, Object> joined = TableJoined.with(
            model.partitioner(options.get("partition")), model.partitioner(options.get("other_partition")));
        return options.name() == null ? joined : joined.withName(options.name());
    }
}
