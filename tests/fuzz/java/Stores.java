import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.internals.RocksDbWindowBytesStoreSupplier;

/** The `store` option as a Materialized; without it only serdes are given. */
final class Stores {
    private final JsonNode node;

    Stores(JsonNode node) {
        this.node = node;
    }

    boolean given() {
        return !node.isMissingNode() && !node.isNull();
    }

    /** Null where the store has no name. */
    String name() {
        return node.isObject() ? node.path("name").asText(null) : node.asText();
    }

    boolean inMemory() {
        return node.path("type").asText().equals("in_memory") || !node.path("persistent").asBoolean(true);
    }

    /** A supplier of one side of a join, for windows of this size and grace in milliseconds. */
    WindowBytesStoreSupplier supplier(long size, long grace) {
        Duration retention = Duration.ofMillis(size + grace);
        if (inMemory()) {
            return org.apache.kafka.streams.state.Stores.inMemoryWindowStore(name(), retention, Duration.ofMillis(size), true);
        }
        if (node.has("segment_interval")) {
            return new RocksDbWindowBytesStoreSupplier(name(), size + grace, Data.duration(node.get("segment_interval")).toMillis(), size, true,
                RocksDbWindowBytesStoreSupplier.WindowStoreTypes.DEFAULT_WINDOW_STORE);
        }
        return org.apache.kafka.streams.state.Stores.persistentWindowStore(name(), retention, Duration.ofMillis(size), true);
    }

    Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> keyValue(Serde<Object> key, Serde<Object> value) {
        if (!given()) {
            return Materialized.with(key, value);
        }
        if (node.has("versioned")) {
            Duration history = Data.duration(node.get("versioned"));
            return options(Materialized.<Object, Object>as(node.has("segment_interval")
                ? org.apache.kafka.streams.state.Stores.persistentVersionedKeyValueStore(name(), history, Data.duration(node.get("segment_interval")))
                : org.apache.kafka.streams.state.Stores.persistentVersionedKeyValueStore(name(), history)), key, value);
        }
        return options(start(), key, value);
    }

    private <S extends org.apache.kafka.streams.processor.StateStore> Materialized<Object, Object, S> start() {
        return name() == null ? Materialized.with(null, null) : Materialized.as(name());
    }

    Materialized<Object, Object, WindowStore<Bytes, byte[]>> window(Serde<Object> key, Serde<Object> value) {
        return given() ? options(start(), key, value) : Materialized.with(key, value);
    }

    Materialized<Object, Object, SessionStore<Bytes, byte[]>> session(Serde<Object> key, Serde<Object> value) {
        return given() ? options(start(), key, value) : Materialized.with(key, value);
    }

    private <S extends org.apache.kafka.streams.processor.StateStore> Materialized<Object, Object, S> options(
            Materialized<Object, Object, S> start, Serde<Object> key, Serde<Object> value) {
        Materialized<Object, Object, S> store = start.withKeySerde(key).withValueSerde(value);
        if (node.has("persistent")) {
            // Also `true` says it: default.dsl.store may have the other kind.
            store = store.withStoreType(inMemory() ? BuiltInDslStoreSuppliers.IN_MEMORY : BuiltInDslStoreSuppliers.ROCKS_DB);
        }
        if (node.has("type")) {
            store = store.withStoreType(
                node.get("type").asText().equals("in_memory") ? BuiltInDslStoreSuppliers.IN_MEMORY : BuiltInDslStoreSuppliers.ROCKS_DB);
        }
        if (node.has("config")) {
            Map<String, String> config = new HashMap<>();
            node.get("config").properties().forEach(entry -> config.put(entry.getKey(), entry.getValue().asText()));
            store = store.withLoggingEnabled(config);
        }
        if (node.has("caching")) {
            store = node.get("caching").asBoolean() ? store.withCachingEnabled() : store.withCachingDisabled();
        }
        if (node.has("logging") && !node.get("logging").asBoolean()) {
            store = store.withLoggingDisabled();
        }
        return node.has("retention") ? store.withRetention(Data.duration(node.get("retention"))) : store;
    }
}
