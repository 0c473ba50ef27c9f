import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/** The `store` option as a Materialized; without it only serdes are given. */
final class Stores {
    private final JsonNode node;

    Stores(JsonNode node) {
        this.node = node;
    }

    boolean given() {
        return !node.isMissingNode() && !node.isNull();
    }

    String name() {
        return node.isObject() ? node.get("name").asText() : node.asText();
    }

    Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> keyValue(Serde<Object> key, Serde<Object> value) {
        if (!given()) {
            return Materialized.with(key, value);
        }
        if (node.has("versioned")) {
            return options(Materialized.<Object, Object>as(
                org.apache.kafka.streams.state.Stores.persistentVersionedKeyValueStore(name(), Data.duration(node.get("versioned")))), key, value);
        }
        return options(Materialized.as(name()), key, value);
    }

    Materialized<Object, Object, WindowStore<Bytes, byte[]>> window(Serde<Object> key, Serde<Object> value) {
        return given() ? options(Materialized.as(name()), key, value) : Materialized.with(key, value);
    }

    Materialized<Object, Object, SessionStore<Bytes, byte[]>> session(Serde<Object> key, Serde<Object> value) {
        return given() ? options(Materialized.as(name()), key, value) : Materialized.with(key, value);
    }

    private <S extends org.apache.kafka.streams.processor.StateStore> Materialized<Object, Object, S> options(
            Materialized<Object, Object, S> start, Serde<Object> key, Serde<Object> value) {
        Materialized<Object, Object, S> store = start.withKeySerde(key).withValueSerde(value);
        if (node.has("persistent") && !node.get("persistent").asBoolean()) {
            store = store.withStoreType(BuiltInDslStoreSuppliers.IN_MEMORY);
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
