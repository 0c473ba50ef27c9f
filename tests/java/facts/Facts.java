import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.net.URISyntaxException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.streams.StreamsConfig;

/**
 * Prints what a version of Kafka Streams has: the kind of a fact, its name and its value, with tabs between.
 * The kinds are "default" and "importance" of settings, "metric", and "topic" for the configuration of internal topics.
 */
public final class Facts {
    private Facts() {
    }

    public static void main(String[] args) throws IllegalAccessException, IOException, URISyntaxException, ClassNotFoundException {
        printSettings("streams", StreamsConfig.configDef());
        printSettings("consumer", ConsumerConfig.configDef());
        printSettings("producer", ProducerConfig.configDef());
        printSettings("admin", AdminClientConfig.configDef());
        for (Field field : TopicConfig.class.getFields()) {
            if (Modifier.isStatic(field.getModifiers()) && field.getName().endsWith("_CONFIG")) {
                print("default", "topic " + field.get(null), "");
            }
        }
        for (Class<?> each : classes()) {
            for (Field field : each.getDeclaredFields()) {
                if (Modifier.isStatic(field.getModifiers())) {
                    printField(each, field);
                }
            }
        }
    }

    private static void printSettings(String who, ConfigDef definitions) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definitions.configKeys()).values()) {
            print("default", who + " " + key.name, String.valueOf(key.hasDefault() ? key.defaultValue : ""));
            print("importance", who + " " + key.name, key.importance.name());
        }
    }

    /** The classes that name metrics, and those with the configurations of internal topics: they are not public. */
    private static List<Class<?>> classes() throws IOException, URISyntaxException, ClassNotFoundException {
        Path path = Path.of(StreamsConfig.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        try (JarFile jar = new JarFile(path.toFile())) {
            List<String> names = jar.stream()
                .map(JarEntry::getName)
                .filter(name -> name.matches(".*/internals/metrics/\\w+Metrics(Impl)?\\.class|.*/internals/\\w+TopicConfig\\.class"))
                .map(name -> name.replace(".class", "").replace('/', '.'))
                .sorted()
                .toList();
            List<Class<?>> found = new ArrayList<>();
            for (String name : names) {
                found.add(Class.forName(name));
            }
            return found;
        }
    }

    private static void printField(Class<?> owner, Field field) throws IllegalAccessException {
        field.setAccessible(true);
        Object value = field.get(null);
        if (value instanceof String && owner.getSimpleName().contains("Metrics") && !field.getName().matches(".*_(DESCRIPTION|FROM_FILE)")) {
            print("metric", owner.getSimpleName() + "." + field.getName(), (String) value);
        } else if (value instanceof Map) {
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                print("topic", owner.getSimpleName() + " " + entry.getKey(), String.valueOf(entry.getValue()));
            }
        }
    }

    private static void print(String kind, String name, String value) {
        System.out.println(kind + "\t" + name + "\t" + value.replaceAll("\\s+", " "));
    }
}
