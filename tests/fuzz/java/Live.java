import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;

/** Runs one topology file on a real broker until stdin ends: `Live FILE STATE_DIR`; its `config` is that of the file. */
public final class Live {
    private Live() {}

    public static void main(String[] args) throws IOException {
        Model model = new Model(Data.YAML.readTree(Path.of(args[0]).toFile()));
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, model.yaml.path("application").asText());
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Data.Tagged.class.getName());
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Data.Tagged.class.getName());
        model.yaml.path("config").properties().forEach(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        config.put(StreamsConfig.STATE_DIR_CONFIG, args[1]);
        Builder builder = new Builder(model);
        builder.build();
        try (KafkaStreams streams = new KafkaStreams(builder.dsl.build(config), config)) {
            streams.start();
            while (System.in.read() >= 0) {
                // Only its end matters.
            }
            streams.close(Duration.ofSeconds(30));
        }
    }
}
