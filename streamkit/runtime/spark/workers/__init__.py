"""What runs inside Spark's workers."""
