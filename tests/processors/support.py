"""Topologies with Python modules beside them, run by the driver."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streamkit.plan import load
from streamkit.runtime.driver import Driver

HEAD = """\
streamkit: 1
application: app
config: {{{config}}}
topics:
  in: {{topic: in-topic, value: string}}
  more: {{value: string}}
  out: {{value: {value}}}
  lost: {{key: bytes, value: bytes}}
"""


class Running:
    """A driver over a topology file that is written beside its module."""

    def __init__(self, folder: Path, module: str, rest: str, value: str = "string", config: str = ""):
        (folder / "user_code.py").write_text(textwrap.dedent(module), encoding="utf-8")
        self.file = folder / "topology.yaml"
        self.file.write_text(HEAD.format(value=value, config=config) + textwrap.dedent(rest), encoding="utf-8")
        self.driver = Driver(load(self.file))

    def send(self, key: Any, value: Any, timestamp: int = 0, topic: str = "in-topic", **more: Any) -> list[tuple]:
        """Process a record and return what came out as (topic, key, value, timestamp)."""
        record = {"topic": topic, "key": key, "value": value, "timestamp": timestamp, **more}
        return short(self.driver.pipe(record))

    def advance(self, by_ms: int) -> list[tuple]:
        """Move the clock."""
        return short(self.driver.advance(by_ms))

    @property
    def dropped(self) -> int:
        """How many records were dropped."""
        assert self.driver._task is not None
        return self.driver._task.dropped_total


def short(records: Iterable[dict]) -> list[tuple]:
    """Return records as (topic, key, value, timestamp)."""
    return [(record["topic"], record["key"], record["value"], record["timestamp"]) for record in records]
