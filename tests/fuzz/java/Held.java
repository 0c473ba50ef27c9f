import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.processor.internals.StreamTask;

/**
 * Feeds a test driver without the commit that it makes after each record, so that caches hold records back until they
 * are full or the wall clock is advanced.
 */
final class Held {
    private final TopologyTestDriver driver;
    private final StreamTask task;

    Held(TopologyTestDriver driver) {
        this.driver = driver;
        try {
            Field field = TopologyTestDriver.class.getDeclaredField("task");
            field.setAccessible(true);
            task = (StreamTask) field.get(driver);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    void pipe(String topic, long timestamp, byte[] key, byte[] value, Headers headers, long clock) {
        Object partition = call("getInputTopicOrPatternPartition", new Class<?>[] {String.class}, topic);
        Class<?>[] types = {String.class, TopicPartition.class, long.class, byte[].class, byte[].class, Headers.class};
        call("enqueueTaskRecord", types, topic, partition, timestamp, key, value, headers);
        task.resumePollingForPartitionsWithAvailableSpace();
        task.updateLags();
        while (task.hasRecordsQueued() && task.isProcessable(clock)) {
            task.process(clock);
            task.maybePunctuateStreamTime();
            call("captureOutputsAndReEnqueueInternalResults", new Class<?>[0]);
        }
    }

    private Object call(String name, Class<?>[] types, Object... arguments) {
        try {
            Method method = TopologyTestDriver.class.getDeclaredMethod(name, types);
            method.setAccessible(true);
            return method.invoke(driver, arguments);
        } catch (InvocationTargetException e) {
            throw e.getCause() instanceof RuntimeException cause ? cause : new IllegalStateException(e);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }
}
