"""Steps that exist only in streamkit, not in the DSL of Kafka Streams."""
