"""Compiles sub-topologies to programs."""
