"""Tests of what extends editors."""
