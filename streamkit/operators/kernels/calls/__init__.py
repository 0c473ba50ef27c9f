"""Calls of Python functions for many records at once: the records are held back, and forwarded with their results."""
