"""Serdes of schemas, and the registry of schemas."""
