"""Every kind of store goes on under another name: results are those of the old version on all input."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.runtime.local.client import Application
from streamkit.runtime.operations.migration import Migrator
from streamkit.transport.log_interface import NewTopic
from tests.broker.cases import _Loader
from tests.broker.support import Log
from tests.changes.versions import FOREIGN, NAMED, SESSIONS, STREAMS, SUPPRESS, TABLES, WINDOWS

_OUTER = STREAMS.replace("- join:", "- outer_join:").replace("left + right", "str(left) + str(right)")
_FILTER = ("stream: left\n    steps:\n", "stream: left\n    steps:\n      - filter: value > ''\n")
_VERSIONED = TABLES.replace("table: users", "table: users\n    store: {name: users, versioned: 1h}")
CASES = {
    "rows": (NAMED, ("count: counts", "count: totals")),
    "windows": (WINDOWS, ("count: per-key", "count: by-key")),
    "sessions": (SESSIONS, ("count: per-key", "count: by-key")),
    "suppress": (SUPPRESS, ("name: final", "name: last")),
    "join": (STREAMS, _FILTER),
    "outer-join": (_OUTER, _FILTER),
    "table": (TABLES, ("table: users", "table: users\n    store: users")),
    "versions": (_VERSIONED, ("name: users, versioned", "name: people, versioned")),
    "join-with-grace": (
        _VERSIONED.replace("value: left + right", "grace: 20s, name: first, value: left + right"),
        ("name: first", "name: second"),
    ),
    "foreign-key-join": (FOREIGN, ("name: customer", "name: buyer")),
}
_PARTS = (
    (("users", "a", "A", 1_000), ("lines", "a", "tea", 2_000), ("clicks", "a", "x", 3_000), ("right", "a", "R", 3_000),
     ("left", "b", "L", 3_500), ("orders", "o1", "c1", 4_000), ("orders", "o2", "c2", 4_000), ("customers", "c1", "Ada", 4_000)),
    (("lines", "a", "tea", 5_000), ("clicks", "a", "y", 6_000), ("left", "a", "L", 6_000), ("customers", "c2", "Bo", 6_000),
     ("customers", "c1", "Al", 6_500), ("clicks", "a", "z", 90_000), ("left", "c", "M", 90_000), ("right", "c", "S", 91_000)),
)  # fmt: skip
"""Records before and after the change: topic, key, value, timestamp."""


def version(folder: Path, log: Log, text: str, name: str) -> Plan:
    document = yaml.load(text, _Loader)
    document["config"] = {
        "bootstrap.servers": log.address,
        "state.dir": str(folder / "state"),
        "statestore.cache.max.bytes": 0,
        "commit.interval.ms": 20,
        "poll.ms": 5,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    plan = load(path)
    with closing(log.transport.admin()) as admin:
        admin.create_topics([NewTopic(topic, 1) for topic in plan.external_topics])
    return plan


def process(log: Log, plan: Plan, part: int) -> None:
    rows = [
        (topic, key.encode(), value.encode(), time, None, None)
        for topic, key, value, time in _PARTS[part]
        if topic in plan.external_topics
    ]
    assert rows
    for row in rows:  # one after the other, so that both runs process them in this order
        log.write([row])
        Application(plan, log.transport).run(until_idle=True, stop=threading.Event())


def results(log: Log, plan: Plan) -> list[tuple]:
    written = sorted(topic.name for topic in plan.external_topics.values() if topic.written)
    return [(topic, raw.key, raw.value, raw.timestamp) for topic in written for raw in log.read(topic)]


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_old_version(tmp_path: Path, name: str) -> None:
    text, edit = CASES[name]
    assert edit[0] in text
    found = []
    for newer in (text, text.replace(*edit)):
        folder = tmp_path / str(len(found))
        folder.mkdir()
        with closing(Log(f"embedded:{folder / 'log'}")) as log:
            old, new = version(folder, log, text, "old"), version(folder, log, newer, "new")
            process(log, old, 0)
            migrator = Migrator(old, new, log.transport, {})
            copies = [step for step in migrator.prepare().steps if step.kind == "copy"]
            assert bool(copies) == (newer != text)
            migrator.execute()
            process(log, new, 1)
            found.append(results(log, new))
    assert found[0] == found[1] != []
