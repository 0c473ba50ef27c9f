"""Batch reprocessing on Spark: the same plan and the same tasks over records in files or on a log."""
