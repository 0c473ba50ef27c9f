"""An application on a log, in several versions that follow one another."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.runtime.local.client import Application
from streamkit.runtime.operations.migration import Migration, Migrator
from streamkit.runtime.operations.opening import open_log
from streamkit.transport.log_interface import NewTopic
from tests.broker.support import Log, Raw, fresh

COUNTS = """\
streamkit: 1
application: {application}
config: {{bootstrap.servers: "{address}", state.dir: {state}, commit.interval.ms: 20, poll.ms: 5}}
topics:
  lines: {{topic: {topics}.lines, value: string, partitions: {partitions}}}
  counts: {{topic: {topics}.counts, value: long, partitions: 1}}
pipelines:
  words:
    stream: lines
    steps:
      - group_by: {{key: value, name: by-word}}
      - count: words
      - to_stream
    to: counts
"""

SUMS = """\
streamkit: 1
application: {application}
config: {{bootstrap.servers: "{address}", state.dir: {state}, commit.interval.ms: 20, poll.ms: 5}}
topics:
  lines: {{topic: {topics}.lines, value: string, partitions: {partitions}}}
  counts: {{topic: {topics}.counts, value: json, partitions: 1}}
pipelines:
  sums:
    stream: lines
    steps:
      - group_by_key
      - aggregate: {{initial: "0", add: aggregate + len(value), value_serde: integer, store: sums}}
      - to_stream
    to: counts
"""
LONG = ("value_serde: integer", "value_serde: long")
"""An edit of SUMS: another serde of its rows."""
WINDOWS = """\
streamkit: 1
application: {application}
config: {{bootstrap.servers: "{address}", state.dir: {state}, commit.interval.ms: 20, poll.ms: 5}}
topics:
  lines: {{topic: {topics}.lines, value: string, partitions: {partitions}}}
  counts: {{topic: {topics}.counts, value: long, partitions: 1}}
pipelines:
  words:
    stream: lines
    steps:
      - group_by: {{key: value, name: by-word}}
      - window: {{tumbling: 10s, grace: 0s}}
      - count: {{store: words}}
      - to_stream: {{key: "key.key"}}
    to: counts
"""
RENAMED = ("count: words", "count: totals")
"""An edit of COUNTS: another name of its store."""


@dataclass
class Versions:
    """Versions of one application; `text` has its names in braces."""

    folder: Path
    log: Log
    text: str = COUNTS
    partitions: int = 2
    name: str = field(default_factory=lambda: fresh("migrating"))

    def plan(self, *edits: tuple[str, str], application: str = "") -> Plan:
        """The plan of the version that these edits of the text make; its inputs and outputs exist."""
        text = self.text.format(
            application=application or self.name,
            topics=self.name,
            address=self.log.address,
            state=self.folder / "state",
            partitions=self.partitions,
        )
        for before, after in edits:
            assert before in text, before
            text = text.replace(before, after)
        path = self.folder / f"{fresh('version')}.yaml"
        path.write_text(text, encoding="utf-8")
        plan = load(path)
        with closing(self.log.transport.admin()) as admin:
            topics = plan.external_topics.values()
            admin.create_topics([NewTopic(topic.name, topic.partitions or 1) for topic in topics])
        return plan

    def write(self, *values: str, topic: str = "lines", key: str | None = None, at: int = 1000) -> None:
        data = None if key is None else key.encode()
        self.log.write([(f"{self.name}.{topic}", data, value.encode(), at, None, None) for value in values])

    def run(self, plan: Plan, *, force: bool = False) -> None:
        with closing(open_log(plan)) as log:
            application = Application(plan, log)
            application.force = force
            application.run(until_idle=True, stop=threading.Event())

    def migrator(self, old: Plan, new: Plan, renames: Mapping[str, str] | None = None) -> Migrator:
        return Migrator(old, new, self.log.transport, renames or {})

    def migrate(self, old: Plan, new: Plan, renames: Mapping[str, str] | None = None) -> Migration:
        """Take the steps, and return what is found after them."""
        migrator = self.migrator(old, new, renames)
        migrator.execute()
        return migrator.prepare()

    def table(self, topic: str) -> dict[bytes | None, bytes | None]:
        """The last value of each key of a topic of the log."""
        return {raw.key: raw.value for raw in self.log.read(topic, committed_only=True)}

    def counts(self) -> dict[str, int]:
        found = self.table(f"{self.name}.counts")
        return {(key or b"").decode(): int.from_bytes(value or b"", "big") for key, value in found.items()}

    def changelog(self, store: str, application: str = "") -> str:
        return f"{application or self.name}-{store}-changelog"


def content(raws: list[Raw]) -> list[tuple]:
    """Records without their offsets."""
    return [(raw.partition, raw.key, raw.value, raw.timestamp, raw.headers) for raw in raws]


def shown(migration: object) -> list[str]:
    return [f"{step.kind} {step.subject}: {step.state}" for step in migration.steps]  # type: ignore[attr-defined]
