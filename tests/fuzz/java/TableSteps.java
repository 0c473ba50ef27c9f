import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Predicate;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.ValueMapperWithKey;

/** Sources and steps of tables: one DSL call each. */
@SuppressWarnings({"unchecked", "rawtypes"})
final class TableSteps {
    private final Builder builder;
    private final Model model;

    TableSteps(Builder builder) {
        this.builder = builder;
        this.model = builder.model;
    }

    Object source(Model.Topic topic, Consumed<Object, Object> consumed, JsonNode storeNode, boolean global) {
        Stores store = new Stores(storeNode);
        if (!store.given()) {
            return global ? builder.dsl.globalTable(topic.name(), consumed) : builder.dsl.table(topic.name(), consumed);
        }
        Materialized materialized = store.keyValue(topic.key(), topic.value());
        return global
            ? builder.dsl.globalTable(topic.name(), consumed, materialized)
            : builder.dsl.table(topic.name(), consumed, materialized);
    }

    Flow apply(Flow flow, Model.Options options) {
        if (!(flow.dsl() instanceof KTable)) {
            throw new IllegalArgumentException("no step " + options.step() + " on " + flow.dsl().getClass().getSimpleName());
        }
        KTable<Object, Object> table = (KTable<Object, Object>) flow.dsl();
        Named named = options.named();
        return switch (options.step()) {
            case "filter", "filter_not" -> filter(flow, table, options, named);
            case "map_values" -> mapValues(flow, table, options, named);
            case "process_values" -> transformValues(flow, table, options, named);
            case "to_stream" -> toStream(flow, table, options, named);
            case "suppress" -> flow.with(table.suppress(suppressed(options)));
            default -> throw new IllegalArgumentException("no step " + options.step() + " on a table");
        };
    }

    private Flow transformValues(Flow flow, KTable<Object, Object> table, Model.Options options, Named named) {
        Serde<Object> value = model.serde(options.get("value_serde"), model.defaultValue);
        Stores store = new Stores(options.get("store"));
        var supplier = Processors.transformer(options.get("call").asText());
        KTable<Object, Object> made;
        if (store.given()) {
            Materialized materialized = store.keyValue(flow.key(), value);
            made = named == null ? table.transformValues(supplier, materialized) : table.transformValues(supplier, materialized, named);
        } else {
            made = named == null ? table.transformValues(supplier) : table.transformValues(supplier, named);
        }
        return new Flow(made, flow.key(), value, flow.sessions());
    }

    private Flow filter(Flow flow, KTable<Object, Object> table, Model.Options options, Named named) {
        Expr.Node condition = model.expression(options.main("if"));
        Predicate<Object, Object> predicate = (k, v) -> Python.truth(Model.eval(condition, k, v));
        Stores store = new Stores(options.get("store"));
        boolean not = options.step().equals("filter_not");
        if (store.given()) {
            Materialized materialized = store.keyValue(flow.key(), flow.value());
            if (named == null) {
                return flow.with(not ? table.filterNot(predicate, materialized) : table.filter(predicate, materialized));
            }
            return flow.with(not ? table.filterNot(predicate, named, materialized) : table.filter(predicate, named, materialized));
        }
        if (named == null) {
            return flow.with(not ? table.filterNot(predicate) : table.filter(predicate));
        }
        return flow.with(not ? table.filterNot(predicate, named) : table.filter(predicate, named));
    }

    private Flow mapValues(Flow flow, KTable<Object, Object> table, Model.Options options, Named named) {
        Expr.Node expression = model.expression(options.main("value"));
        ValueMapperWithKey<Object, Object, Object> mapper = (k, v) -> Model.eval(expression, k, v);
        Serde<Object> value = model.serde(options.get("value_serde"), model.defaultValue);
        Stores store = new Stores(options.get("store"));
        KTable<Object, Object> mapped;
        if (store.given()) {
            Materialized materialized = store.keyValue(flow.key(), value);
            mapped = named == null ? table.mapValues(mapper, materialized) : table.mapValues(mapper, named, materialized);
        } else {
            mapped = named == null ? table.mapValues(mapper) : table.mapValues(mapper, named);
        }
        return new Flow(mapped, flow.key(), value, flow.sessions());
    }

    private Flow toStream(Flow flow, KTable<Object, Object> table, Model.Options options, Named named) {
        JsonNode key = options.main("key");
        if (key.isMissingNode()) {
            return Flow.of(named == null ? table.toStream() : table.toStream(named), flow.key(), flow.value());
        }
        Expr.Node expression = model.expression(key);
        KeyValueMapper<Object, Object, Object> mapper = (k, v) -> Model.eval(expression, k, v);
        return Flow.of(named == null ? table.toStream(mapper) : table.toStream(mapper, named),
            model.serde(options.get("key_serde"), model.defaultKey), flow.value());
    }

    private Suppressed<Object> suppressed(Model.Options options) {
        boolean closes = options.main("until").asText().equals("window_closes");
        boolean limited = options.node().has("max_records") || options.node().has("max_bytes");
        BufferConfig buffer = BufferConfig.unbounded();
        if (limited) {
            String full = options.node().path("when_full").asText(closes ? "shut_down" : "emit_early");
            Suppressed.EagerBufferConfig eager = options.node().has("max_records")
                ? BufferConfig.maxRecords(options.get("max_records").asLong())
                : BufferConfig.maxBytes(options.get("max_bytes").asLong());
            if (options.node().has("max_records") && options.node().has("max_bytes")) {
                eager = eager.withMaxBytes(options.get("max_bytes").asLong());
            }
            buffer = full.equals("shut_down") ? eager.shutDownWhenFull() : eager;
        }
        if (!options.get("logging").asBoolean(true)) {
            buffer = buffer.withLoggingDisabled();
        }
        if (options.node().has("config")) {
            buffer = buffer.withLoggingEnabled(Data.JSON.convertValue(options.get("config"), Map.class));
        }
        Suppressed suppressed = closes
            ? Suppressed.untilWindowCloses((Suppressed.StrictBufferConfig) buffer)
            : Suppressed.untilTimeLimit(Data.duration(options.main("until")), buffer);
        return options.name() == null ? suppressed : suppressed.withName(options.name());
    }
}
