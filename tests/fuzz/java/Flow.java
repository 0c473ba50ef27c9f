import java.lang.reflect.Field;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.kstream.internals.AbstractStream;

/**
 * What a pipeline has after a step: the DSL object, and the serdes of the language.
 *
 * The language keeps serdes where the Java DSL forgets them and takes the default ones; the DSL object is given them, so
 * that buffers below log the same bytes. An argument would do so too, but change names.
 */
record Flow(Object dsl, Serde<Object> key, Serde<Object> value, boolean sessions) {
    Flow {
        if (dsl instanceof AbstractStream<?, ?>) {
            keep(dsl, "keySerde", key);
            keep(dsl, "valueSerde", value);
        }
    }

    static Flow of(Object dsl, Serde<Object> key, Serde<Object> value) {
        return new Flow(dsl, key, value, false);
    }

    Flow with(Object other) {
        return new Flow(other, key, value, sessions);
    }

    private static void keep(Object dsl, String name, Serde<Object> serde) {
        try {
            Field field = AbstractStream.class.getDeclaredField(name);
            field.setAccessible(true);
            if (field.get(dsl) == null) {
                field.set(dsl, serde);
            }
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }
}
