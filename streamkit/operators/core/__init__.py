"""The common parts of steps: fields, serdes, stores, and the objects of the DSL."""
