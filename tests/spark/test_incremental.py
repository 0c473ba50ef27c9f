"""Incremental jobs on Spark: runs over what is new write what one job over everything writes, whatever ends them in between."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import StateError, StateLockedError, StreamkitError, TransportError
from streamkit.plan import load
from streamkit.record import TopicPartition
from streamkit.runtime.spark.checkpoint import run_outputs
from streamkit.runtime.spark.checkpoint.file_system import FileSystem
from streamkit.runtime.spark.checkpoint.job_checkpoint import Checkpoint
from streamkit.runtime.spark.rows.log_rows import Address
from streamkit.runtime.spark.submission.incremental import submit_next
from streamkit.runtime.spark.submission.job_options import JSON_LINES, JobOptions, Place
from streamkit.transport.log_interface import NewTopic
from tests.broker.support import until
from tests.cli.support import command
from tests.conformance_cases import CASES, parse
from tests.spark.incremental_runs import PARQUET, Range, Runs
from tests.spark.support import SETTINGS, by_key, live_order, reprocess, write_lines

# All cases take an hour; tests/spark/test_parts.py runs all of them without Spark.
SOME = ("suppress-tumbling-final", "foreign-key-join-left", "stream-global-join")
CHOSEN = [case for case in CASES if case.name in SOME or "STREAMKIT_ALL_CASES" in os.environ]

TOPOLOGY = """\
streamkit: 1
application: incremental
topics:
  lines: {value: string, partitions: 2}
  counts: {value: long, partitions: 2}
  recent: {key: {windowed: string, size: 10s}, value: long, partitions: 2}
pipelines:
  words:
    stream: lines
    steps:
      - flat_map_values: {values: value.split(), value_serde: string}
      - group_by: value
  counts:
    from: words
    steps:
      - count: counts
      - to_stream
    to: counts
  recent:
    from: words
    steps:
      - window: {tumbling: 10s, grace: 0s}
      - count
      - suppress: window_closes
      - to_stream
    to: recent
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "topology.yaml"
    found.write_text(TOPOLOGY, encoding="utf-8")
    return found


def lines(count: int, start: int = 0) -> list[dict]:
    """Lines of words at rising times, from the line `start` on."""
    found = []
    for at in range(start, start + count):
        draw = random.Random(at)
        words = " ".join(f"w{draw.randrange(30)}" for _ in range(3))
        found.append({"topic": "lines", "key": f"k{draw.randrange(9)}", "value": words, "timestamp": at * 700})
    return found


def fails(
    run: Callable[..., None], *words: object, kind: type[StreamkitError] = StreamkitError, **options: Any
) -> None:
    """Check that a run ends with one line that has these words."""
    with pytest.raises(kind) as caught:
        run(**options)
    assert "\n" not in str(caught.value)
    assert all(str(word) in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.name)
def test_runs_are_as_one_job(case: Path, spark: Any, tmp_path: Path) -> None:
    plan = load(case / "topology.yaml")
    records = [record for record in parse((case / "input.jsonl").read_text(encoding="utf-8")) if "topic" in record]
    (tmp_path / "one").mkdir()
    want = by_key(reprocess(spark, plan, records, tmp_path / "one", emit="updates"))
    ordered = live_order(plan, records)
    topics = tuple(sorted({record["topic"] for record in records}))
    first = {topic for sub in plan.sub_topologies if sub.is_global for topic in sub.source_topics}
    globals_ = sum(record["topic"] in first for record in ordered)
    runs = Runs(spark, case / "topology.yaml", tmp_path / "runs", topics)
    cut = random.Random(case.name).randrange(globals_ + 1, len(ordered))
    for part in (ordered[:cut], ordered[cut:]):
        runs.add(part)
        runs.run()
    assert by_key(runs.written()) == want


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


def test_a_run_that_ends_early(spark: Any, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(spark, path, tmp_path / "runs", ("lines",))
    changes, committed, whole = 0, 0, []
    while True:
        part = lines(10, 10 * changes)
        whole += part
        runs.add(part)
        before, run = runs.written(), runs.last_run()
        with monkeypatch.context() as patch:
            ending = Ending(patch, changes)
            try:
                runs.run()
            except KeyboardInterrupt:
                assert ending.left == 0
        if ending.left:
            break
        counts = runs.last_run() > run
        committed += counts
        assert counts or runs.written() == before
        runs.run()
        assert runs.last_run() == run + 1
        changes += 1
    # Before and after the commit there was an end at each change.
    assert 0 < committed < changes
    (tmp_path / "one").mkdir()
    plan = load(path)
    assert by_key(runs.written()) == by_key(reprocess(spark, plan, whole, tmp_path / "one", emit="updates"))
    listing = json.loads((runs.out / "_manifest.json").read_text(encoding="utf-8"))
    assert [each["run"] for each in listing["runs"]] == list(range(1, changes + 2))
    assert {each["folder"] for each in listing["runs"]} | {"_manifest.json"} == {
        each.name for each in runs.out.glob("[!.]*")
    }


def test_a_driver_that_is_killed(spark: Any, path: Path, tmp_path: Path) -> None:
    runs = Runs(spark, path, tmp_path / "runs", ("lines",))
    runs.add(lines(30))
    runs.run()
    before = runs.content()
    runs.add(lines(30, 30))
    conf = [each for name, value in SETTINGS.items() for each in ("--conf", f"{name}={value}")]
    line = command(
        *("submit", path, "--master", "local[1]", *conf, "--emit", "updates", "--checkpoint", runs.checkpoint),
        *("--input", f"lines={runs.folder / 'lines'},format=json", "--output", f"*={runs.out}"),
    )
    process = subprocess.Popen(line, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: list(runs.out.glob("_run-000002-*")) or process.poll() is not None, "the second run writes")
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if runs.last_run() == 1:  # else it was faster than the signal
        assert before.items() <= runs.content().items()
        assert len(runs.written()) == len(before_written(runs))
    runs.run()
    assert runs.last_run() == 2
    (tmp_path / "one").mkdir()
    plan = load(path)
    assert by_key(runs.written()) == by_key(reprocess(spark, plan, lines(60), tmp_path / "one", emit="updates"))


@pytest.mark.parametrize("format", [PARQUET, JSON_LINES])
def test_readers_skip_a_killed_run(
    format: str, spark: Any, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(spark, path, tmp_path / "runs", ("lines",), format)
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


def test_a_final_name_that_is_taken(spark: Any, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(spark, path, tmp_path / "runs", ("lines",))
    runs.add(lines(5))
    taken = runs.out / "run=000001"
    publish = Checkpoint.publish

    def then_taken(*given: Any) -> None:
        publish(*given)
        taken.mkdir()

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "publish", then_taken)
        fails(runs.run, f"={runs.out}", "run=000001 exists", "_run-000001-", kind=TransportError)
    fails(runs.run, "run=000001 exists", kind=TransportError)
    taken.rename(tmp_path / "away")
    runs.run()
    assert runs.lines[-1] == "nothing is new since run 1"
    assert runs.written()
    # A copy that an object store had made completely is as good as the folder itself.
    manifest = json.loads((runs.checkpoint / "manifests" / "000001.json").read_text(encoding="utf-8"))
    (staged,) = {each["runs"][0]["staged"] for each in manifest["outputs"].values()}
    shutil.copytree(taken, runs.out / staged)
    written = runs.written()
    runs.run()
    assert (runs.written(), list(runs.out.glob("_run*"))) == (written, [])


def test_a_listing_that_was_not_written(
    spark: Any, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(spark, path, tmp_path / "runs", ("lines",))
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
    spark: Any, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(spark, path, tmp_path / "runs", ("lines",))
    runs.add(lines(5))
    read = runs.folder / "lines" / "001.jsonl"
    write_state = Checkpoint.write_state

    def then_grows(*given: Any) -> None:
        write_state(*given)
        with read.open("a", encoding="utf-8") as file:
            file.write(json.dumps(lines(1, 5)[0]) + "\n")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "write_state", then_grows)
        fails(runs.run, "--input lines=", "001.jsonl has changed since run 1", kind=TransportError)
    assert runs.last_run() == 0
    runs.run()
    assert runs.last_run() == 1
    assert list(runs.out.glob("_run*")) == []


def before_written(runs: Runs) -> list[str]:
    """The lines of the first run."""
    return "".join(part.read_text() for part in (runs.out / "run=000001").glob("part-*")).splitlines()


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


def test_two_runs_at_once(spark: Any, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(spark, path, tmp_path / "runs", ("lines",))
    runs.add(lines(5))
    with FileSystem(spark).locked(str(runs.checkpoint)):
        fails(runs.run, "another run uses it", kind=StateLockedError)
    # Where there is no lock, as on object stores, the run that ends first counts.
    unlocked = FileSystem.is_local
    original = Checkpoint.write_state

    def overtaken(*given: Any) -> None:
        monkeypatch.setattr(Checkpoint, "write_state", original)
        runs.run()
        original(*given)

    monkeypatch.setattr(FileSystem, "is_local", lambda *given: False)
    monkeypatch.setattr(Checkpoint, "write_state", overtaken)
    fails(runs.run, "another run has ended first", kind=StateError)
    monkeypatch.setattr(FileSystem, "is_local", unlocked)
    assert [run.name for run in runs.out.glob("run=*")] == ["run=000001"]
    written = runs.written()
    runs.run()
    assert runs.lines[-1] == "nothing is new since run 1"
    assert (runs.written(), list(runs.out.glob("_run*"))) == (written, [])


def test_parquet_and_the_state_are_for_others(spark: Any, path: Path, tmp_path: Path) -> None:
    runs = Runs(spark, path, tmp_path / "runs", ("lines",), PARQUET)
    for start in (0, 40, 80):
        runs.add(lines(40, start))
        runs.run(outputs={"counts": Place(str(runs.out), PARQUET)})
    table = spark.read.parquet(str(runs.out))
    assert [row["run"] for row in table.select("run").distinct().orderBy("run").collect()] == [1, 2, 3]
    last = {
        bytes(row["key"]): int.from_bytes(row["value"], "big") for row in table.orderBy("run", "timestamp").collect()
    }
    expected: dict[bytes, int] = {}
    for line in lines(120):
        for word in line["value"].split():
            expected[word.encode()] = expected.get(word.encode(), 0) + 1
    assert last == expected
    state = spark.read.parquet(str(runs.checkpoint / "state")).filter("store = 'counts'")
    # The rows of the last base and the deltas after it, the newest of each key; the value follows its timestamp.
    rows = state.orderBy("folder").collect()
    assert {bytes(row["key"]): int.from_bytes(row["value"][8:], "big") for row in rows} == expected
    assert {row["kind"] for row in rows} <= {"base", "delta"}


def test_the_log(spark: Any, path: Path, tmp_path: Path) -> None:
    plan = load(path)
    address = Address.of(plan)
    place = Place(str(tmp_path / "out"), JSON_LINES)

    def run(**others: Any) -> None:
        options = JobOptions(
            outputs={"counts": place}, emit="updates", checkpoint=str(tmp_path / "checkpoint"), **others
        )
        submit_next(plan, options, spark, said.append)

    def write(count: int) -> None:
        with address.opened() as transport:
            producer = transport.producer()
            producer.send([("lines", None, b"w", at, None, at % 2) for at in range(count)])
            producer.flush()
            producer.close()

    said: list[str] = []
    with address.admin() as admin:
        admin.create_topics([NewTopic("lines", 2, {}), NewTopic("counts", 2, {})])
    write(10)
    # Five records in each partition, of which the first run reads two.
    (tmp_path / "offsets.json").write_text(json.dumps({"lines": {"0": 2, "1": 2}}))
    run(range=Range(end=str(tmp_path / "offsets.json")))
    run()
    fails(run, "--from", "checkpoint has the offsets", range=Range(start="1970-01-01"))
    parts = [part for folder in sorted((tmp_path / "out").glob("run=*")) for part in sorted(folder.glob("part-*"))]
    assert [json.loads(line)["value"] for part in parts for line in part.read_text().splitlines()] == list(range(1, 11))
    run()
    assert said[-1] == "nothing is new since run 2"
    write(4)
    with address.admin() as admin:
        admin.delete_records({TopicPartition("lines", 0): 6})
    fails(run, "lines-0", "offsets 5 to 5", "retention")
    run(range=Range(tolerate_loss=True))
    with address.admin() as admin:
        admin.delete_topics(["lines"])
        admin.create_topics([NewTopic("lines", 2, {})])
    fails(run, "lines-0", "log ends at 0", "made again")
    write(40)
    fails(run, "lines: the topic was deleted and made again since run 3", kind=TransportError)


# -- Bad input -------------------------------------------------------------------------------------------------------


@pytest.fixture
def two(spark: Any, path: Path, tmp_path: Path) -> Runs:
    """A job with two runs, and records for a third one."""
    runs = Runs(spark, path, tmp_path / "runs", ("lines",))
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
    fails(two.run, "--input lines=", "001.jsonl is missing", "run 1")
    (two.folder / "away").rename(read)
    read.write_text(text + " \n")
    fails(two.run, "--input lines=", "001.jsonl has changed since run 1")
    os.remove(read)
    write_lines(read, [])
    fails(two.run, "001.jsonl", "changed")
    two.folder.joinpath("lines", "002.jsonl").touch()
    assert two.content() == before


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
    fails(two.run, "the runs before wrote it to", outputs={"*": Place(str(two.folder / "other"), JSON_LINES)})
    fails(two.run, "give --output *=", "again", outputs={})
    fails(two.run, "not orc2", outputs={"*": Place(str(two.out), "orc2")})
    two.run()
    assert two.last_run() == 3


def test_other_topologies(two: Runs, path: Path) -> None:
    before = two.content()
    path.write_text(TOPOLOGY.replace("- count: counts", "- count: renamed"))
    fails(two.run, "belongs to another topology", "renamed")
    path.write_text(TOPOLOGY.replace("lines: {value: string, partitions: 2}", "lines: {value: string, partitions: 3}"))
    fails(two.run, "partitions")
    path.write_text(TOPOLOGY)
    manifest = max((two.checkpoint / "manifests").glob("*.json"))
    text = manifest.read_text()
    (two.checkpoint / "manifests" / f".{manifest.name}.crc").unlink(missing_ok=True)
    manifest.write_text(text.replace('"version": 1', '"version": 2'))
    fails(two.run, manifest, "newer streamkit", "version 2")
    manifest.write_text(text[:100])
    fails(two.run, manifest, "damaged")
    manifest.write_text(text)
    assert {name: data for name, data in before.items() if not name.endswith(".crc")} == {
        name: data for name, data in two.content().items() if not name.endswith(".crc")
    }
    # What changes no state is no other topology.
    path.write_text(TOPOLOGY.replace("value.split()", "value.lower().split()"))
    two.run()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("--write-state", {"write_state": True}),
        ("--compare", {"compare": ("counts",)}),
        ("--overwrite", {"overwrite": True}),
        ("--parallelism", {"parallelism": 2}),
    ],
)
def test_options_that_exclude_a_checkpoint(name: str, options: dict, spark: Any, path: Path, tmp_path: Path) -> None:
    runs = Runs(spark, path, tmp_path / "runs", ("lines",))
    fails(runs.run, f"{name} and --checkpoint", **options)
    assert runs.content() == {}


def test_places_that_are_taken(spark: Any, path: Path, tmp_path: Path) -> None:
    runs = Runs(spark, path, tmp_path / "runs", ("lines",))
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
