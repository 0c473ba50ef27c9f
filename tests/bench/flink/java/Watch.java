import java.io.IOException;
import java.io.Reader;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import javax.management.AttributeNotFoundException;
import javax.management.InstanceNotFoundException;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.flink.configuration.Configuration;

/**
 * Prints `warm RECORDS MILLISECONDS` when the process has read `bench.warm` records, and `end` when its job is done.
 *
 * Of a job that reads so few that it ends before they are seen, the warm-up ends when it begins to read.
 */
final class Watch {
    private static final long LOOK_MS = 10;
    private final Map<ObjectName, Double> read = new HashMap<>();
    private final long warm;
    private final Thread thread;

    Watch(Properties config) {
        warm = Long.parseLong(config.getProperty("bench.warm", "0"));
        thread = new Thread(this::watch, "watch");
        thread.setDaemon(true);
        thread.start();
    }

    static Properties read(Path file) throws IOException {
        Properties config = new Properties();
        try (Reader reader = Files.newBufferedReader(file)) {
            config.load(reader);
        }
        return config;
    }

    /** Those of Flink: all but the properties of the bench itself. */
    static Configuration settings(Properties config) {
        Map<String, String> settings = config.stringPropertyNames().stream()
            .filter(name -> !name.startsWith("bench."))
            .collect(Collectors.toMap(name -> name, config::getProperty));
        return Configuration.fromMap(settings);
    }

    /** Ends the process. */
    void end() throws InterruptedException {
        thread.interrupt();
        thread.join();
        print("end", total(), System.currentTimeMillis());
        // The cluster's threads would take a second to end.
        Runtime.getRuntime().halt(0);
    }

    private void watch() {
        long began = System.currentTimeMillis();
        try {
            while (total() < warm) {
                Thread.sleep(LOOK_MS);
                look();
                began = read.isEmpty() ? System.currentTimeMillis() : began;
            }
            print("warm", total(), System.currentTimeMillis());
        } catch (JMException error) {
            throw new IllegalStateException(error);
        } catch (InterruptedException error) {
            print("warm", 0, began);
        }
    }

    private long total() {
        return (long) read.values().stream().mapToDouble(Double::doubleValue).sum();
    }

    /** Notes how many records each Kafka client has read: a client goes when its source has ended. */
    private void look() throws JMException {
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        ObjectName clients = new ObjectName("kafka.consumer:type=consumer-fetch-manager-metrics,client-id=*");
        for (ObjectName name : server.queryNames(clients, null)) {
            try {
                read.put(name, ((Number) server.getAttribute(name, "records-consumed-total")).doubleValue());
            } catch (InstanceNotFoundException | AttributeNotFoundException error) {
                // It has just gone, or has not read yet.
            }
        }
    }

    private static void print(String what, long read, long time) {
        System.out.println(what + " " + read + " " + time);
        System.out.flush();
    }
}
