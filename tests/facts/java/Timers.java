import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;

/**
 * The order in which timers fire. A script is a list of [time, orders]: a record with that time, whose orders are
 * carried out. An order is [name, interval, orders] for a timer that carries out its own orders when it first fires, or
 * a name alone, which cancels that timer. The answer: [name, time] of each firing.
 */
final class Timers extends ContextualProcessor<String, String, String, String> {
    private final JsonNode script;
    private final ArrayNode fired;
    private final Map<String, Cancellable> timers = new HashMap<>();
    private int step;

    private Timers(JsonNode script, ArrayNode fired) {
        this.script = script;
        this.fired = fired;
    }

    static JsonNode answer(JsonNode script) {
        ArrayNode fired = Facts.JSON.createArrayNode();
        Topology topology = new Topology();
        topology.addSource("source", "in");
        topology.addProcessor("timers", () -> new Timers(script, fired), "source");
        Properties config = new Properties();
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        try (TopologyTestDriver driver = new TopologyTestDriver(topology, config, Instant.EPOCH)) {
            var in = driver.createInputTopic("in", new StringSerializer(), new StringSerializer());
            for (JsonNode step : script) {
                in.pipeInput("k", "v", step.get(0).asLong());
            }
        }
        return fired;
    }

    @Override
    public void process(Record<String, String> record) {
        carryOut(script.get(step++).get(1));
    }

    private void carryOut(JsonNode orders) {
        for (JsonNode order : orders) {
            if (order.isTextual()) {
                timers.get(order.asText()).cancel();
            } else {
                schedule(order.get(0).asText(), order.get(1).asLong(), order.get(2));
            }
        }
    }

    private void schedule(String name, long interval, JsonNode orders) {
        boolean[] before = new boolean[1];
        timers.put(name, context().schedule(Duration.ofMillis(interval), PunctuationType.STREAM_TIME, time -> {
            fired.add(Facts.JSON.createArrayNode().add(name).add(time));
            if (!before[0]) {
                before[0] = true;
                carryOut(orders);
            }
        }));
    }
}
