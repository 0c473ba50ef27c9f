import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.HexFormat;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** What the serdes of Kafka's Serdes make of bytes and of values; null where they fail. */
final class Primitives {
    private static final Map<String, Serde<?>> SERDES = Map.of(
        "string", Serdes.String(), "boolean", Serdes.Boolean(), "short", Serdes.Short(), "integer", Serdes.Integer(),
        "long", Serdes.Long(), "float", Serdes.Float(), "double", Serdes.Double(), "uuid", Serdes.UUID(), "void", Serdes.Void());

    private Primitives() {}

    /** [serde, bytes in hex] to [the value as text, of a number that is not whole as a double in hex, its bytes when it is written again]. */
    static JsonNode decoded(JsonNode question) {
        Serde<Object> serde = serde(question);
        try {
            Object value = serde.deserializer().deserialize("topic", HexFormat.of().parseHex(question.get(1).asText()));
            ArrayNode answer = Facts.JSON.createArrayNode();
            return answer.add(shown(value)).add(HexFormat.of().formatHex(serde.serializer().serialize("topic", value)));
        } catch (RuntimeException e) {
            return null;
        }
    }

    private static String shown(Object value) {
        return value instanceof Float || value instanceof Double
            ? "%016x".formatted(Double.doubleToLongBits(((Number) value).doubleValue())) : value.toString();
    }

    /** [serde, the value as text, for strings in UTF-16 units as hex] to its bytes in hex. */
    static JsonNode encoded(JsonNode question) {
        try {
            Object value = parsed(question.get(0).asText(), question.get(1).asText());
            byte[] bytes = serde(question).serializer().serialize("topic", value);
            return Facts.JSON.getNodeFactory().textNode(HexFormat.of().formatHex(bytes));
        } catch (RuntimeException e) {
            return null;
        }
    }

    @SuppressWarnings("unchecked")
    private static Serde<Object> serde(JsonNode question) {
        return (Serde<Object>) SERDES.get(question.get(0).asText());
    }

    private static Object parsed(String serde, String text) {
        return switch (serde) {
            case "string" -> units(HexFormat.of().parseHex(text));
            case "boolean" -> Boolean.valueOf(text);
            case "short" -> Short.valueOf(text);
            case "integer" -> Integer.valueOf(text);
            case "long" -> Long.valueOf(text);
            case "float" -> Float.valueOf(text);
            case "double" -> Double.valueOf(text);
            case "uuid" -> UUID.fromString(text);
            default -> throw new IllegalArgumentException(serde);
        };
    }

    private static String units(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (int at = 0; at < bytes.length; at += 2) {
            text.append((char) ((bytes[at] & 0xff) << 8 | bytes[at + 1] & 0xff));
        }
        return text.toString();
    }
}
