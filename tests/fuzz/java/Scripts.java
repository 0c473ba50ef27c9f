import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessingContext;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.AggregationWithHeaders;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.SessionStoreWithHeaders;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.TimestampedKeyValueStoreWithHeaders;
import org.apache.kafka.streams.state.TimestampedWindowStore;
import org.apache.kafka.streams.state.TimestampedWindowStoreWithHeaders;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.ValueTimestampHeaders;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** The processors of fuzz_scripts.py, and the stores that they use. */
@SuppressWarnings("unchecked")
final class Scripts {
    private static final Map<String, List<Object>> KEYS = Map.of(
        "string", List.of("a", "b", "c", "d"),
        "long", List.of(0L, 1L, 2L, 3L),
        "double", List.of(-2.0, -0.0, 0.0, 1.5),
        "json", List.of(true, 1L, 1.0, "a"));

    private Scripts() {}

    /** An entry of the file's `stores`. */
    static StoreBuilder<?> store(Model model, String name, JsonNode node) {
        Serde<Object> key = model.serde(node.path("key"), model.defaultKey);
        Serde<Object> value = model.serde(node.path("value"), model.defaultValue);
        boolean persistent = node.path("persistent").asBoolean(true);
        StoreBuilder<?> store = switch (node.get("type").asText()) {
            case "key_value" -> Stores.keyValueStoreBuilder(
                persistent ? Stores.persistentKeyValueStore(name) : Stores.inMemoryKeyValueStore(name), key, value);
            case "window" -> {
                Duration retention = Data.duration(node.get("retention"));
                Duration size = Data.duration(node.get("window_size"));
                yield Stores.windowStoreBuilder(
                    persistent ? Stores.persistentWindowStore(name, retention, size, false) : Stores.inMemoryWindowStore(name, retention, size, false),
                    key, value);
            }
            case "session" -> {
                Duration retention = Data.duration(node.get("retention"));
                yield Stores.sessionStoreBuilder(
                    persistent ? Stores.persistentSessionStore(name, retention) : Stores.inMemorySessionStore(name, retention), key, value);
            }
            default -> Stores.versionedKeyValueStoreBuilder(
                Stores.persistentVersionedKeyValueStore(name, Data.duration(node.get("history"))), key, value);
        };
        if (node.path("caching").asBoolean(false)) {
            store = store.withCachingEnabled();
        }
        return node.path("logging").asBoolean(true) ? store : store.withLoggingDisabled();
    }

    static Processor<Object, Object, Object, Object> processor(String call) {
        Script script = new Script(call);
        return new Processor<>() {
            private ProcessorContext<Object, Object> context;
            private Record<Object, Object> last;

            @Override
            public void init(ProcessorContext<Object, Object> context) {
                this.context = context;
                script.init(context, new Forward() {
                    @Override
                    public void value(Object value, long time) {
                        context.forward(last.withValue(value).withTimestamp(time));
                    }

                    @Override
                    public void child(String name, Object value, long time) {
                        context.forward(last.withValue(value).withTimestamp(time), name);
                    }

                    @Override
                    public void key(Object key, Object value) {
                        context.forward(last.withKey(key).withValue(value));
                    }
                });
            }

            @Override
            public void process(Record<Object, Object> record) {
                last = record;
                script.process(record.key(), record.timestamp());
            }
        };
    }

    static FixedKeyProcessor<Object, Object, Object> values(String call) {
        Script script = new Script(call);
        return new FixedKeyProcessor<>() {
            private FixedKeyRecord<Object, Object> last;

            @Override
            public void init(FixedKeyProcessorContext<Object, Object> context) {
                script.init(context, new Forward() {
                    @Override
                    public void value(Object value, long time) {
                        context.forward(last.withValue(value).withTimestamp(time));
                    }

                    @Override
                    public void child(String name, Object value, long time) {
                        context.forward(last.withValue(value).withTimestamp(time), name);
                    }

                    @Override
                    public void key(Object key, Object value) {
                        throw new IllegalStateException("the key is fixed");
                    }
                });
            }

            @Override
            public void process(FixedKeyRecord<Object, Object> record) {
                last = record;
                script.process(record.key(), record.timestamp());
            }
        };
    }

    /** What keeps a global store: a row for each record, or `K__STORE`, which deletes where the time is odd. */
    static ProcessorSupplier<Object, Object, Void, Void> keeper(String name, boolean odd) {
        return () -> new ContextualProcessor<>() {
            @Override
            public void process(Record<Object, Object> record) {
                KeyValueStore<Object, Object> rows = context().getStateStore(name);
                if (record.key() != null) {
                    rows.put(record.key(), odd && (record.timestamp() & 1) == 1 ? null : record.value());
                }
            }
        };
    }

    /** Whether this version of Kafka Streams has stores with headers. */
    private static final boolean HEADERS = hasHeaders();

    private static boolean hasHeaders() {
        try {
            Class.forName("org.apache.kafka.streams.state.AggregationWithHeaders");
            return true;
        } catch (ClassNotFoundException e) {
            return false;
        }
    }

    private interface Forward {
        void child(String name, Object value, long time);

        void value(Object value, long time);

        void key(Object key, Object value);
    }

    private static final class Script {
        private final String storeName;
        private final List<Object> keys;
        private final long unit;
        private final List<String[]> operations = new ArrayList<>();
        private final List<String[]> steps = new ArrayList<>();
        private ProcessingContext context;
        private Forward forward;
        private StateStore store;
        private boolean seen;
        private long lastTime;
        private long count;

        Script(String call) {
            String[] parts = call.substring(call.indexOf(":") + 1).split("__");
            storeName = parts[1].replace("_", "-");
            keys = KEYS.get(parts[2]);
            unit = Long.parseLong(parts[3]);
            Arrays.stream(parts).skip(4).forEach(operation -> operations.add(operation.split("_")));
        }

        void init(ProcessingContext context, Forward forward) {
            this.context = context;
            this.forward = forward;
            store = storeName.equals("none") ? null : context.getStateStore(storeName);
            for (int i = 0; i < operations.size(); i++) {
                String[] operation = operations.get(i);
                if (operation[0].equals("ts") || operation[0].equals("tw")) {
                    timer(i, Long.parseLong(operation[1]), operation[0].equals("ts"), operation[2]);
                } else {
                    steps.add(operation);
                }
            }
        }

        private void timer(long label, long units, boolean stream, String action) {
            Cancellable[] timer = new Cancellable[1];
            timer[0] = context.schedule(
                Duration.ofMillis(units * unit), stream ? PunctuationType.STREAM_TIME : PunctuationType.WALL_CLOCK_TIME, time -> {
                    if (action.equals("c")) {
                        timer[0].cancel();
                    }
                    List<Object> value = new ArrayList<>(Arrays.asList(label, time));
                    if (action.equals("r")) {
                        value.addAll(run(keys.get(0), time));
                    }
                    if (seen) {
                        forward.value(value, time);
                    }
                });
        }

        void process(Object key, long time) {
            seen = true;
            lastTime = time;
            if (key == null) {
                forward.value(List.of("no key"), time);
                return;
            }
            count++;
            forward.value(run(key, time), time);
        }

        private List<Object> run(Object key, long time) {
            List<Object> found = new ArrayList<>();
            for (String[] step : steps) {
                int[] numbers = Arrays.stream(step).skip(1).mapToInt(Integer::parseInt).toArray();
                found.add(step[0].startsWith("w") && !step[0].equals("where") ? window(step[0], key, time, numbers)
                    : step[0].startsWith("s") && !step[0].equals("spawn") ? session(step[0], key, time, numbers)
                    : step[0].startsWith("v") ? versioned(step[0], key, time, numbers)
                    : plain(step[0], key, time, numbers));
            }
            return found;
        }

        private long before(long time, int units) {
            return Math.max(0, time - units * unit);
        }

        private Object bound(int at) {
            return at == 9 ? null : keys.get(at);
        }

        /** What is put: the stores of tables hold times too, and with dsl.store.format headers; those of processors don't. */
        private Object row(long time) {
            if (HEADERS && (store instanceof TimestampedKeyValueStoreWithHeaders<?, ?> || store instanceof TimestampedWindowStoreWithHeaders<?, ?>)) {
                return ValueTimestampHeaders.make((Object) count, time, new RecordHeaders());
            }
            boolean stamped = store instanceof TimestampedKeyValueStore<?, ?> || store instanceof TimestampedWindowStore<?, ?>;
            return stamped ? (Object) ValueAndTimestamp.make((Object) count, time) : (Object) count;
        }

        /** What is put into a store of sessions. */
        private Object aggregate() {
            return HEADERS && store instanceof SessionStoreWithHeaders<?, ?>
                ? AggregationWithHeaders.make((Object) count, new RecordHeaders()) : (Object) count;
        }

        private static Object unwrapped(Object value) {
            if (HEADERS && value instanceof ValueTimestampHeaders<?> row) {
                return row.value();
            }
            if (HEADERS && value instanceof AggregationWithHeaders<?> row) {
                return row.aggregation();
            }
            return value instanceof ValueAndTimestamp<?> stamped ? stamped.value() : value;
        }

        /** Nothing is handed on before the first record: timers may come first. */
        private void forward(String word, long time, int[] numbers) {
            if (!seen) {
                return;
            }
            switch (word) {
                case "later" -> forward.value(List.of("later"), lastTime + 1);
                case "to" -> forward.child("kid" + numbers[0], List.of("to", (long) numbers[0]), time);
                default -> forward.key(keys.get(numbers[0]), List.of("rekey"));
            }
        }

        private Object plain(String word, Object key, long time, int[] numbers) {
            KeyValueStore<Object, Object> rows = store instanceof KeyValueStore<?, ?> ? (KeyValueStore<Object, Object>) store : null;
            switch (word) {
                case "where" -> {
                    var record = context.recordMetadata().orElseThrow();
                    return Arrays.asList(record.topic(), (long) record.partition(), record.offset(), context.currentStreamTimeMs(), context.currentSystemTimeMs());
                }
                case "commit" -> context.commit();
                case "later", "to", "rekey" -> forward(word, time, numbers);
                case "spawn" -> {
                    if (count <= 3) {
                        timer(100 + count, numbers[0], true, "n");
                    }
                }
                case "get" -> {
                    return unwrapped(rows.get(key));
                }
                case "put" -> rows.put(key, row(time));
                case "clear" -> rows.put(key, null);
                case "absent" -> {
                    return unwrapped(rows.putIfAbsent(key, row(time)));
                }
                case "delete" -> {
                    return unwrapped(rows.delete(key));
                }
                case "range" -> {
                    return rows(numbers[2] == 1
                        ? rows.reverseRange(bound(numbers[0]), bound(numbers[1])) : rows.range(bound(numbers[0]), bound(numbers[1])));
                }
                case "prefix" -> {
                    return rows(rows.prefixScan((String) keys.get(numbers[0]), new org.apache.kafka.common.serialization.StringSerializer()));
                }
                case "all" -> {
                    if (store instanceof WindowStore<?, ?> windows) {
                        return rows(numbers[0] == 1 ? ((WindowStore<Object, Object>) windows).backwardAll() : ((WindowStore<Object, Object>) windows).all());
                    }
                    return rows(numbers[0] == 1 ? rows.reverseAll() : rows.all());
                }
                default -> throw new IllegalArgumentException(word);
            }
            return null;
        }

        private static List<Object> rows(KeyValueIterator<?, ?> found) {
            List<Object> rows = new ArrayList<>();
            try (found) {
                while (found.hasNext()) {
                    KeyValue<?, ?> row = found.next();
                    rows.add(row.key instanceof Windowed<?> key
                        ? Arrays.asList(key.key(), key.window().start(), key.window().end(), unwrapped(row.value))
                        : Arrays.asList(row.key, unwrapped(row.value)));
                }
            }
            return rows;
        }

        private Object window(String word, Object key, long time, int[] numbers) {
            WindowStore<Object, Object> windows = (WindowStore<Object, Object>) store;
            long from = before(time, numbers[0]);
            switch (word) {
                case "wput" -> windows.put(key, row(time), from);
                case "wclear" -> windows.put(key, null, from);
                case "wget" -> {
                    return unwrapped(windows.fetch(key, from));
                }
                case "wfetch" -> {
                    List<Object> rows = new ArrayList<>();
                    try (WindowStoreIterator<Object> found = numbers[1] == 1 ? windows.backwardFetch(key, from, time) : windows.fetch(key, from, time)) {
                        found.forEachRemaining(row -> rows.add(Arrays.asList(row.key, unwrapped(row.value))));
                    }
                    return rows;
                }
                case "wfetchall" -> {
                    return rows(numbers[1] == 1 ? windows.backwardFetchAll(from, time) : windows.fetchAll(from, time));
                }
                default -> throw new IllegalArgumentException(word);
            }
            return null;
        }

        private Object session(String word, Object key, long time, int[] numbers) {
            SessionStore<Object, Object> sessions = (SessionStore<Object, Object>) store;
            switch (word) {
                case "sput" -> sessions.put(new Windowed<>(key, new SessionWindow(before(time, numbers[0]), time)), aggregate());
                case "sclear" -> sessions.put(new Windowed<>(key, new SessionWindow(before(time, numbers[0]), time)), null);
                case "sremove" -> sessions.remove(new Windowed<>(key, new SessionWindow(before(time, numbers[0]), time)));
                case "sfetch" -> {
                    return rows(numbers[0] == 1 ? sessions.backwardFetch(key) : sessions.fetch(key));
                }
                case "sfind" -> {
                    long from = before(time, numbers[0]);
                    return rows(numbers[1] == 1 ? sessions.backwardFindSessions(key, from, time) : sessions.findSessions(key, from, time));
                }
                default -> throw new IllegalArgumentException(word);
            }
            return null;
        }

        private Object versioned(String word, Object key, long time, int[] numbers) {
            VersionedKeyValueStore<Object, Object> versions = (VersionedKeyValueStore<Object, Object>) store;
            return switch (word) {
                case "vput" -> versions.put(key, count, before(time, numbers[0]));
                case "vclear" -> versions.put(key, null, before(time, numbers[0]));
                case "vdelete" -> version(versions.delete(key, before(time, numbers[0])));
                case "vget" -> version(versions.get(key));
                case "vasof" -> version(versions.get(key, before(time, numbers[0])));
                default -> throw new IllegalArgumentException(word);
            };
        }

        private static Object version(VersionedRecord<Object> found) {
            return found == null ? null : Arrays.asList(found.value(), found.timestamp());
        }
    }
}
