import org.apache.kafka.common.serialization.Serde;

/** What a pipeline has in hand after a step: the DSL object, and the serdes of the language. */
record Flow(Object dsl, Serde<Object> key, Serde<Object> value, boolean sessions) {
    static Flow of(Object dsl, Serde<Object> key, Serde<Object> value) {
        return new Flow(dsl, key, value, false);
    }

    Flow with(Object other) {
        return new Flow(other, key, value, sessions);
    }
}
