import java.lang.reflect.Field;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.processor.RecordContext;
import org.apache.kafka.streams.processor.internals.InternalProcessorContext;
import org.apache.kafka.streams.processor.internals.ProcessorContextImpl;
import org.apache.kafka.streams.processor.internals.StreamTask;

/**
 * What the task of the driver that runs in this thread knows of the record in it.
 *
 * Functions of the Java DSL are not given it; it is what a processor in their place would find.
 */
final class Here {
    private static final ThreadLocal<Here> CURRENT = new ThreadLocal<>();
    private final TopologyTestDriver driver;
    private long clock;
    private InternalProcessorContext<?, ?> context;

    private Here(TopologyTestDriver driver) {
        this.driver = driver;
    }

    static void begin(TopologyTestDriver driver) {
        CURRENT.set(new Here(driver));
    }

    static void end() {
        CURRENT.remove();
    }

    static void clock(long time) {
        CURRENT.get().clock = time;
    }

    static long clock() {
        return CURRENT.get().clock;
    }

    static RecordContext record() {
        Here here = CURRENT.get();
        if (here.context == null) {
            try {
                Field task = TopologyTestDriver.class.getDeclaredField("task");
                task.setAccessible(true);
                here.context = ((StreamTask) task.get(here.driver)).processorContext();
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException(e);
            }
        }
        return ((ProcessorContextImpl) here.context).recordContext();
    }
}
