"""The native extension: its arguments, its memory, and that it reads and writes what confluent-kafka does."""
