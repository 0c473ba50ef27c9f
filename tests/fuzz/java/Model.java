import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.processor.StreamPartitioner;

/** A topology file: its topics with their serdes, and its compiled expressions. */
final class Model {
    /** An entry of `topics`. */
    record Topic(String name, Serde<Object> key, Serde<Object> value, JsonNode timestamp) {}

    /** A step or source: its name, its options and what stands where the options have a main argument. */
    record Options(String step, JsonNode node, JsonNode main) {
        /** The option, or the main argument where the step was written in short form; missing if absent or null. */
        JsonNode main(String option) {
            return main.isMissingNode() ? get(option) : main;
        }

        JsonNode get(String option) {
            JsonNode found = node.path(option);
            return found.isNull() ? JsonNodeFactory.instance.missingNode() : found;
        }

        String name() {
            return get("name").isMissingNode() ? null : get("name").asText();
        }

        Named named() {
            return name() == null ? null : Named.as(name());
        }
    }

    final JsonNode yaml;
    final Serde<Object> defaultKey;
    final Serde<Object> defaultValue;
    private final Map<String, Topic> topics = new LinkedHashMap<>();
    private final Map<String, Expr.Function> functions = new HashMap<>();

    Model(JsonNode yaml) {
        this.yaml = yaml;
        JsonNode defaults = yaml.path("defaults");
        defaultKey = Data.serde(defaults.path("key").isMissingNode() ? JsonNodeFactory.instance.textNode("string") : defaults.get("key"));
        defaultValue = Data.serde(defaults.path("value").isMissingNode() ? JsonNodeFactory.instance.textNode("json") : defaults.get("value"));
        yaml.path("topics").properties().forEach(entry -> {
            JsonNode topic = entry.getValue();
            topics.put(entry.getKey(), new Topic(
                topic.path("topic").asText(entry.getKey()),
                serde(topic.path("key"), defaultKey),
                serde(topic.path("value"), defaultValue),
                topic.path("timestamp")));
        });
        yaml.path("functions").properties().forEach(entry -> {
            List<String> params = new ArrayList<>();
            entry.getValue().path("params").forEach(param -> params.add(param.asText()));
            functions.put(entry.getKey(), new Expr.Function(params, Expr.compile(entry.getValue().path("expr").asText(), functions)));
        });
    }

    Serde<Object> serde(JsonNode node, Serde<Object> absent) {
        return node.isMissingNode() || node.isNull() ? absent : Data.serde(node);
    }

    Topic topic(String entry) {
        Topic found = topics.get(entry);
        if (found == null) {
            throw new IllegalArgumentException("no topic " + entry);
        }
        return found;
    }

    /** The topic of a physical name, or null. */
    Topic physical(String name) {
        return topics.values().stream().filter(topic -> topic.name.equals(name)).findFirst().orElse(null);
    }

    Expr.Node expression(JsonNode node) {
        if (node.isBoolean()) {
            boolean value = node.booleanValue();
            return env -> value;
        }
        if (node.isNumber()) {
            Object value = node.isIntegralNumber() ? (Object) node.longValue() : (Object) node.doubleValue();
            return env -> value;
        }
        if (node.has("call")) {
            return Processors.function(node.get("call").asText());
        }
        if (!node.isTextual()) {
            throw new IllegalArgumentException("not an expression: " + node);
        }
        return Expr.compile(node.asText(), functions);
    }

    /** The partition that an expression gives; a joined table's value is never asked for. */
    <V> StreamPartitioner<Object, V> partitioner(JsonNode node) {
        if (node.isMissingNode()) {
            return null;
        }
        Expr.Node partition = expression(node);
        return (topic, key, value, partitions) -> {
            Object given = partition.eval(env("key", key, "value", value, "partitions", (long) partitions));
            if (given == null) {
                return Optional.empty();
            }
            Set<Integer> numbers = new TreeSet<>();
            for (Object number : given instanceof List<?> list ? list : List.of(given)) {
                numbers.add(((Long) number).intValue());
            }
            return Optional.of(numbers);
        };
    }

    /** A step as a name, as `name: argument` or as `name: {options}`. */
    static Options step(JsonNode step) {
        JsonNode missing = JsonNodeFactory.instance.missingNode();
        if (step.isTextual()) {
            return new Options(step.asText(), missing, missing);
        }
        Map.Entry<String, JsonNode> entry = step.properties().iterator().next();
        JsonNode body = entry.getValue();
        if (body.isNull()) {
            return new Options(entry.getKey(), missing, missing);
        }
        return body.isObject() ? new Options(entry.getKey(), body, missing) : new Options(entry.getKey(), missing, body);
    }

    static Map<String, Object> env(Object... namesAndValues) {
        Map<String, Object> env = new HashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            env.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return env;
    }

    static Object eval(Expr.Node node, Object key, Object value) {
        return node.eval(env("key", key, "value", value));
    }
}
