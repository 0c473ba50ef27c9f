"""Iceberg and Delta tables as outputs."""
