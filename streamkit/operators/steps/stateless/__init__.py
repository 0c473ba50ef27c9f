"""Steps that process one record at a time, without state."""
