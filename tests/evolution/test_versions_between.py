"""What the versions do before, during and after the last steps of `evolve`: on the embedded log, and without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from streamkit.changes.compare_versions import compare
from streamkit.changes.of_plan import form_of
from streamkit.errors import IncompatibleStateError, MigrationError
from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.runtime.spark.checkpoint.manifest import Manifest
from streamkit.runtime.spark.evolution import evolution as steps
from streamkit.runtime.spark.evolution.evolution import Evolution, digest
from streamkit.runtime.spark.evolution.new_stores import NewStores
from streamkit.transport.log_interface import CommittedOffset
from tests.broker.support import Log
from tests.changes.migrating import COUNTS, RENAMED, Versions

SPLIT = "  words:\n    from: grouped\n    steps:\n"
TEXT = COUNTS.replace("  words:", "  grouped:").replace("      - count", f"{SPLIT}      - count")
END = "    to: counts\n"
LENGTHS = """\
  lengths:
    from: grouped
    steps:
      - aggregate: {initial: 0, add: aggregate + len(value), value_serde: long, store: lengths}
"""
"""An aggregate on the repartition topic of the old version."""


@pytest.fixture
def versions(tmp_path: Path) -> Iterator[Versions]:
    log = Log(f"embedded:{tmp_path / 'log'}")
    yield Versions(tmp_path, log, TEXT)
    log.close()


class WithoutSpark(Evolution):
    """The steps on the log: a pass reads up to the committed offsets, and new stores get no rows."""

    versions: Versions
    manifest: Manifest

    def catch_up(self, stores: NewStores, spark: Any, report: Any) -> None:
        topics = {topic for sub in stores.plan.sub_topologies for topic in sub.source_topics}
        with closing(self.versions.log.transport.admin()) as admin:
            counts = {name: each.partitions for name, each in admin.topics(topics).items()}
        places = [TopicPartition(name, number) for name, count in counts.items() for number in range(count)]
        with closing(self.versions.log.transport.consumer(self.versions.name)) as consumer:
            committed, ends = consumer.committed(places), consumer.end_offsets(places)
        read: dict[str, dict[str, int]] = {}
        for place in places:
            default = ends[place] if place.topic in stores.fresh else 0
            offset = committed[place].offset if place in committed else default
            read.setdefault(place.topic, {})[str(place.partition)] = offset
        self.manifest = Manifest(1, self.versions.name, None, offsets=read)

    def _checkpoint(self, spark: Any, stores: NewStores) -> Any:
        return self

    @contextmanager
    def opened(self, plan: Plan) -> Iterator[Manifest]:
        yield self.manifest

    @contextmanager
    def limited_batches(self, manifest: Manifest) -> Iterator[None]:
        yield

    def _rows(self, *arguments: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def no_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "named", lambda *arguments: nullcontext())


def evolution(versions: Versions, old: Plan, new: Plan) -> WithoutSpark:
    found = WithoutSpark(old, new, versions.log.transport, str(versions.folder / "checkpoint"), {})
    found.versions = versions
    return found


def finish(job: WithoutSpark) -> NewStores:
    """Take all steps."""
    found = job.find()
    job.begin(found)
    job.finish(found, None, lambda line: None)  # type: ignore[arg-type]
    return found


def one(count: int) -> bytes:
    return count.to_bytes(8, "big")


def test_unread_records_are_counted_before_their_store_moves(versions: Versions) -> None:
    old, new = versions.plan(), versions.plan(RENAMED, (END, END + LENGTHS))
    versions.write("tea", "tea")
    versions.run(old)
    # The old version was stopped after it had written this record, and before it had counted it.
    versions.log.write([(f"{versions.name}-by-word-repartition", b"soda", b"soda", 1000, None, 0)])
    job = evolution(versions, old, new)
    assert job.is_done(finish(job))
    assert versions.table(versions.changelog("totals")) == {b"tea": one(2), b"soda": one(1)}


def test_old_version_that_runs_while_changelogs_are_written(
    versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = versions.plan(), versions.plan((END, END + LENGTHS))
    versions.write("tea")
    versions.run(old)
    job = evolution(versions, old, new)

    def process(*arguments: Any) -> None:
        """Do what an instance on another machine does."""
        versions.write("soda")
        places = [TopicPartition(f"{versions.name}.lines", number) for number in range(2)]
        with closing(versions.log.transport.consumer(versions.name)) as consumer:
            ends = consumer.end_offsets(places)
            consumer.commit({place: CommittedOffset(end) for place, end in ends.items()})

    with monkeypatch.context() as patch:
        patch.setattr(job, "_rows", process)
        with pytest.raises(MigrationError, match="the history was read up to"):
            finish(job)
    assert not job.is_done(job.find())
    with pytest.raises(IncompatibleStateError, match="evolve OLD NEW"):
        versions.run(new)
    assert job.is_done(finish(job))


ENDS = """\
  ends:
    stream: lines
    steps:
      - group_by: {key: "value[-1]", name: by-end}
      - count: ends
"""
"""An aggregate on a repartition topic of its own."""


def test_new_version_that_has_begun(versions: Versions) -> None:
    old, new = versions.plan(), versions.plan((END, END + LENGTHS + ENDS))
    versions.write("tea")
    versions.run(old)
    job = evolution(versions, old, new)
    found = finish(job)
    assert job.is_done(found)
    assert not job.has_begun(found)
    # Only one of both changelogs gets a record.
    versions.log.write([(versions.changelog("ends"), b"a", one(1), 1000, None, 0)])
    assert job.is_done(found)
    assert job.has_begun(found)
    versions.write("soda")
    versions.run(old)
    assert job.is_done(found)
    job.finish(found, None, lambda line: None)  # type: ignore[arg-type]
    assert versions.table(versions.changelog("ends")) == {b"a": one(1)}
    other = evolution(versions, old, versions.plan((END, END + LENGTHS + ENDS.replace("[-1]", "[0]"))))
    with pytest.raises(MigrationError, match="has run, and"):
        other.begin(other.find())
    assert job.is_done(found)


def test_new_version_that_has_written_nothing(versions: Versions) -> None:
    old, new = versions.plan(), versions.plan((END, END + ENDS))
    versions.write("tea")
    versions.run(old)
    job = evolution(versions, old, new)
    found = finish(job)
    # As after a restart of the new version, whose stores no record has reached.
    place = TopicPartition(f"{versions.name}.lines", 0)
    with closing(versions.log.transport.consumer(versions.name)) as consumer:
        consumer.commit({place: CommittedOffset(consumer.end_offsets([place])[place] + 1)})
    assert not job.is_done(found)
    assert job.is_complete(found)
    job.begin(found)
    versions.run(new)
    assert job.is_complete(found)


def test_edited_expression(versions: Versions) -> None:
    old, new = versions.plan(), versions.plan((END, END + ENDS))
    versions.write("tea")
    versions.run(old)
    job = evolution(versions, old, new)
    assert job.is_done(finish(job))
    moved, edited = (
        evolution(versions, old, versions.plan((END, END + text)))
        for text in ("\n" + ENDS, ENDS.replace("value[-1]", "value[0]"))
    )
    assert moved.is_done(moved.find())
    assert not edited.is_done(edited.find())


def test_records_that_a_new_version_left(versions: Versions) -> None:
    old, new = versions.plan(), versions.plan((END, END + ENDS))
    versions.write("tea")
    versions.run(old)
    topic = f"{versions.name}-by-end-repartition"
    versions.log.create(topic, 2)
    versions.log.write([(topic, b"a", b"tea", 1000, None, 0)])
    job = evolution(versions, old, new)
    assert job.is_done(finish(job))
    versions.run(new)
    assert versions.table(versions.changelog("ends")) == {}


def test_topic_that_both_versions_write(versions: Versions) -> None:
    old = versions.plan()
    new = versions.plan((END, END + ENDS.replace("lines", "counts").replace("value[-1]", "str(value)")))
    assert evolution(versions, old, new).find().fresh == {f"{versions.name}.counts"}


CALLING = """\
streamkit: 1
application: calling
functions: {short: {call: "own:short"}}
topics: {lines: {value: string, partitions: 1}}
pipelines:
  words:
    stream: lines
    steps:
      - map_values: {call: "own:lists", batch: 10}
      - filter: short(value) != ''
      - process: {call: "own:Passing"}
      - group_by_key
      - count: words
"""


def test_digest_of_a_folder_that_moved(tmp_path: Path) -> None:
    plans = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "own.py").write_text(
            "def short(value):\n    return value\ndef lists(keys, values):\n    return values\nclass Passing:\n    def process(self, record):\n        return record\n"
        )
        (folder / "topology.yaml").write_text(CALLING)
        plans.append(load(folder / "topology.yaml"))
    one, two = plans
    assert digest(one) == digest(two)
    assert list(compare(form_of(one, "one"), form_of(two, "two"))) == []
