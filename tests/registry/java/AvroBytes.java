import io.apicurio.registry.serde.avro.AvroKafkaDeserializer;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;

/**
 * Avro in Confluent's framing through a registry, by Java's serdes.
 *
 * <p>`read REGISTRY TOPIC`: lines of hex on stdin become JSON on stdout; `write REGISTRY TOPIC SCHEMA`: Avro's JSON becomes hex.
 */
public final class AvroBytes {
  private AvroBytes() {}

  public static void main(String[] arguments) throws Exception {
    Map<String, Object> settings =
        Map.of(
            "apicurio.registry.url", arguments[1],
            "apicurio.registry.as-confluent", true,
            "apicurio.registry.use-id", "contentId",
            "apicurio.registry.headers.enabled", false,
            "apicurio.registry.auto-register", true);
    String topic = arguments[2];
    var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    List<String> lines = input.lines().toList();
    if (arguments[0].equals("read")) {
      try (var deserializer = new AvroKafkaDeserializer<GenericRecord>()) {
        deserializer.configure(settings, false);
        for (String line : lines) {
          System.out.println(deserializer.deserialize(topic, HexFormat.of().parseHex(line)));
        }
      }
      return;
    }
    Schema schema = new Schema.Parser().parse(Files.readString(Path.of(arguments[3])));
    var reader = new GenericDatumReader<GenericRecord>(schema);
    try (var serializer = new AvroKafkaSerializer<GenericRecord>()) {
      serializer.configure(settings, false);
      for (String line : lines) {
        GenericRecord record = reader.read(null, DecoderFactory.get().jsonDecoder(schema, line));
        System.out.println(HexFormat.of().formatHex(serializer.serialize(topic, record)));
      }
    }
  }
}
