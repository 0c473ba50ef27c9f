"""Writes the code of nodes."""
