import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.ValueTransformerWithKey;
import org.apache.kafka.streams.kstream.ValueTransformerWithKeySupplier;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;

/** The callables of fuzz_functions.py. */
final class Processors {
    private Processors() {}

    /** A callable in the place of an expression. */
    static Expr.Node function(String call) {
        return switch (call) {
            case "fuzz_functions:odd" -> env -> Python.str(env.get("value")).length() % 2 == 1;
            case "fuzz_functions:text" -> env -> Python.slice(Python.str(env.get("value")), null, 4L);
            case "fuzz_functions:letter" -> env -> Python.slice(Python.str(env.get("value")), null, 1L);
            case "fuzz_functions:last" -> env -> env.get("value");
            case "fuzz_functions:one_more" -> env -> env.get("aggregate") == null ? 1L : (Long) env.get("aggregate") + 1;
            case "fuzz_functions:right_one" -> env -> env.get("right");
            case "fuzz_functions:pair", "fuzz_functions:two" -> env -> new ArrayList<Object>(Arrays.asList(env.get("left"), env.get("right")));
            default -> throw new IllegalArgumentException("no callable " + call);
        };
    }

    static ProcessorSupplier<Object, Object, Object, Object> supplier(String call) {
        if (call.startsWith("fuzz_scripts:")) {
            return () -> Scripts.processor(call);
        }
        return switch (call) {
            case "fuzz_functions:twice" -> () -> new ContextualProcessor<Object, Object, Object, Object>() {
                @Override
                public void process(Record<Object, Object> record) {
                    context().forward(record);
                    context().forward(record.withTimestamp(record.timestamp() + 1));
                }
            };
            case "fuzz_functions:Seen" -> Seen::new;
            case "fuzz_functions:Tick" -> Tick::new;
            default -> throw new IllegalArgumentException("no callable " + call);
        };
    }

    /** Those of process_values: scripts, and `again`. */
    static FixedKeyProcessorSupplier<Object, Object, Object> values(String call) {
        if (call.startsWith("fuzz_scripts:")) {
            return () -> Scripts.values(call);
        }
        return () -> new ContextualFixedKeyProcessor<Object, Object, Object>() {
            @Override
            public void process(FixedKeyRecord<Object, Object> record) {
                context().forward(record);
                context().forward(record);
            }
        };
    }

    /** `marked`, for tables. */
    static ValueTransformerWithKeySupplier<Object, Object, Object> transformer(String call) {
        return () -> new ValueTransformerWithKey<>() {
            private org.apache.kafka.streams.processor.ProcessorContext context;

            @Override
            public void init(org.apache.kafka.streams.processor.ProcessorContext context) {
                this.context = context;
            }

            @Override
            public Object transform(Object key, Object value) {
                if (value == null) {
                    return (context.timestamp() & 1) == 1 ? "gone" : null;
                }
                return context.timestamp() + (context.topic() == null ? " True " : " False ") + context.offset();
            }

            @Override
            public void close() {}
        };
    }

    private static final class Seen extends ContextualProcessor<Object, Object, Object, Object> {
        private KeyValueStore<String, Long> seen;
        private Record<Object, Object> last;

        @Override
        public void init(ProcessorContext<Object, Object> context) {
            super.init(context);
            seen = context.getStateStore("seen");
            context.schedule(Duration.ofMillis(50), PunctuationType.STREAM_TIME, this::expire);
        }

        @Override
        public void process(Record<Object, Object> record) {
            last = record;
            String key = record.key() == null || record.key().equals("") ? "none" : (String) record.key();
            Long count = seen.get(key);
            seen.put(key, count == null ? 1 : count + 1);
            context().forward(record.withValue(seen.get(key)));
        }

        private void expire(long timestamp) {
            List<KeyValue<String, Long>> rows = new ArrayList<>();
            try (KeyValueIterator<String, Long> all = seen.all()) {
                all.forEachRemaining(rows::add);
            }
            for (KeyValue<String, Long> row : rows) {
                seen.delete(row.key);
                context().forward(last.withKey((Object) row.key).withValue((Object) (-row.value)).withTimestamp(timestamp));
            }
        }
    }

    private static final class Tick extends ContextualProcessor<Object, Object, Object, Object> {
        private Record<Object, Object> last;

        @Override
        public void init(ProcessorContext<Object, Object> context) {
            super.init(context);
            context.schedule(Duration.ofSeconds(10), PunctuationType.WALL_CLOCK_TIME, this::tick);
        }

        @Override
        public void process(Record<Object, Object> record) {
            last = record;
            context().forward(record);
        }

        private void tick(long timestamp) {
            if (last != null) {
                context().forward(last.withTimestamp(timestamp));
            }
        }
    }
}
