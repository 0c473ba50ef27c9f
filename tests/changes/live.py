"""What Kafka Streams does on a broker when a new version follows an old one.

The old version takes some records and ends; the new one takes further records, with a new state directory, so that what it
knows is what it reads from changelogs. Its results are compared with those of a version that knows nothing:
`empty`, they are the same, so that the state is lost; `kept`, they are others; `fails`, it does not get through them.
`python -m tests.changes.live [NAME…]` runs pairs and writes outcomes.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.runtime.records import RecordJson
from tests.broker.cases import SHIFT, _Loader
from tests.broker.kafka_broker import Broker
from tests.broker.support import Log, fresh, kill, until
from tests.changes.pairs import PAIRS
from tests.changes.versions import Pair
from tests.cli import support
from tests.java import build

FILE = Path(__file__).with_name("outcomes.json")
LIMIT_S = 25
"""Within which a version reads everything, or `fails`."""
ONCE = ("users", "right", "orders", "rates")
"""Topics that get records only while the old version runs: the new one finds them in its state, or not."""
NAMES = (
    "filter-before-count", "step-removed-before-count", "filter-before-named-count", "filter-after-count",
    "pinned-by-the-old-name", "store-gets-a-name", "store-loses-its-name", "store-renamed", "table-gets-a-name",
    "foreign-key-join-renamed", "join-of-streams-shifts", "group-renamed", "repartition-renamed",
    "pipeline-added-in-front", "pipelines-swapped", "value-serde", "key-serde", "count-becomes-sum", "window-size",
    "tumbling-becomes-hopping", "tumbling-becomes-session", "windows-come", "grace-grows", "session-gap", "in-memory",
    "no-changelog", "source-topic-is-changelog", "source-topic-is-no-changelog", "table-becomes-versioned",
    "partitions-of-a-repartition",
)  # fmt: skip


class Runner:
    """Versions of one application on a log, in Java."""

    def __init__(self, folder: Path, log: Log, limit_s: float):
        self.folder, self.log, self.own, self.limit_s = folder, log, fresh("live"), limit_s

    def plan(self, text: str, name: str) -> Plan:
        """The plan of a version whose application and topics are this one's own; the topics exist."""
        document = yaml.load(text, _Loader)
        document["application"] = self.own
        document["config"] = {
            **document.get("config", {}),
            "bootstrap.servers": self.log.address,
            "statestore.cache.max.bytes": 0,
            "commit.interval.ms": 100,
            "session.timeout.ms": 60_000,
        }
        for topic, entry in document["topics"].items():
            document["topics"][topic] = {**entry, "topic": f"{self.own}.{topic}"}
            self.log.create(f"{self.own}.{topic}", entry.get("partitions", 1))
        path = self.folder / f"{self.own}-{name}.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return load(path)

    @contextmanager
    def running(self, plan: Plan, name: str) -> Iterator[subprocess.Popen]:
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"]
        state = self.folder / f"{self.own}-{name}"
        command = [*build.command("fuzz/java", "Live", *options), plan.file, str(state)]
        with (self.folder / f"{self.own}-{name}.log").open("w") as output:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output, text=True)
            try:
                yield process
                assert process.stdin
                process.stdin.close()
                process.wait(timeout=support.LIMIT_S)
            finally:
                kill([process])
        # Java's instances do not leave their group: the next version would wait for the ends of their sessions.
        self.log.remove_members(self.own)

    def feed(self, plan: Plan, batch: int) -> None:
        form = RecordJson(plan)
        rows = []
        for topic in plan.external_topics.values():
            if not topic.read or (batch and topic.entry in ONCE):
                continue
            for number, key in enumerate(("a", "b", "a")):
                value = {"n": 1} if topic.value_serde.spec == "json" else ("a", "bee", "bee")[number]
                record = {"topic": topic.name, "key": key, "value": value, "timestamp": SHIFT + batch * 5000 + number}
                rows.append(form.encode(record, 0, lambda topic: None))
        self.log.write(rows)

    def run(self, plan: Plan, name: str) -> bool:
        """Run a version until it has read everything; return whether it gets there."""
        sources = {
            plan.internal_name(topic) for sub in plan.sub_topologies if not sub.is_global for topic in sub.source_topics
        }
        with self.running(plan, name):
            try:
                until(lambda: self.log.is_read(self.own, sources), "everything is read", self.limit_s)
            except AssertionError:
                return False
        return True

    def results(self, plan: Plan) -> list[tuple]:
        return sorted(
            (topic.entry, str(raw.key), str(raw.value))
            for topic in plan.external_topics.values()
            if not topic.read
            for raw in self.log.read(topic.name)
        )


def outcome(pair: Pair, folder: Path, log: Log, limit_s: float = LIMIT_S) -> str:
    """Return what becomes of a pair."""
    first = Runner(folder, log, limit_s)
    old = first.plan(pair.old, "old")
    first.feed(old, 0)
    assert first.run(old, "old"), pair.name
    before = first.results(old)
    new = first.plan(pair.new, "new")
    first.feed(new, 1)
    if not first.run(new, "new"):
        return "fails"
    after = first.results(new)
    for row in before:
        if row in after:
            after.remove(row)
    alone = Runner(folder, log, limit_s)
    plan = alone.plan(pair.new, "alone")
    alone.feed(plan, 1)
    assert alone.run(plan, "alone"), pair.name
    return "empty" if after == alone.results(plan) else "kept"


def main(names: list[str]) -> None:
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    with tempfile.TemporaryDirectory() as scratch, Broker() as broker:
        log = Log(broker.address)
        for pair in PAIRS:
            if pair.name in (names or NAMES):
                found[pair.name] = outcome(pair, Path(scratch), log)
                print(pair.name, found[pair.name], flush=True)
                FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        log.close()


if __name__ == "__main__":
    main(sys.argv[1:])
