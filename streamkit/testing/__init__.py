"""Tests of topologies in YAML: found, run on the driver of `try`, compared, rewritten, and counted for coverage."""
