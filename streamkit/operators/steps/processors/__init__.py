"""Steps that call processors in Python."""
