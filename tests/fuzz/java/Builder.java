import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.FailOnInvalidTimestamp;
import org.apache.kafka.streams.processor.LogAndSkipOnInvalidTimestamp;
import org.apache.kafka.streams.processor.RecordContext;
import org.apache.kafka.streams.processor.TimestampExtractor;
import org.apache.kafka.streams.processor.TopicNameExtractor;
import org.apache.kafka.streams.processor.UsePartitionTimeOnInvalidTimestamp;

/** Builds the pipelines of a file in order, and others when a reference to them is reached. */
final class Builder {
    final Model model;
    final StreamsBuilder dsl;
    private final Map<String, Flow> ends = new HashMap<>();
    private final Set<String> underWay = new HashSet<>();
    private final StreamSteps streams;
    private final TableSteps tables;
    private final AggregationSteps aggregations;
    private final JoinSteps joins;

    Builder(Model model) {
        this.model = model;
        dsl = dsl(model.yaml);
        streams = new StreamSteps(this);
        tables = new TableSteps(this);
        aggregations = new AggregationSteps(this);
        joins = new JoinSteps(this);
    }

    /** Java looks at default.dsl.store only where the builder was told of it. */
    private static StreamsBuilder dsl(JsonNode yaml) {
        if (!yaml.path("config").has("default.dsl.store")) {
            return new StreamsBuilder();
        }
        Map<String, Object> config = new HashMap<>(Map.of("application.id", "fuzz", "bootstrap.servers", "localhost:9092"));
        for (String name : List.of("default.dsl.store", "dsl.store.suppliers.class")) {
            if (yaml.get("config").has(name)) {
                config.put(name, yaml.get("config").get(name).asText());
            }
        }
        return new StreamsBuilder(new TopologyConfig(new StreamsConfig(config)));
    }

    void build() {
        model.yaml.path("stores").properties().stream().filter(entry -> !isGlobal(entry.getKey())).forEach(entry ->
            dsl.addStateStore(Scripts.store(model, entry.getKey(), entry.getValue())));
        model.yaml.path("pipelines").properties().forEach(entry -> pipeline(entry.getKey()));
    }

    private boolean isGlobal(String store) {
        for (JsonNode pipeline : model.yaml.path("pipelines")) {
            if (pipeline.has("global_store") && pipeline.get("store").asText().equals(store)) {
                return true;
            }
        }
        return false;
    }

    private void globalStore(JsonNode node) {
        Model.Topic topic = model.topic(node.get("global_store").asText());
        String store = node.get("store").asText();
        dsl.addGlobalStore(Scripts.store(model, store, model.yaml.get("stores").get(store)).withLoggingDisabled(), topic.name(),
            consumed(topic.key(), topic.value(), topic.timestamp(), node.path("name")), Scripts.keeper(store, node.has("process")));
    }

    /** What the pipeline or branch ends with; it is built if it is not yet. */
    Flow reference(String name) {
        pipeline(name.split("\\.")[0]);
        Flow end = ends.get(name);
        if (end == null) {
            throw new IllegalArgumentException("no pipeline " + name);
        }
        return end;
    }

    /** What stands in `with:`, a pipeline or an inline source. */
    Flow with(JsonNode node) {
        return node.isTextual() ? reference(node.asText()) : source(node);
    }

    private void pipeline(String name) {
        if (ends.containsKey(name)) {
            return;
        }
        if (!underWay.add(name)) {
            if (ends.keySet().stream().anyMatch(end -> end.startsWith(name + "."))) {
                return;
            }
            throw new IllegalArgumentException("pipeline " + name + " refers to itself");
        }
        JsonNode node = model.yaml.get("pipelines").path(name);
        if (node.has("global_store")) {
            globalStore(node);
            return;
        }
        Flow flow = node.has("from") ? reference(node.get("from").asText()) : source(node);
        flow = steps(name, flow, node.path("steps"));
        if (flow != null) {
            ends.put(name, flow);
            ending(flow, node);
        }
    }

    /** The steps in order; null after a branch step, which gives its branches as `NAME.BRANCH`. */
    private Flow steps(String pipeline, Flow start, JsonNode steps) {
        Flow flow = start;
        for (JsonNode step : steps) {
            Model.Options options = Model.step(step);
            if (options.step().equals("branch")) {
                branch(pipeline, flow, options);
                return null;
            }
            flow = step(flow, options);
        }
        return flow;
    }

    private Flow step(Flow flow, Model.Options options) {
        if (options.step().endsWith("join")) {
            return joins.apply(flow, options);
        }
        if (AggregationSteps.NAMES.contains(options.step())) {
            return aggregations.apply(flow, options);
        }
        return flow.dsl() instanceof KStream ? streams.apply(flow, options) : tables.apply(flow, options);
    }

    /** What hangs below the branches; a chained one has it already. */
    private void branch(String pipeline, Flow flow, Model.Options options) {
        Map<String, KStream<Object, Object>> split = streams.split(flow, options, (name, when, stream) -> below(pipeline + "." + name, when, flow.with(stream)));
        StreamSteps.branches(options).forEach((name, when) -> {
            String branch = pipeline + "." + name;
            if (!ends.containsKey(branch)) {
                below(branch, when, flow.with(split.get(name)));
            }
        });
        String rest = StreamSteps.defaultBranch(options);
        if (rest != null) {
            ends.put(pipeline + "." + rest, flow.with(split.get(rest)));
        }
    }

    private void below(String branch, JsonNode when, Flow start) {
        Flow flow = start;
        if (when.has("if")) {
            flow = steps(branch, flow, when.path("steps"));
            ending(flow, when);
        }
        ends.put(branch, flow);
    }

    private Flow source(JsonNode node) {
        if (node.has("stream")) {
            return stream(node.get("stream"), node.path("name"));
        }
        boolean global = node.has("global_table");
        Model.Topic topic = model.topic(node.get(global ? "global_table" : "table").asText());
        Consumed<Object, Object> consumed = consumed(topic.key(), topic.value(), topic.timestamp(), node.path("name"));
        return Flow.of(tables.source(topic, consumed, node.path("store"), global), topic.key(), topic.value());
    }

    private Flow stream(JsonNode topics, JsonNode name) {
        if (topics.isObject()) {
            Consumed<Object, Object> consumed = consumed(model.defaultKey, model.defaultValue, name, name);
            return Flow.of(dsl.stream(Pattern.compile(topics.get("pattern").asText()), consumed), model.defaultKey, model.defaultValue);
        }
        List<Model.Topic> all = new ArrayList<>();
        if (topics.isArray()) {
            topics.forEach(topic -> all.add(model.topic(topic.asText())));
        } else {
            all.add(model.topic(topics.asText()));
        }
        Model.Topic first = all.get(0);
        Consumed<Object, Object> consumed = consumed(first.key(), first.value(), first.timestamp(), name);
        KStream<Object, Object> stream = topics.isArray()
            ? dsl.stream(all.stream().map(Model.Topic::name).toList(), consumed)
            : dsl.stream(first.name(), consumed);
        return Flow.of(stream, first.key(), first.value());
    }

    private Consumed<Object, Object> consumed(Serde<Object> key, Serde<Object> value, JsonNode timestamp, JsonNode name) {
        Consumed<Object, Object> consumed = Consumed.with(key, value);
        if (timestamp.isTextual() && timestamp != name) {
            consumed = consumed.withTimestampExtractor(extractor(timestamp));
        }
        return name.isTextual() ? consumed.withName(name.asText()) : consumed;
    }

    private TimestampExtractor extractor(JsonNode timestamp) {
        return switch (timestamp.asText()) {
            case "fail_on_invalid" -> new FailOnInvalidTimestamp();
            case "log_and_skip" -> new LogAndSkipOnInvalidTimestamp();
            case "use_partition_time" -> new UsePartitionTimeOnInvalidTimestamp();
            default -> {
                Expr.Node expression = model.expression(timestamp);
                yield (record, time) -> (Long) expression.eval(Model.env(
                    "key", record.key(), "value", record.value(), "timestamp", record.timestamp(), "offset", record.offset()));
            }
        };
    }

    @SuppressWarnings("unchecked")
    private void ending(Flow flow, JsonNode node) {
        if (node.has("for_each")) {
            JsonNode name = node.get("for_each").path("name");
            KStream<Object, Object> stream = (KStream<Object, Object>) flow.dsl();
            if (name.isTextual()) {
                stream.foreach((key, value) -> { }, Named.as(name.asText()));
            } else {
                stream.foreach((key, value) -> { });
            }
        }
        if (node.has("to")) {
            to((KStream<Object, Object>) flow.dsl(), flow, node.get("to"));
        }
    }

    private void to(KStream<Object, Object> stream, Flow flow, JsonNode to) {
        if (to.has("route")) {
            Produced<Object, Object> produced = Produced.with(flow.key(), flow.value());
            stream.to(route(to.get("route")), to.has("name") ? produced.withName(to.get("name").asText()) : produced);
            return;
        }
        Model.Topic topic = model.topic(to.isObject() ? to.get("topic").asText() : to.asText());
        Produced<Object, Object> produced = Produced.with(topic.key(), topic.value());
        if (to.has("partition")) {
            produced = produced.withStreamPartitioner(model.partitioner(to.get("partition")));
        }
        stream.to(topic.name(), to.has("name") ? produced.withName(to.get("name").asText()) : produced);
    }

    private TopicNameExtractor<Object, Object> route(JsonNode text) {
        Expr.Node expression = model.expression(text);
        return new TopicNameExtractor<>() {
            @Override
            public String extract(Object key, Object value, RecordContext context) {
                return (String) Model.eval(expression, key, value);
            }

            @Override
            public String toString() {
                return text.asText();
            }
        };
    }
}
