"""The tests here use Spark: the session is that of tests/spark."""

from tests.spark.conftest import java, spark

__all__ = ["java", "spark"]
