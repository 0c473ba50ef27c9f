import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.streams.StreamsConfig;

/** Prints the settings that Kafka Streams, its clients and topics have: who, the name, the default, with tabs between. */
public final class Settings {
    private Settings() {
    }

    public static void main(String[] args) throws IllegalAccessException {
        print("streams", StreamsConfig.configDef());
        print("consumer", ConsumerConfig.configDef());
        print("producer", ProducerConfig.configDef());
        print("admin", AdminClientConfig.configDef());
        for (Field field : TopicConfig.class.getFields()) {
            if (Modifier.isStatic(field.getModifiers()) && field.getName().endsWith("_CONFIG")) {
                System.out.println("topic\t" + field.get(null) + "\t");
            }
        }
    }

    private static void print(String who, ConfigDef definitions) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definitions.configKeys()).values()) {
            System.out.println(who + "\t" + key.name + "\t" + (key.hasDefault() ? key.defaultValue : ""));
        }
    }
}
