"""Incremental jobs on Spark whose runs end early: what they wrote does not count, and the next run does it again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import StateError, StateLockedError, TransportError
from streamkit.plan import load
from streamkit.runtime.spark.checkpoint import job_checkpoint, run_outputs
from streamkit.runtime.spark.checkpoint.job_checkpoint import Checkpoint
from streamkit.runtime.spark.job_options import JSON_LINES, Place
from streamkit.runtime.spark.rows.file_system import FileSystem
from tests.spark.incremental_runs import PARQUET, Runs, fails, lines
from tests.spark.support import by_key, reprocess


class Ending:
    """Ends a run before its n-th change of the checkpoint or an output, as a signal would."""

    def __init__(self, patch: pytest.MonkeyPatch, changes: int):
        self.left = changes
        for owner, name in (
            (Checkpoint, "write_state"),
            (FileSystem, "write"),
            (FileSystem, "rename"),
            (FileSystem, "delete"),
        ):
            patch.setattr(owner, name, self._counting(getattr(owner, name)))

    def _counting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            return call(*given)

        return run


def ended_early(runs: Runs, changes: int) -> bool:
    """Run what is new, and end it after so many changes, before the next one; return whether it had one more to make."""
    with pytest.MonkeyPatch.context() as patch:
        ending = Ending(patch, changes)
        try:
            runs.run()
        except KeyboardInterrupt:
            assert ending.left == 0
            return True
    return False


def test_a_run_that_ends_early(spark: Any, counting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The third run already deletes state and a manifest.
    monkeypatch.setattr(job_checkpoint, "MAX_DELTA", -1)
    monkeypatch.setattr(job_checkpoint, "_KEPT_MANIFESTS", 2)
    runs = Runs(spark, counting, tmp_path / "runs", ("lines",))
    for number in (0, 1, 2):
        runs.add(lines(10, 10 * number))
        if number < 2:
            runs.run()
    # Before the commit: each run finds what those before it have left, and comes one change further.
    before, changes = runs.written(), 0
    while ended_early(runs, changes) and runs.last_run() == 2:
        assert runs.written() == before
        changes += 1
    assert changes == 4
    # After the commit: each run makes one more change of those that are left.
    assert runs.last_run() == 3
    assert runs.written() == before
    while ended_early(runs, 1):
        assert runs.last_run() == 3
        changes += 1
    # Three outputs, three folders of state and a manifest of the runs that ended; state and manifest of the first run.
    assert changes == 14
    runs.add(lines(10, 30))
    runs.run()
    assert runs.last_run() == 4
    (tmp_path / "one").mkdir()
    plan = load(counting)
    assert by_key(runs.written()) == by_key(reprocess(spark, plan, lines(40), tmp_path / "one", emit="updates"))
    listing = json.loads((runs.out / "_manifest.json").read_text(encoding="utf-8"))
    assert [each["run"] for each in listing["runs"]] == [1, 2, 3, 4]
    assert {each["folder"] for each in listing["runs"]} | {"_manifest.json"} == {
        each.name for each in runs.out.glob("[!.]*")
    }
    assert sorted(each.name for each in (runs.checkpoint / "manifests").glob("[!.]*")) == ["000003.json", "000004.json"]
    state = sorted(each.name for each in (runs.checkpoint / "state").glob("[!.]*"))
    assert [name.partition("-")[0] for name in state] == ["folder=000003", "folder=000004"]


@pytest.mark.parametrize("format", [PARQUET, JSON_LINES])
def test_readers_skip_a_killed_run(
    format: str, spark: Any, counting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(spark, counting, tmp_path / "runs", ("lines",), format)
    options = {"outputs": {"counts": Place(str(runs.out), format)}}

    def rows() -> list[Any]:
        reader = spark.read.parquet if format == PARQUET else spark.read.text
        table = reader(str(runs.out))
        return sorted(map(str, table.collect()))

    runs.add(lines(10))
    runs.run(**options)
    before = rows()
    runs.add(lines(10, 10))
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "publish", ends)
        with pytest.raises(KeyboardInterrupt):
            runs.run(**options)
    assert list(runs.out.glob("_run*/part-*"))
    assert rows() == before
    runs.run(**options)
    assert len(rows()) == 2 * len(before)


def ends(*_: object) -> None:
    """Ends a run as a signal would."""
    raise KeyboardInterrupt


def test_a_final_name_that_is_taken(
    spark: Any, counting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(spark, counting, tmp_path / "runs", ("lines",))
    runs.add(lines(5))
    taken = runs.out / "run=000001"
    publish = Checkpoint.publish

    def then_taken(*given: Any) -> None:
        publish(*given)
        taken.mkdir()
        (taken / "mine").touch()

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "publish", then_taken)
        fails(runs.run, f"={runs.out}", "run=000001 exists", "_run-000001-", kind=TransportError)
    fails(runs.run, "run=000001 exists", kind=TransportError)
    taken.rename(tmp_path / "away")
    runs.run()
    assert runs.lines[-1] == "nothing is new since run 1"
    assert runs.written()
    # An object store copies the files of a folder, and deletes them afterwards: a run may end at any point of this.
    manifest = json.loads((runs.checkpoint / "manifests" / "000001.json").read_text(encoding="utf-8"))
    (staged,) = {each["runs"][0]["staged"] for each in manifest["outputs"].values()}
    shutil.copytree(taken, runs.out / staged)
    parts, written = sorted(taken.glob("part-*")), runs.written()
    assert len(parts) > 1
    for part in (parts[0], runs.out / staged / parts[1].name):
        part.unlink()
        (part.parent / f".{part.name}.crc").unlink()
    runs.run()
    assert (runs.written(), list(runs.out.glob("_run*"))) == (written, [])


def test_a_listing_that_was_not_written(
    spark: Any, counting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(spark, counting, tmp_path / "runs", ("lines",))
    runs.add(lines(5))
    with monkeypatch.context() as patch:
        patch.setattr(run_outputs, "_listing", ends)
        with pytest.raises(KeyboardInterrupt):
            runs.run()
    runs.run()
    assert runs.lines[-1] == "nothing is new since run 1"
    listing = json.loads((runs.out / "_manifest.json").read_text(encoding="utf-8"))
    assert [each["run"] for each in listing["runs"]] == [1]


def test_an_input_that_grows_during_a_run(
    spark: Any, counting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(spark, counting, tmp_path / "runs", ("lines",))
    runs.add(lines(5))
    read = runs.folder / "lines" / "001.jsonl"
    write_state = Checkpoint.write_state

    def then_grows(*given: Any) -> Any:
        written = write_state(*given)
        with read.open("a", encoding="utf-8") as file:
            file.write(json.dumps(lines(1, 5)[0]) + "\n")
        return written

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "write_state", then_grows)
        fails(runs.run, "--input lines=", "001.jsonl has changed since run 1", kind=TransportError)
    assert runs.last_run() == 0
    runs.run()
    assert runs.last_run() == 1
    assert list(runs.out.glob("_run*")) == []


def test_a_worker_that_is_killed(spark: Any, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    (tmp_path / "dying.py").write_text(
        "import os\n"
        "class Dying:\n"
        "    def process(self, record):\n"
        f"        if record.value == 'x' and os.path.exists({str(marker)!r}):\n"
        f"            os.remove({str(marker)!r})\n"
        "            os.kill(os.getpid(), 9)\n"
        "        return record\n"
    )
    path = tmp_path / "topology.yaml"
    path.write_text(
        "streamkit: 1\napplication: dying\ntopics: {lines: {value: string}, counts: {value: long}}\n"
        "pipelines:\n  counts:\n    stream: lines\n    steps:\n"
        "      - process: {call: dying:Dying}\n      - group_by_key\n      - count\n      - to_stream\n    to: counts\n"
    )
    runs = Runs(spark, path, tmp_path / "runs", ("lines",))
    for number, value in enumerate("yxy"):
        runs.add([{"topic": "lines", "key": "k", "value": value, "timestamp": number}])
        marker.touch()
        if value == "x":
            fails(runs.run, "Spark")
            assert not marker.exists()
        runs.run()
    assert [record["value"] for record in runs.written()] == [1, 2, 3]


def test_two_runs_at_once(spark: Any, counting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(spark, counting, tmp_path / "runs", ("lines",))
    runs.add(lines(5))
    with FileSystem(spark).locked(str(runs.checkpoint)):
        fails(runs.run, "another run uses it", kind=StateLockedError)
    # Where there is no lock, as on object stores, the run that ends first counts.
    unlocked = FileSystem.is_local
    original = Checkpoint.write_state

    def overtaken(*given: Any) -> Any:
        monkeypatch.setattr(Checkpoint, "write_state", original)
        runs.run()
        return original(*given)

    monkeypatch.setattr(FileSystem, "is_local", lambda *given: False)
    monkeypatch.setattr(Checkpoint, "write_state", overtaken)
    fails(runs.run, "another run has committed run", kind=StateError)
    monkeypatch.setattr(FileSystem, "is_local", unlocked)
    assert [run.name for run in runs.out.glob("run=*")] == ["run=000001"]
    written = runs.written()
    runs.run()
    assert runs.lines[-1] == "nothing is new since run 1"
    assert (runs.written(), list(runs.out.glob("_run*"))) == (written, [])
