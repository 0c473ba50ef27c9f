"""Submits jobs to Spark: their options, session and progress."""
