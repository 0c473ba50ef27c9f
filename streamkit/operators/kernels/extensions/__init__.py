"""Run-time work of the steps that Kafka Streams does not have."""
