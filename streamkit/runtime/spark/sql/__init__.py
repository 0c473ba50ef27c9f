"""Stages as queries of Spark SQL, if those give exactly what the steps give; all others run in Python."""
