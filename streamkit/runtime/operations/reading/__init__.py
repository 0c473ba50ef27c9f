"""Reads the records of a topic outside of the application: ranges, conditions, forms."""
