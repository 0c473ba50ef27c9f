"""Outputs in tables of Iceberg and Delta, with their jars and the PySpark that these were built for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.table_environment import FORMATS, environment


@pytest.mark.parametrize("name", FORMATS)
def test_tables_of(name: str) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-W", "ignore"]
    cases = root / "tests" / "spark" / "real_tables.py"
    done = subprocess.run(
        [*command, str(cases)], env=environment(FORMATS[name]), cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
