"""Which instance of an application runs which task, and keeps standbys of which (StreamsPartitionAssignor)."""
