"""Jobs over Spark Connect, with a server of the installed PySpark."""

from __future__ import annotations

from tests.spark.table_environment import connect_environment, run_cases


def test_over_connect() -> None:
    run_cases("connect.py", connect_environment())
