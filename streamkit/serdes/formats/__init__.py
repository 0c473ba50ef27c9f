"""Formats of keys and values, one file each."""
