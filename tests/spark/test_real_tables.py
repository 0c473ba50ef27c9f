"""Outputs in tables of Iceberg and Delta, with their jars and the PySpark that these were built for."""

from __future__ import annotations

import pytest

from tests.spark.table_environment import FORMATS, environment, run_cases


@pytest.mark.parametrize("name", FORMATS)
def test_tables_of(name: str) -> None:
    run_cases("real_tables.py", environment(FORMATS[name]))
