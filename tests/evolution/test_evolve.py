"""`evolve` on the embedded log: interrupted at each step and repeated, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import (
    IncompatibleStateError,
    InvalidTopologyError,
    MigrationError,
    StateError,
    TransportError,
    UsageError,
)
from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.runtime.spark.evolution import evolution as steps
from streamkit.runtime.spark.evolution.evolution import Evolution, EvolvedOffsets
from streamkit.runtime.spark.job_options import Range
from streamkit.runtime.spark.rows.log_rows import Address, find_ranges
from streamkit.transport.log_interface import CommittedOffset
from tests.broker.support import Log
from tests.changes.migrating import COUNTS, Versions

OUTPUTS = """\
  ends: {{topic: {topics}.ends, value: long, partitions: 1}}
  minutes: {{topic: {topics}.minutes, key: {{windowed: string, size: 1m}}, value: long, partitions: 1}}
  clicks: {{topic: {topics}.clicks, value: string, partitions: 1}}
pipelines:
"""
TEXT = COUNTS.replace("pipelines:\n", OUTPUTS)
ADDED = """\
  ends:
    stream: lines
    steps:
      - group_by: {key: "value[-1]", name: by-end}
      - count: ends
      - to_stream
    to: ends
  minutes:
    stream: clicks
    steps:
      - group_by_key
      - window: {tumbling: 1m}
      - count: minutes
      - to_stream
    to: minutes
"""
"""An aggregate of a topic that the old version reads too, and one of a new topic."""


class Killed(Exception):
    """Ends a step in place of a signal."""


@pytest.fixture
def versions(tmp_path: Path) -> Iterator[Versions]:
    log = Log(f"embedded:{tmp_path / 'log'}")
    yield Versions(tmp_path, log, TEXT)
    log.close()


def pair(versions: Versions, added: str = ADDED, old: tuple[tuple[str, str], ...] = ()) -> tuple[Plan, Plan]:
    """Both versions."""
    before = versions.plan(*old)
    end = "    to: counts\n"
    return before, versions.plan(*old, (end, end + added))


def evolution(versions: Versions, old: Plan, new: Plan, **options: Any) -> Evolution:
    return Evolution(old, new, versions.log.transport, str(versions.folder / "checkpoint"), {}, **options)


def kill_after(monkeypatch: pytest.MonkeyPatch, place: object, name: str) -> None:
    """End a step when it has done its work."""
    real: Callable[..., object] = getattr(place, name)

    def call(*arguments: object, **options: object) -> object:
        real(*arguments, **options)
        raise Killed

    monkeypatch.setattr(place, name, call)


def test_killed_at_each_step(versions: Versions, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = pair(versions)
    versions.write("tea", "coffee", "tea")
    versions.write("click", topic="clicks", key="a")
    versions.run(old)
    lines: list[str] = []
    job = evolution(versions, old, new)
    found = job.find()
    job.begin(found)
    with pytest.raises(IncompatibleStateError, match="evolve OLD NEW"):
        versions.run(new)
    job.catch_up(found, spark, lines.append)
    versions.write("cocoa", "te")
    versions.run(old)  # nothing keeps the old version from starting
    for place, name in ((steps, "write_log"), (EvolvedOffsets, "commit")):
        with monkeypatch.context() as patch:
            kill_after(patch, place, name)
            with pytest.raises(Killed):
                job.finish(found, spark, lines.append)
        assert not job.is_done(found)
        with pytest.raises(IncompatibleStateError, match="evolve OLD NEW"):
            versions.run(new)
    job.finish(found, spark, lines.append)
    assert job.is_done(found)
    versions.write("me", "tea")
    versions.write("click", topic="clicks", key="a", at=2000)
    versions.run(new)
    assert job.is_done(job.find())
    fresh = versions.plan(*edits(versions), application=f"{versions.name}-whole")
    versions.run(fresh)
    for store in ("words", "ends", "minutes"):
        have, want = (versions.table(versions.changelog(store, name)) for name in ("", fresh.application))
        assert have == want != {}


def edits(versions: Versions) -> list[tuple[str, str]]:
    """The new version with outputs of its own, which reads everything from the beginning."""
    end = "    to: counts\n"
    others = [
        (f"topic: {versions.name}.{name},", f"topic: {versions.name}.{name}-whole,")
        for name in ("counts", "ends", "minutes")
    ]
    return [(end, end + ADDED), *others]


def test_old_version_that_ran_again(versions: Versions, spark: Any) -> None:
    old, new = pair(versions)
    versions.write("tea")
    versions.run(old)
    job = evolution(versions, old, new)
    found = job.find()
    for count in (1, 2):
        job.begin(found)
        job.finish(found, spark, lambda line: None)
        assert job.is_done(found)
        assert versions.table(versions.changelog("ends")) == {b"a": count.to_bytes(8, "big")}
        versions.write("soda")
        versions.run(old)
        assert not job.is_done(found)


# -- Refused ------------------------------------------------------------------------------------------------------------

UNLOGGED = ADDED.replace("count: ends", "count: {store: {name: ends, logging: false}}")
ENRICHED = ADDED.replace("      - group_by: {key", "      - enrich: {call: json:loads}\n      - group_by: {key")
WRITTEN = ADDED + "  clicking:\n    stream: lines\n    to: clicks\n"
CLOCK = ADDED.replace('"value[-1]"', '"str(now())"')
CLICKING = """\
  clicking:
    stream: clicks
  ends:
    from: clicking
    steps:
      - group_by: {key: "value[-1]", name: by-end}
      - count: ends
"""


@pytest.mark.parametrize(
    ("added", "error", "words"),
    [
        (UNLOGGED, MigrationError, "store ends has no changelog"),
        (CLOCK, InvalidTopologyError, "now()"),
        (ENRICHED, MigrationError, "step enrich: a service returns today's results"),
        (WRITTEN, MigrationError, "clicks is written only by"),
    ],
)
def test_stores_that_have_no_past(versions: Versions, added: str, error: type[Exception], words: str) -> None:
    old, new = pair(versions, added)
    with pytest.raises(error, match=re.escape(words)):
        evolution(versions, old, new).find()


def test_new_topic_that_an_existing_store_needs_too(versions: Versions) -> None:
    old, _ = pair(versions)
    grouped = "      - group_by: {key: value, name: by-word}\n"
    new = versions.plan(
        (grouped, "      - merge: clicking\n" + grouped), ("    to: counts\n", "    to: counts\n" + CLICKING)
    )
    with pytest.raises(MigrationError, match="clicks is new and also leads to store words"):
        evolution(versions, old, new).find()


def test_other_applications(versions: Versions) -> None:
    old = versions.plan()
    with pytest.raises(UsageError, match="both versions need the same `application`"):
        evolution(versions, old, versions.plan(application="other")).find()


def test_no_new_store(versions: Versions) -> None:
    assert not evolution(versions, versions.plan(), versions.plan()).find().changelogs


def test_changelog_of_another_origin(versions: Versions) -> None:
    old, new = pair(versions)
    versions.log.create(versions.changelog("ends"), 2)
    versions.log.write([(versions.changelog("ends"), b"a", bytes(8), 0, None, 0)])
    job = evolution(versions, old, new)
    with pytest.raises(MigrationError, match="has 1 record already"):
        job.begin(job.find())


# -- Ranges -------------------------------------------------------------------------------------------------------------


def ranges(plan: Plan, topic: str, requested: Range) -> list[tuple[int, int, int]]:
    found, _ = find_ranges(Address.of(plan), plan.application, requested, {topic: 2})
    return [(each.place.partition, each.start, each.stop) for each in found]


def test_until_committed(versions: Versions) -> None:
    plan, topic = versions.plan(), f"{versions.name}.lines"
    first = TopicPartition(topic, 0)
    versions.log.write([(topic, None, b"tea", 0, None, number) for number in (0, 0, 0, 1, 1)])
    with pytest.raises(StateError, match="has committed no offsets"):
        ranges(plan, topic, Range(end="committed"))
    consumer = versions.log.transport.consumer(plan.application)
    consumer.commit({first: CommittedOffset(2)})
    consumer.close()
    assert ranges(plan, topic, Range(end="committed")) == [(0, 0, 2), (1, 0, 0)]
    assert ranges(plan, topic, Range(end="committed", to_end=frozenset({topic}))) == [(0, 0, 2), (1, 0, 2)]
    assert ranges(plan, topic, Range(end="committed", continued={first: 1})) == [(0, 1, 2), (1, 0, 0)]
    with pytest.raises(StateError, match="reset to an earlier offset"):
        ranges(plan, topic, Range(end="committed", continued={first: 3}))


def test_removed_beginning(versions: Versions) -> None:
    plan, topic = versions.plan(), f"{versions.name}.lines"
    versions.log.write([(topic, None, b"tea", 0, None, 0) for _ in range(3)])
    admin = versions.log.transport.admin()
    admin.delete_records({TopicPartition(topic, 0): 2})
    admin.close()
    with pytest.raises(TransportError, match="offsets 0 to 1 are no longer in the log"):
        ranges(plan, topic, Range(needs_beginning=True))
    assert ranges(plan, topic, Range(needs_beginning=True, tolerate_loss=True)) == [(0, 2, 3), (1, 0, 0)]
    consumer = versions.log.transport.consumer(plan.application)
    consumer.commit({TopicPartition(topic, 0): CommittedOffset(1)})
    consumer.close()
    left = Range(end="committed", tolerate_loss=True, continued={TopicPartition(topic, 0): 1})
    assert ranges(plan, topic, left) == [(0, 2, 2), (1, 0, 0)]
