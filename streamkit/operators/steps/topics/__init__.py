"""The sources, sinks and repartition topics of pipelines."""
