"""Stream threads, the global thread, and how they commit."""
