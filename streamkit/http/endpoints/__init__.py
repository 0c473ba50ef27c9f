"""The endpoints, by theme."""
