import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.BranchedKStream;
import org.apache.kafka.streams.kstream.ForeachAction;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Predicate;
import org.apache.kafka.streams.kstream.Printed;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.ValueMapperWithKey;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;

/** The steps on streams: one DSL call each. */
@SuppressWarnings("unchecked")
final class StreamSteps {
    private final Builder builder;
    private final Model model;

    StreamSteps(Builder builder) {
        this.builder = builder;
        this.model = builder.model;
    }

    Flow apply(Flow flow, Model.Options options) {
        KStream<Object, Object> stream = (KStream<Object, Object>) flow.dsl();
        Named named = options.named();
        return switch (options.step()) {
            case "filter" -> {
                Predicate<Object, Object> condition = predicate(options.main("if"));
                yield flow.with(named == null ? stream.filter(condition) : stream.filter(condition, named));
            }
            case "filter_not" -> {
                Predicate<Object, Object> condition = predicate(options.main("if"));
                yield flow.with(named == null ? stream.filterNot(condition) : stream.filterNot(condition, named));
            }
            case "map" -> map(flow, stream, options, named);
            case "map_values" -> {
                ValueMapperWithKey<Object, Object, Object> mapper = valueMapper(options.main("value"));
                yield Flow.of(named == null ? stream.mapValues(mapper) : stream.mapValues(mapper, named), flow.key(), value(options));
            }
            case "flat_map" -> flatMap(stream, options, named);
            case "flat_map_values" -> {
                Expr.Node values = model.expression(options.main("values"));
                ValueMapperWithKey<Object, Object, Iterable<Object>> mapper = (k, v) -> Python.iterate(Model.eval(values, k, v));
                yield Flow.of(named == null ? stream.flatMapValues(mapper) : stream.flatMapValues(mapper, named), flow.key(), value(options));
            }
            case "select_key" -> {
                KeyValueMapper<Object, Object, Object> mapper = mapper(options.main("key"));
                yield Flow.of(named == null ? stream.selectKey(mapper) : stream.selectKey(mapper, named), key(options), flow.value());
            }
            case "peek" -> {
                Expr.Node action = model.expression(options.main("do"));
                ForeachAction<Object, Object> peek = (k, v) -> Model.eval(action, k, v);
                yield flow.with(named == null ? stream.peek(peek) : stream.peek(peek, named));
            }
            case "print" -> {
                Printed<Object, Object> printed = Printed.toFile("/dev/null");
                stream.print(named == null ? printed : printed.withName(options.name()));
                yield flow;
            }
            case "merge" -> merge(flow, stream, options, named);
            case "set_headers" -> {
                FixedKeyProcessorSupplier<Object, Object, Object> headers = headers(options.get("headers"));
                yield flow.with(named == null ? stream.processValues(headers) : stream.processValues(headers, named));
            }
            case "process" -> process(stream, options, named);
            case "process_values" -> {
                FixedKeyProcessorSupplier<Object, Object, Object> values = Processors.values(options.get("call").asText());
                KStream<Object, Object> processed = named == null
                    ? stream.processValues(values, stores(options)) : stream.processValues(values, named, stores(options));
                yield Flow.of(processed, flow.key(), value(options));
            }
            case "repartition" -> repartition(flow, stream, options);
            case "to_table" -> {
                Materialized<Object, Object, ?> store = new Stores(options.main("store")).keyValue(flow.key(), flow.value());
                yield flow.with(named == null ? stream.toTable((Materialized) store) : stream.toTable(named, (Materialized) store));
            }
            default -> throw new IllegalArgumentException("no step " + options.step() + " on a stream");
        };
    }

    private Flow map(Flow flow, KStream<Object, Object> stream, Model.Options options, Named named) {
        boolean hasKey = !options.get("key").isMissingNode();
        boolean hasValue = !options.get("value").isMissingNode();
        Expr.Node key = hasKey ? model.expression(options.get("key")) : env -> env.get("key");
        Expr.Node value = hasValue ? model.expression(options.get("value")) : env -> env.get("value");
        KeyValueMapper<Object, Object, KeyValue<Object, Object>> mapper =
            (k, v) -> KeyValue.pair(Model.eval(key, k, v), Model.eval(value, k, v));
        return Flow.of(named == null ? stream.map(mapper) : stream.map(mapper, named),
            hasKey ? key(options) : flow.key(), hasValue ? value(options) : flow.value());
    }

    private Flow flatMap(KStream<Object, Object> stream, Model.Options options, Named named) {
        Expr.Node records = model.expression(options.main("records"));
        KeyValueMapper<Object, Object, Iterable<KeyValue<Object, Object>>> mapper = (k, v) ->
            Python.iterate(Model.eval(records, k, v)).stream()
                .map(pair -> KeyValue.pair(((List<Object>) pair).get(0), ((List<Object>) pair).get(1)))
                .collect(Collectors.toList());
        return Flow.of(named == null ? stream.flatMap(mapper) : stream.flatMap(mapper, named), key(options), value(options));
    }

    private Flow process(KStream<Object, Object> stream, Model.Options options, Named named) {
        var supplier = Processors.supplier(options.get("call").asText());
        String[] stores = stores(options);
        return Flow.of(named == null ? stream.process(supplier, stores) : stream.process(supplier, named, stores), key(options), value(options));
    }

    private static String[] stores(Model.Options options) {
        List<String> names = new ArrayList<>();
        options.get("stores").forEach(store -> names.add(store.asText()));
        return names.toArray(String[]::new);
    }

    private Flow merge(Flow flow, KStream<Object, Object> stream, Model.Options options, Named named) {
        JsonNode with = options.main("with");
        KStream<Object, Object> merged = stream;
        for (JsonNode each : with.isArray() ? with : List.of(with)) {
            KStream<Object, Object> other = (KStream<Object, Object>) builder.with(each).dsl();
            merged = named == null ? merged.merge(other) : merged.merge(other, named);
        }
        return flow.with(merged);
    }

    private Flow repartition(Flow flow, KStream<Object, Object> stream, Model.Options options) {
        Serde<Object> key = model.serde(options.get("key_serde"), flow.key());
        Serde<Object> value = model.serde(options.get("value_serde"), flow.value());
        Repartitioned<Object, Object> repartitioned = Repartitioned.with(key, value);
        if (options.name() != null) {
            repartitioned = repartitioned.withName(options.name());
        }
        JsonNode partitions = options.main("partitions");
        if (!partitions.isMissingNode()) {
            repartitioned = repartitioned.withNumberOfPartitions(partitions.asInt());
        }
        if (!options.get("partition").isMissingNode()) {
            repartitioned = repartitioned.withStreamPartitioner(model.partitioner(options.get("partition")));
        }
        return Flow.of(stream.repartition(repartitioned), key, value);
    }

    /** What makes the steps of a chained branch, as soon as its stream is there. */
    interface Chained {
        void make(String name, JsonNode when, KStream<Object, Object> stream);
    }

    /** The branches of the step by name; one without a name has the number of its place. */
    static Map<String, JsonNode> branches(Model.Options options) {
        Map<String, JsonNode> found = new LinkedHashMap<>();
        JsonNode when = options.get("when");
        if (when.isObject()) {
            when.properties().forEach(entry -> found.put(entry.getKey(), entry.getValue()));
        } else {
            for (JsonNode each : when) {
                found.put(each.path("name").asText(String.valueOf(found.size() + 1)), each);
            }
        }
        return found;
    }

    static String defaultBranch(Model.Options options) {
        JsonNode rest = options.get("default");
        return rest.isMissingNode() ? null : rest.isBoolean() ? "0" : rest.asText();
    }

    /** The branches' streams: a consumer catches each, as the keys of the map that Java returns have a prefix. */
    Map<String, KStream<Object, Object>> split(Flow flow, Model.Options options, Chained chained) {
        KStream<Object, Object> stream = (KStream<Object, Object>) flow.dsl();
        Map<String, KStream<Object, Object>> found = new HashMap<>();
        BranchedKStream<Object, Object> split = options.named() == null ? stream.split() : stream.split(options.named());
        boolean listed = options.get("when").isArray();
        for (Map.Entry<String, JsonNode> when : branches(options).entrySet()) {
            JsonNode body = when.getValue();
            Consumer<KStream<Object, Object>> take = branch -> {
                found.put(when.getKey(), branch);
                if (body.path("chained").asBoolean()) {
                    chained.make(when.getKey(), body, branch);
                }
            };
            boolean named = !listed || body.has("name");
            split = split.branch(predicate(body.has("if") ? body.get("if") : body), named ? Branched.withConsumer(take, when.getKey()) : Branched.withConsumer(take));
        }
        String rest = defaultBranch(options);
        if (rest == null) {
            split.noDefaultBranch();
        } else if (options.get("default").isBoolean()) {
            split.defaultBranch(Branched.withConsumer(branch -> found.put(rest, branch)));
        } else {
            split.defaultBranch(Branched.withConsumer(branch -> found.put(rest, branch), rest));
        }
        return found;
    }

    private FixedKeyProcessorSupplier<Object, Object, Object> headers(JsonNode headers) {
        Map<String, Expr.Node> values = new LinkedHashMap<>();
        headers.properties().forEach(entry -> values.put(entry.getKey(), entry.getValue().isNull() ? null : model.expression(entry.getValue())));
        return new FixedKeyProcessorSupplier<>() {
            @Override
            public FixedKeyProcessor<Object, Object, Object> get() {
                return new ContextualFixedKeyProcessor<>() {
                    @Override
                    public void process(FixedKeyRecord<Object, Object> record) {
                        RecordHeaders changed = new RecordHeaders(record.headers());
                        values.forEach((name, expression) -> {
                            changed.remove(name);
                            Object value = expression == null ? null : Model.eval(expression, record.key(), record.value());
                            if (expression != null) {
                                changed.add(name, value == null ? null : ((String) value).getBytes(StandardCharsets.UTF_8));
                            }
                        });
                        context().forward(record.withHeaders(changed));
                    }
                };
            }
        };
    }

    private Predicate<Object, Object> predicate(JsonNode node) {
        Expr.Node condition = model.expression(node);
        return (k, v) -> Python.truth(Model.eval(condition, k, v));
    }

    private ValueMapperWithKey<Object, Object, Object> valueMapper(JsonNode node) {
        Expr.Node value = model.expression(node);
        return (k, v) -> Model.eval(value, k, v);
    }

    private KeyValueMapper<Object, Object, Object> mapper(JsonNode node) {
        Expr.Node key = model.expression(node);
        return (k, v) -> Model.eval(key, k, v);
    }

    private Serde<Object> key(Model.Options options) {
        return model.serde(options.get("key_serde"), model.defaultKey);
    }

    private Serde<Object> value(Model.Options options) {
        return model.serde(options.get("value_serde"), model.defaultValue);
    }
}
