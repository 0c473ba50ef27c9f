import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;

/** Answers questions from stdin, a JSON object by topic, with what Kafka Streams does; one object to stdout. */
public final class Facts {
    static final ObjectMapper JSON = new ObjectMapper().enable(JsonWriteFeature.ESCAPE_NON_ASCII.mappedFeature());

    private Facts() {}

    public static void main(String[] arguments) throws IOException {
        JsonNode asked = JSON.readTree(System.in);
        ObjectNode answers = JSON.createObjectNode();
        answers.set("timers", each(asked.path("timers"), Timers::answer));
        answers.set("decoded", each(asked.path("decoded"), Primitives::decoded));
        answers.set("encoded", each(asked.path("encoded"), Primitives::encoded));
        System.out.println(JSON.writeValueAsString(answers));
    }

    private static ArrayNode each(JsonNode questions, java.util.function.Function<JsonNode, JsonNode> answer) {
        ArrayNode answers = JSON.createArrayNode();
        questions.forEach(question -> answers.add(answer.apply(question)));
        return answers;
    }
}
