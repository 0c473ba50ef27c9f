"""Incremental jobs on Spark: inputs, outputs, checkpoints and options that end a run with one line."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import InvalidTopologyError, StateError
from streamkit.plan import load
from streamkit.runtime.spark.job_options import JSON_LINES, Place
from streamkit.runtime.spark.stage_plan import refuse_headed_buffers
from tests.spark.incremental_runs import TOPOLOGY, Runs, fails, lines
from tests.spark.support import by_key, reprocess, write_lines


@pytest.fixture
def two(spark: Any, counting: Path, tmp_path: Path) -> Runs:
    """A job with two runs, and records for a third one."""
    runs = Runs(spark, counting, tmp_path / "runs", ("lines",))
    for start in (0, 10):
        runs.add(lines(10, start))
        runs.run()
    runs.add(lines(10, 20))
    return runs


def test_bad_input(two: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    before = two.content()
    read = two.folder / "lines" / "001.jsonl"
    text = read.read_text()
    read.rename(two.folder / "away")
    fails(two.run, "--input lines=", "001.jsonl, which run 1 has read, is missing")
    (two.folder / "away").rename(read)
    read.write_text(text + " \n")
    fails(two.run, "--input lines=", "001.jsonl has changed since run 1")
    os.remove(read)
    write_lines(read, [])
    fails(two.run, "001.jsonl", "changed")
    two.folder.joinpath("lines", "002.jsonl").touch()
    assert two.content() == before


def test_a_checkpoint_takes_no_buffer_with_headers(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "conformance" / "suppress-tumbling-final" / "topology.yaml").read_text()
    (tmp_path / "topology.yaml").write_text(text)
    refuse_headed_buffers(load(tmp_path / "topology.yaml"))
    with pytest.raises(
        InvalidTopologyError,
        match=r"topology\.yaml:24: pipeline final, step suppress: a checkpoint does not hold the headers",
    ):
        refuse_headed_buffers(load(tmp_path / "topology.yaml", overrides={"dsl.store.format": "HEADERS"}))


def test_outputs_that_changed(two: Runs) -> None:
    part = next(two.out.glob("run=000001/part-*"))
    data = part.read_bytes()
    part.unlink()
    before = two.content()
    fails(two.run, f"--output *={two.out}", f"run=000001/{part.name} is missing", "run 1 wrote")
    assert two.content() == before
    part.write_bytes(data + b"\n")
    fails(two.run, f"run=000001/{part.name} has changed")
    part.write_bytes(data)
    fails(two.run, "earlier runs wrote it to", outputs={"*": Place(str(two.folder / "other"), JSON_LINES)})
    fails(two.run, "give --output *=", "again", outputs={})
    fails(two.run, "not orc2", outputs={"*": Place(str(two.out), "orc2")})
    two.run()
    assert two.last_run() == 3


def test_other_topologies(two: Runs, counting: Path) -> None:
    before = two.content()
    counting.write_text(TOPOLOGY.replace("- count: counts", "- count: renamed"))
    fails(two.run, "belongs to another topology", "renamed")
    counting.write_text(
        TOPOLOGY.replace("lines: {value: string, partitions: 2}", "lines: {value: string, partitions: 3}")
    )
    fails(two.run, "partitions")
    counting.write_text(TOPOLOGY)
    manifest = max((two.checkpoint / "manifests").glob("*.json"))
    text = manifest.read_text()
    (two.checkpoint / "manifests" / f".{manifest.name}.crc").unlink(missing_ok=True)
    manifest.write_text(text.replace('"version": 7', '"version": 8'))
    fails(two.run, manifest, "newer streamkit", "version 8")
    manifest.write_text(text.replace('"version": 7', '"version": 1'))
    fails(two.run, manifest, "older streamkit", "version 1", "new checkpoint")
    manifest.write_text(text[:100])
    fails(two.run, manifest, "damaged", "delete it")
    manifest.write_text(text)
    assert {name: data for name, data in before.items() if not name.endswith(".crc")} == {
        name: data for name, data in two.content().items() if not name.endswith(".crc")
    }
    # What changes no state is no other topology.
    counting.write_text(TOPOLOGY.replace("value.split()", "value.lower().split()"))
    two.run()


def test_a_damaged_manifest(two: Runs, spark: Any, counting: Path, tmp_path: Path) -> None:
    manifests = two.checkpoint / "manifests"
    manifest = manifests / "000002.json"
    manifest.write_text(manifest.read_text()[:100])
    fails(two.run, manifest, "damaged", "delete it, and the folder run=000002", kind=StateError)
    manifest.unlink()
    shutil.rmtree(two.out / "run=000002")
    left, others = manifests / "_0123abcd-000001.json", two.checkpoint / "state" / "folder=000001-of-another-program"
    left.touch()
    others.mkdir()
    two.run()
    assert two.last_run() == 2
    assert not left.exists()
    assert others.exists()
    (tmp_path / "one").mkdir()
    plan = load(counting)
    assert by_key(two.written()) == by_key(reprocess(spark, plan, lines(30), tmp_path / "one", emit="updates"))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("--write-state", {"write_state": True}),
        ("--compare", {"compare": ("counts",)}),
        ("--overwrite", {"overwrite": True}),
        ("--parallelism", {"parallelism": 2}),
    ],
)
def test_options_that_exclude_a_checkpoint(
    name: str, options: dict, spark: Any, counting: Path, tmp_path: Path
) -> None:
    runs = Runs(spark, counting, tmp_path / "runs", ("lines",))
    fails(runs.run, f"{name} and --checkpoint", **options)
    assert runs.content() == {}


def test_places_that_are_taken(spark: Any, counting: Path, tmp_path: Path) -> None:
    runs = Runs(spark, counting, tmp_path / "runs", ("lines",))
    runs.run()
    assert runs.lines == ["there is no input yet"]
    runs.add(lines(2))
    runs.out.mkdir()
    (runs.out / "mine").touch()
    fails(runs.run, f"--output *={runs.out}", "no run of this checkpoint")
    (runs.out / "mine").unlink()
    (runs.checkpoint / "other").touch()
    fails(runs.run, "other files, such as other")
    (runs.checkpoint / "other").unlink()
    runs.run()
    assert runs.last_run() == 1


def test_timers_outside_init(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "scheduling.py").write_text(
        "class Scheduling:\n"
        "    def init(self, context):\n"
        "        self.context = context\n"
        "    def process(self, record):\n"
        "        self.context.schedule('1s', 'stream_time', print)\n"
        "        return record\n"
    )
    path = tmp_path / "topology.yaml"
    path.write_text(
        "streamkit: 1\napplication: scheduling\ntopics: {lines: {value: string}, out: {value: string}}\n"
        "pipelines:\n  out:\n    stream: lines\n    steps:\n      - process: {call: scheduling:Scheduling}\n    to: out\n"
    )
    runs = Runs(spark, path, tmp_path / "runs", ("lines",))
    runs.add(lines(1))
    fails(runs.run, "topology.yaml:8", "step process", "outside `init`")
    assert not list(runs.out.glob("run=*"))


def test_state_that_is_missing_or_damaged(two: Runs) -> None:
    state = json.loads((two.checkpoint / "manifests" / "000002.json").read_text(encoding="utf-8"))["state"]
    folder = state["counts"]["0"][0][0]
    (file,) = two.checkpoint.glob(f"state/folder={folder}/store=counts/*/partition=0/part=0/*.parquet")
    data = file.read_bytes()
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    file.write_bytes(data[:-20])
    fails(two.run, file.relative_to(two.checkpoint / "state"), "damaged", "checksum", "put it back", kind=StateError)
    # A session keeps what it has read, and a failed run is the last one of its session elsewhere.
    two.spark.catalog.clearCache()
    file.unlink()
    fails(two.run, file.relative_to(two.checkpoint / "state"), "is missing", "put it back", kind=StateError)
    two.spark.catalog.clearCache()
    file.write_bytes(data)
    two.run()
    assert two.last_run() == 3
