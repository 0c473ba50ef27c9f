"""An instance of an application: start and stop, status, queries, processes."""
