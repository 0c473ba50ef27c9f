"""YAML as nodes with their places in the file."""
