"""The transformer of the topology, as the Java program has it."""


def add(key, value):
    return None if value is None else value + 10
