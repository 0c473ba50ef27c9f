"""Folders NAME=VALUE of inputs: columns of all rows, with a pattern and a checkpoint too, or an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import TransportError
from streamkit.plan import load
from streamkit.runtime.spark.job_options import JSON_LINES, JobOptions, Place, parse_place
from streamkit.runtime.spark.rows import files
from streamkit.runtime.spark.submission.incremental import submit_next
from tests.spark.test_tables import COPY, copied


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_pattern_has_the_columns_of_folders_in_each_run(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(COPY.replace("KEY", "string").replace("VALUE", "json"))
    topic, place = parse_place(f"orders={tmp_path}/lake/*,value=*,timestamp=0,format=json", "--input")
    assert place is not None
    out, state = tmp_path / "out", str(tmp_path / "state")
    expected = []
    for run in (1, 2):
        put(tmp_path / f"lake/e[u] %/dt=2026-01-0{run}/x.json", f'{{"n":{run}}}\n')
        options = JobOptions({topic: (place,)}, {"out": Place(str(out), JSON_LINES)}, checkpoint=state)
        submit_next(load(path), options, spark)
        (file,) = (out / f"run=00000{run}").glob("part-*")
        expected.append({"n": run, "dt": f"2026-01-0{run}"})
        assert json.loads(file.read_text())["value"] == expected[-1]
    found = copied(spark, f"{tmp_path}/lake/*,value=*,timestamp=0,format=json", tmp_path)
    assert [record["value"] for record in found] == expected


@pytest.mark.parametrize("settings", ["", ",value=*,timestamp=0"])
def test_a_file_beside_folders_of_partitions(settings: str, spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "lake/dt=2026-01-01/x.json", '{"value":1,"timestamp":1}\n')
    put(tmp_path / "lake/y.json", '{"value":2,"timestamp":2}\n')
    with pytest.raises(TransportError, match=r"Spark does not read .*/lake/y\.json: .* beside folders NAME=VALUE"):
        copied(spark, f"{tmp_path}/lake,format=json{settings}", tmp_path)
    found = copied(spark, f"{tmp_path}/lake/*,format=json{settings}", tmp_path)
    assert len(found) == 2


def test_two_directories_with_folders_of_partitions(spark: Any, tmp_path: Path) -> None:
    for region in ("eu", "us"):
        put(tmp_path / f"lake/{region}/dt=2026-01-01/x.json", '{"n":1}\n')
    with pytest.raises(TransportError, match=r"/lake/eu and .*/lake/us have folders NAME=VALUE, .* its own --input"):
        copied(spark, f"{tmp_path}/lake/*,format=json,value=*,timestamp=0", tmp_path)


@pytest.mark.parametrize("over_connect", [False, True])
def test_a_column_of_files_that_their_folders_have_too(
    over_connect: bool, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would take that of the folders without a word."""
    if over_connect:
        monkeypatch.setattr(files, "classic_context", lambda spark: None)
    put(tmp_path / "lake/dt=2026-01-01/x.json", '{"n":1,"dt":"2026-01-02"}\n')
    place = f"{tmp_path}/lake,format=json,value=*,timestamp=0"
    with pytest.raises(TransportError, match=r"column dt is in the files, and in the names of their folders dt=VALUE"):
        copied(spark, place, tmp_path)
    monkeypatch.undo()
    found = copied(spark, f"{place},options.recursiveFileLookup=true", tmp_path)
    assert [record["value"] for record in found] == [{"dt": "2026-01-02", "n": 1}]


def test_the_folder_of_a_table_with_a_history(spark: Any, tmp_path: Path) -> None:
    """Its files have deleted rows too, until they are cleaned up."""
    put(tmp_path / "lake/x.json", '{"n":1}\n')
    put(tmp_path / "lake/_delta_log/00000000000000000000.json", "{}\n")
    with pytest.raises(TransportError, match=r"/lake: it is a table of delta, .*; format=delta reads the table"):
        copied(spark, f"{tmp_path}/lake,format=json,value=*,timestamp=0", tmp_path)


def test_an_option_that_leaves_out_files(spark: Any, tmp_path: Path) -> None:
    for name in ("a.json", "b.csv"):
        put(tmp_path / "lake" / name, '{"n":1}\n')
    settings = "format=json,value=*,timestamp=0,options.pathGlobFilter=*.json"
    with pytest.raises(
        TransportError, match=r"options\.pathGlobFilter leaves out .*/b\.csv; a pattern in the path sel"
    ):
        copied(spark, f"{tmp_path}/lake,{settings}", tmp_path)
