"""The tasks of a stream thread: assigned, restored, standby, closed."""
