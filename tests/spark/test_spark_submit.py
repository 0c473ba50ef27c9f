"""The driver of cluster mode, started by `spark-submit` without the command `streamkit`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.packaging.environments import ROOT
from tests.spark.support import SETTINGS, read_lines, write_lines


def test_the_driver_of_the_docs(counting: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs/spark.md").read_text(encoding="utf-8")
    found = re.search(r"^RUN echo '(.*)' > /opt/driver\.py$", text, re.MULTILINE)
    assert found is not None
    driver = tmp_path / "driver.py"
    driver.write_text(found[1] + "\n")
    # In New York the time is of the day before, but conditions are in UTC.
    place = write_lines(tmp_path / "lines.jsonl", [{"value": "tea or tea", "timestamp": 1782871200000}])
    settings = "value=value,timestamp=timestamp,where=timestamp_millis(timestamp) >= '2026-07-01'"
    conf = [text for name, value in SETTINGS.items() for text in ("--conf", f"{name}={value}")]
    submit = [sys.executable, "-m", "pyspark.find_spark_home"]
    home = subprocess.run(submit, capture_output=True, text=True, check=True).stdout.strip()
    done = subprocess.run(
        [
            *(f"{home}/bin/spark-submit", "--master", "local[1]", *conf, driver, "submit", counting),
            *("--input", f"lines={place.path},{settings}", "--output", f"counts={tmp_path / 'out'}"),
        ],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "America/New_York"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {record["key"]: record["value"] for record in read_lines(tmp_path / "out")} == {"tea": 2, "or": 1}
