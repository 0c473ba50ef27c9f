import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.Set;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Initializer;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Merger;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.SessionWindowedCogroupedKStream;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindowedCogroupedKStream;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/** Groupings, windows and aggregations: one DSL call each. */
@SuppressWarnings("unchecked")
final class AggregationSteps {
    static final Set<String> NAMES = Set.of("group_by", "group_by_key", "window", "cogroup", "count", "reduce", "aggregate");

    /** A windowed grouping, with the serde that its keys get. */
    private record Windowed(Object dsl, long size) {}

    private final Builder builder;
    private final Model model;

    AggregationSteps(Builder builder) {
        this.builder = builder;
        this.model = builder.model;
    }

    Flow apply(Flow flow, Model.Options options) {
        return switch (options.step()) {
            case "group_by" -> groupBy(flow, options);
            case "group_by_key" -> groupByKey(flow, options);
            case "window" -> window(flow, options);
            case "cogroup" -> cogroup(flow, options);
            case "count" -> count(flow, options);
            case "reduce" -> reduce(flow, options);
            default -> aggregate(flow, options);
        };
    }

    private static Grouped<Object, Object> grouped(Serde<Object> key, Serde<Object> value, Model.Options options) {
        return options.name() == null ? Grouped.with(key, value) : Grouped.with(options.name(), key, value);
    }

    private Flow groupBy(Flow flow, Model.Options options) {
        Expr.Node keyOf = model.expression(options.main("key"));
        Serde<Object> key = model.serde(options.get("key_serde"), model.defaultKey);
        if (flow.dsl() instanceof KStream<?, ?> stream) {
            Serde<Object> value = model.serde(options.get("value_serde"), flow.value());
            KeyValueMapper<Object, Object, Object> mapper = (k, v) -> Model.eval(keyOf, k, v);
            return Flow.of(((KStream<Object, Object>) stream).groupBy(mapper, grouped(key, value, options)), key, value);
        }
        boolean given = !options.get("value").isMissingNode();
        Expr.Node valueOf = given ? model.expression(options.get("value")) : env -> env.get("value");
        Serde<Object> value = model.serde(options.get("value_serde"), given ? model.defaultValue : flow.value());
        KeyValueMapper<Object, Object, KeyValue<Object, Object>> mapper =
            (k, v) -> KeyValue.pair(Model.eval(keyOf, k, v), Model.eval(valueOf, k, v));
        return Flow.of(((KTable<Object, Object>) flow.dsl()).groupBy(mapper, grouped(key, value, options)), key, value);
    }

    private Flow groupByKey(Flow flow, Model.Options options) {
        Serde<Object> key = model.serde(options.get("key_serde"), flow.key());
        Serde<Object> value = model.serde(options.get("value_serde"), flow.value());
        return Flow.of(((KStream<Object, Object>) flow.dsl()).groupByKey(grouped(key, value, options)), key, value);
    }

    private Flow cogroup(Flow flow, Model.Options options) {
        CogroupedKStream<Object, Object> cogrouped = ((KGroupedStream<Object, Object>) flow.dsl()).cogroup(adder(options.get("add")));
        for (JsonNode input : options.get("inputs")) {
            Flow other = builder.with(input.get("from"));
            cogrouped = cogrouped.cogroup((KGroupedStream<Object, Object>) other.dsl(), adder(input.get("add")));
        }
        return flow.with(cogrouped);
    }

    private Flow window(Flow flow, Model.Options options) {
        Duration grace = options.get("grace").isMissingNode() ? Duration.ZERO : Data.duration(options.get("grace"));
        EmitStrategy emit = options.get("emit").asText().equals("on_close") ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
        Object grouped = flow.dsl();
        if (options.node().has("session")) {
            SessionWindows windows = SessionWindows.ofInactivityGapAndGrace(Data.duration(options.get("session")), grace);
            Object dsl = grouped instanceof KGroupedStream<?, ?> stream
                ? stream.windowedBy(windows).emitStrategy(emit)
                : ((CogroupedKStream<?, ?>) grouped).windowedBy(windows);
            return new Flow(new Windowed(dsl, -1), flow.key(), flow.value(), true);
        }
        if (options.node().has("sliding")) {
            Duration difference = Data.duration(options.get("sliding"));
            SlidingWindows windows = SlidingWindows.ofTimeDifferenceAndGrace(difference, grace);
            Object dsl = grouped instanceof KGroupedStream<?, ?> stream
                ? stream.windowedBy(windows).emitStrategy(emit)
                : ((CogroupedKStream<?, ?>) grouped).windowedBy(windows);
            return flow.with(new Windowed(dsl, difference.toMillis()));
        }
        boolean hopping = options.node().has("hopping");
        Duration size = Data.duration(options.get(hopping ? "hopping" : "tumbling"));
        TimeWindows windows = TimeWindows.ofSizeAndGrace(size, grace);
        if (hopping) {
            windows = windows.advanceBy(Data.duration(options.get("advance")));
        }
        Object dsl = grouped instanceof KGroupedStream<?, ?> stream
            ? stream.windowedBy(windows).emitStrategy(emit)
            : ((CogroupedKStream<?, ?>) grouped).windowedBy(windows);
        return flow.with(new Windowed(dsl, size.toMillis()));
    }

    private Serde<Object> resultKey(Flow flow) {
        if (!(flow.dsl() instanceof Windowed windowed)) {
            return flow.key();
        }
        return windowed.size < 0
            ? Data.any(new WindowedSerdes.SessionWindowedSerde<>(flow.key()))
            : Data.any(new WindowedSerdes.TimeWindowedSerde<>(flow.key(), windowed.size));
    }

    private Flow result(Flow flow, Object table, Serde<Object> value) {
        return new Flow(table, resultKey(flow), value, flow.sessions());
    }

    private static Object target(Flow flow) {
        return flow.dsl() instanceof Windowed windowed ? windowed.dsl : flow.dsl();
    }

    private Flow count(Flow flow, Model.Options options) {
        Stores store = new Stores(options.main("store"));
        Named named = options.named();
        Serde<Object> value = Data.any(Serdes.Long());
        Object on = target(flow);
        Object table;
        if (on instanceof KGroupedStream<?, ?> || on instanceof KGroupedTable<?, ?>) {
            Materialized<Object, Long, KeyValueStore<Bytes, byte[]>> kv = (Materialized) store.keyValue(flow.key(), value);
            if (on instanceof KGroupedStream<?, ?> s) {
                KGroupedStream<Object, Object> stream = (KGroupedStream<Object, Object>) s;
                table = store.given()
                    ? (named == null ? stream.count(kv) : stream.count(named, kv))
                    : (named == null ? stream.count() : stream.count(named));
            } else {
                KGroupedTable<Object, Object> grouped = (KGroupedTable<Object, Object>) on;
                table = store.given()
                    ? (named == null ? grouped.count(kv) : grouped.count(named, kv))
                    : (named == null ? grouped.count() : grouped.count(named));
            }
        } else if (on instanceof SessionWindowedKStream<?, ?> s) {
            SessionWindowedKStream<Object, Object> stream = (SessionWindowedKStream<Object, Object>) s;
            Materialized<Object, Long, SessionStore<Bytes, byte[]>> session = (Materialized) store.session(flow.key(), value);
            table = store.given()
                ? (named == null ? stream.count(session) : stream.count(named, session))
                : (named == null ? stream.count() : stream.count(named));
        } else {
            TimeWindowedKStream<Object, Object> stream = (TimeWindowedKStream<Object, Object>) on;
            Materialized<Object, Long, WindowStore<Bytes, byte[]>> window = (Materialized) store.window(flow.key(), value);
            table = store.given()
                ? (named == null ? stream.count(window) : stream.count(named, window))
                : (named == null ? stream.count() : stream.count(named));
        }
        return result(flow, table, value);
    }

    private Flow reduce(Flow flow, Model.Options options) {
        Stores store = new Stores(options.get("store"));
        Reducer<Object> add = reducer(options.main("add"));
        Named named = options.named();
        Serde<Object> value = model.serde(options.get("value_serde"), flow.value());
        Object on = target(flow);
        Object table;
        if (on instanceof KGroupedStream<?, ?> s) {
            KGroupedStream<Object, Object> stream = (KGroupedStream<Object, Object>) s;
            var kv = store.keyValue(flow.key(), value);
            table = named == null ? stream.reduce(add, kv) : stream.reduce(add, named, kv);
        } else if (on instanceof KGroupedTable<?, ?> g) {
            KGroupedTable<Object, Object> grouped = (KGroupedTable<Object, Object>) g;
            Reducer<Object> subtract = reducer(options.get("subtract"));
            var kv = store.keyValue(flow.key(), value);
            table = named == null ? grouped.reduce(add, subtract, kv) : grouped.reduce(add, subtract, named, kv);
        } else if (on instanceof SessionWindowedKStream<?, ?> s) {
            SessionWindowedKStream<Object, Object> stream = (SessionWindowedKStream<Object, Object>) s;
            var session = store.session(flow.key(), value);
            table = named == null ? stream.reduce(add, session) : stream.reduce(add, named, session);
        } else {
            TimeWindowedKStream<Object, Object> stream = (TimeWindowedKStream<Object, Object>) on;
            var window = store.window(flow.key(), value);
            table = named == null ? stream.reduce(add, window) : stream.reduce(add, named, window);
        }
        return result(flow, table, value);
    }

    private Flow aggregate(Flow flow, Model.Options options) {
        Stores store = new Stores(options.get("store"));
        Serde<Object> value = model.serde(options.get("value_serde"), model.defaultValue);
        Expr.Node first = model.expression(options.get("initial"));
        Initializer<Object> initial = () -> first.eval(Model.env());
        Named named = options.named();
        Object on = target(flow);
        Object table;
        if (on instanceof KGroupedStream<?, ?> s) {
            var kv = store.keyValue(flow.key(), value);
            KGroupedStream<Object, Object> stream = (KGroupedStream<Object, Object>) s;
            Aggregator<Object, Object, Object> add = adder(options.get("add"));
            table = named == null ? stream.aggregate(initial, add, kv) : stream.aggregate(initial, add, named, kv);
        } else if (on instanceof KGroupedTable<?, ?> g) {
            var kv = store.keyValue(flow.key(), value);
            KGroupedTable<Object, Object> grouped = (KGroupedTable<Object, Object>) g;
            Aggregator<Object, Object, Object> add = adder(options.get("add"));
            Aggregator<Object, Object, Object> subtract = adder(options.get("subtract"));
            table = named == null ? grouped.aggregate(initial, add, subtract, kv) : grouped.aggregate(initial, add, subtract, named, kv);
        } else if (on instanceof CogroupedKStream<?, ?> c) {
            var kv = store.keyValue(flow.key(), value);
            CogroupedKStream<Object, Object> cogrouped = (CogroupedKStream<Object, Object>) c;
            table = named == null ? cogrouped.aggregate(initial, kv) : cogrouped.aggregate(initial, named, kv);
        } else if (flow.sessions()) {
            var session = store.session(flow.key(), value);
            Merger<Object, Object> merge = merger(options.get("merge"));
            if (on instanceof SessionWindowedKStream<?, ?> s) {
                SessionWindowedKStream<Object, Object> stream = (SessionWindowedKStream<Object, Object>) s;
                Aggregator<Object, Object, Object> add = adder(options.get("add"));
                table = named == null ? stream.aggregate(initial, add, merge, session) : stream.aggregate(initial, add, merge, named, session);
            } else {
                SessionWindowedCogroupedKStream<Object, Object> cogrouped = (SessionWindowedCogroupedKStream<Object, Object>) on;
                table = named == null ? cogrouped.aggregate(initial, merge, session) : cogrouped.aggregate(initial, merge, named, session);
            }
        } else {
            var window = store.window(flow.key(), value);
            if (on instanceof TimeWindowedKStream<?, ?> s) {
                TimeWindowedKStream<Object, Object> stream = (TimeWindowedKStream<Object, Object>) s;
                Aggregator<Object, Object, Object> add = adder(options.get("add"));
                table = named == null ? stream.aggregate(initial, add, window) : stream.aggregate(initial, add, named, window);
            } else {
                TimeWindowedCogroupedKStream<Object, Object> cogrouped = (TimeWindowedCogroupedKStream<Object, Object>) on;
                table = named == null ? cogrouped.aggregate(initial, window) : cogrouped.aggregate(initial, named, window);
            }
        }
        return result(flow, table, value);
    }

    private Aggregator<Object, Object, Object> adder(JsonNode node) {
        Expr.Node add = model.expression(node);
        return (key, value, aggregate) -> add.eval(Model.env("key", key, "value", value, "aggregate", aggregate));
    }

    private Reducer<Object> reducer(JsonNode node) {
        Expr.Node add = model.expression(node);
        return (aggregate, value) -> add.eval(Model.env("value", value, "aggregate", aggregate));
    }

    private Merger<Object, Object> merger(JsonNode node) {
        Expr.Node merge = model.expression(node);
        return (key, left, right) -> merge.eval(Model.env("key", key, "left", left, "right", right));
    }
}
