"""Steps that group, window and aggregate."""
