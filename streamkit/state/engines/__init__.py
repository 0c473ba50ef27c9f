"""Ordered maps of bytes: in memory, LevelDB, RocksDB, and maps built on them."""
