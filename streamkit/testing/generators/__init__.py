"""Test data made by the generators of a topology, the same for the same seed."""
