import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.dataformat.yaml.YAMLFactory;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.UUID;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/** Serdes, JSON and durations over plain data: null, Boolean, Long, Double, String, Bytes, List, Map and Windowed. */
final class Data {
    static final ObjectMapper JSON = new ObjectMapper().enable(DeserializationFeature.USE_LONG_FOR_INTS);
    static final ObjectMapper YAML = new ObjectMapper(new YAMLFactory());

    private Data() {}

    static Serde<Object> serde(JsonNode node) {
        if (node.has("windowed")) {
            return any(new WindowedSerdes.TimeWindowedSerde<>(serde(node.get("windowed")), duration(node.get("size")).toMillis()));
        }
        if (node.has("session_windowed")) {
            return any(new WindowedSerdes.SessionWindowedSerde<>(serde(node.get("session_windowed"))));
        }
        return switch (node.asText()) {
            case "string" -> any(Serdes.String());
            case "long" -> any(Serdes.Long());
            case "integer" -> converting(Serdes.Integer(), value -> ((Long) value).intValue(), Integer::longValue);
            case "double" -> any(Serdes.Double());
            case "boolean" -> any(Serdes.Boolean());
            case "short" -> converting(Serdes.Short(), value -> ((Long) value).shortValue(), Short::longValue);
            case "float" -> converting(Serdes.Float(), value -> ((Double) value).floatValue(), Float::doubleValue);
            case "uuid" -> converting(Serdes.UUID(), value -> UUID.fromString((String) value), UUID::toString);
            case "bytes" -> any(Serdes.Bytes());
            case "void" -> any(Serdes.Void());
            case "json" -> new Json();
            default -> throw new IllegalArgumentException("serde " + node);
        };
    }

    @SuppressWarnings("unchecked")
    static Serde<Object> any(Serde<?> serde) {
        return (Serde<Object>) serde;
    }

    private static <T> Serde<Object> converting(Serde<T> inner, Function<Object, T> to, Function<T, Object> from) {
        return Serdes.serdeFrom(
            (topic, value) -> value == null ? null : inner.serializer().serialize(topic, to.apply(value)),
            (topic, bytes) -> bytes == null ? null : from.apply(inner.deserializer().deserialize(topic, bytes)));
    }

    /** Compact UTF-8 JSON. */
    public static final class Json implements Serde<Object> {
        @Override
        public Serializer<Object> serializer() {
            return (topic, value) -> value == null ? null : text(value).getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public Deserializer<Object> deserializer() {
            return (topic, bytes) -> bytes == null ? null : parse(new String(bytes, StandardCharsets.UTF_8));
        }
    }

    /**
     * The default serde of the Java program: it carries any plain data behind a tag.
     *
     * The language keeps serdes where the Java DSL forgets them; with this one Java can go on there without an
     * argument that would change a name. The bytes order as those of the plain serdes do.
     */
    public static final class Tagged implements Serde<Object> {
        @Override
        public Serializer<Object> serializer() {
            return (topic, value) -> {
                if (value == null) {
                    return null;
                }
                if (value instanceof String text) {
                    return tagged('s', text.getBytes(StandardCharsets.UTF_8));
                }
                if (value instanceof Double fraction) {
                    return tagged('d', Serdes.Double().serializer().serialize(topic, fraction));
                }
                if (value instanceof Bytes bytes) {
                    return tagged('b', bytes.get());
                }
                return value instanceof Long number
                    ? tagged('l', Serdes.Long().serializer().serialize(topic, number))
                    : tagged('j', text(value).getBytes(StandardCharsets.UTF_8));
            };
        }

        @Override
        public Deserializer<Object> deserializer() {
            return (topic, bytes) -> {
                if (bytes == null) {
                    return null;
                }
                byte[] rest = Arrays.copyOfRange(bytes, 1, bytes.length);
                return switch (bytes[0]) {
                    case 's' -> new String(rest, StandardCharsets.UTF_8);
                    case 'd' -> Serdes.Double().deserializer().deserialize(topic, rest);
                    case 'b' -> Bytes.wrap(rest);
                    case 'l' -> Serdes.Long().deserializer().deserialize(topic, rest);
                    default -> parse(new String(rest, StandardCharsets.UTF_8));
                };
            };
        }

        private static byte[] tagged(char tag, byte[] rest) {
            byte[] all = new byte[rest.length + 1];
            all[0] = (byte) tag;
            System.arraycopy(rest, 0, all, 1, rest.length);
            return all;
        }
    }

    static Duration duration(JsonNode node) {
        String text = node.asText();
        if (text.startsWith("-")) {
            return duration(JSON.getNodeFactory().textNode(text.substring(1))).negated();
        }
        if (node.isNumber() || text.matches("[0-9]+")) {
            return Duration.ofMillis(Long.parseLong(text));
        }
        if (text.startsWith("P")) {
            return Duration.parse(text);
        }
        return text.endsWith("ms")
            ? Duration.ofMillis(Long.parseLong(text.substring(0, text.length() - 2)))
            : Duration.parse((text.endsWith("d") ? "P" : "PT") + text.toUpperCase());
    }

    static String text(Object value) {
        try {
            return JSON.writeValueAsString(value);
        } catch (JsonProcessingException e) {
            throw new IllegalArgumentException(e);
        }
    }

    static Object parse(String text) {
        try {
            return JSON.readValue(text, Object.class);
        } catch (JsonProcessingException e) {
            throw new IllegalArgumentException(text, e);
        }
    }

    /** What stands for bytes in JSON. */
    static final String BASE64 = "base64";

    /** The JSON form of a key or value. */
    static Object plain(Object value) {
        if (value instanceof Bytes bytes) {
            return Map.of(BASE64, Base64.getEncoder().encodeToString(bytes.get()));
        }
        if (!(value instanceof Windowed<?> windowed)) {
            return value;
        }
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("key", plain(windowed.key()));
        row.put("start", windowed.window().start());
        row.put("end", windowed.window().end());
        return row;
    }
}
