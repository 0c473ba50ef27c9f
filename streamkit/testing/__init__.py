"""Tests of topologies in YAML: found, run on the driver of `try`, compared, written anew, and counted for coverage."""
