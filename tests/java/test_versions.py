"""What differs between versions of Kafka: streamkit is that of the newest in the pom, and agrees with 4.3 in what both have."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from tempfile import gettempdir

import pytest

from streamkit.config import SETTINGS
from streamkit.config.settings import ALIASES, EMBEDDED, default_of
from tests.fuzz.run import run
from tests.java import build
from tests.java.anchor import fact_lines, facts_of, is_known

OLDER = "4.3.1"
NEVER = {"message.downconversion.enable"}
"""Brokers of version 4 have it no more."""
OWN_DEFAULTS = {"bootstrap.servers": (EMBEDDED,)}
CLASSES = {
    "class org.apache.kafka.streams.errors.LogAndFail": "fail",
    "class org.apache.kafka.streams.errors.Default": "fail",
    "class org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$RocksDB": "RocksDBDslStoreSuppliers",
}


def settings_of(kafka: str) -> dict[str, dict[str, str]]:
    """The defaults by name, by who has the setting."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for name, default in facts_of(kafka)["default"].items():
        who, _, setting = name.partition(" ")
        found[who][setting] = default
    return found


@pytest.fixture(scope="module")
def newest(java: None) -> dict[str, dict[str, str]]:
    return settings_of(build.ANCHOR)


def as_text(name: str) -> str:
    """Our default of a setting, as Java writes it."""
    value = default_of(SETTINGS[name])
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value) if name == "topology.optimization" else str(list(value))
    return "null" if value is None else str(value)


def test_every_setting_of_kafka_is_known(newest) -> None:
    assert len(newest["streams"]) > 70
    assert len(newest["topic"]) > 20
    unknown = [
        f"{who} {name}"
        for who, names in newest.items()
        for name in names
        if name not in NEVER and not is_known(f"{who} {name}")
    ]
    assert unknown == []


def test_defaults_are_those_of_kafka_streams(newest) -> None:
    shared = newest["streams"].keys() & (SETTINGS.keys() - OWN_DEFAULTS.keys() - ALIASES.keys())
    assert len(shared) > 35
    theirs = {name: newest["streams"][name] for name in shared}
    for name, default in theirs.items():
        for start, word in CLASSES.items():
            if default.startswith(start):
                theirs[name] = word
    # Java's folder for temporary files does not follow the environment.
    theirs["state.dir"] = theirs["state.dir"].replace("/tmp", gettempdir(), 1)
    assert {name: as_text(name) for name in shared} == theirs


def test_what_came_after_the_older_version_is_listed(newest) -> None:
    older = settings_of(OLDER)
    assert newest["streams"].keys() - older["streams"].keys() == {
        "default.interactive.query.isolation.level",
        "enable.transactional.statestores",
        "metadata.cluster.check.enable",
        "statestore.uncommitted.max.bytes",
        "topology.description.push.enabled",
    }
    assert older["streams"].keys() <= newest["streams"].keys()
    assert newest["topic"].keys() - older["topic"].keys() == {
        "errors.deadletterqueue.group.enable",
        "max.decompressed.message.bytes",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
    }
    assert older["topic"].items() <= newest["topic"].items()


@pytest.mark.usefixtures("java")
def test_random_topologies_do_what_the_older_version_does(tmp_path: Path) -> None:
    counts: Counter = Counter()
    failures = [each.differences[0] for each in run(range(41_000, 41_030), tmp_path, counts, OLDER)]
    assert not failures, "\n\n".join(failures[:5])
    assert counts["accepted"] >= 25
    assert counts["records"] > 30


def test_a_report_lists_what_another_version_has() -> None:
    now = {
        "default": {"streams poll.ms": "100", "streams gone.ms": "1"},
        "importance": {"streams poll.ms": "LOW", "streams gone.ms": "LOW"},
        "metric": {"TaskMetrics.PUNCTUATE": "punctuate"},
        "topic": {"RepartitionTopicConfig cleanup.policy": "delete"},
    }
    other = {
        **now,
        "default": {"streams poll.ms": "50", "streams num.stream.threads": "1", "streams never.heard.of": "x"},
        "importance": {"streams poll.ms": "HIGH", "streams num.stream.threads": "MEDIUM"},
    }
    assert [line for line in fact_lines(now, other) if line.startswith("- ")] == [
        "- new: `streams never.heard.of`: `x` (streamkit does not know it)",
        "- new: `streams num.stream.threads`: `1`",
        "- gone: `streams gone.ms`",
        "- `streams poll.ms`: `50`, not `100`",
        "- `streams poll.ms`: `HIGH`, not `LOW`",
    ]
