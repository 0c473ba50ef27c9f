"""Tables of Iceberg and Delta as outputs."""
