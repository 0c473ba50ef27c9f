"""Typed stores, with cache and changelog, on ordered maps of bytes."""
