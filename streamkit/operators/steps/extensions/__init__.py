"""Steps of streamkit's own, which the DSL of Kafka Streams does not have."""
