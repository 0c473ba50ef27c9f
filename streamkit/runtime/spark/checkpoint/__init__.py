"""The checkpoint of an incremental job: what it has read, its state, and what each run wrote."""
