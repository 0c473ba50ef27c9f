"""The code that runs inside Spark's workers."""
