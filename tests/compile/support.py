"""Topologies in a folder, run by the driver."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from streamkit.plan import load
from streamkit.runtime.driver import Driver

HEAD = """\
streamkit: 1
application: app
config: {%s}
topics:
  in: {}
  n: {value: long}
  out: {}
  other: {}
  longs: {value: long}
  text: {value: string}
  lost: {key: bytes, value: bytes}
pipelines:
"""
FIRST_LINE = HEAD.count("\n") + 1


def driver_of(folder: Path, pipelines: str, config: str = "", head: str = HEAD) -> Driver:
    """Return a driver of pipelines below the usual topics."""
    path = folder / "topology.yaml"
    body = textwrap.indent(textwrap.dedent(pipelines).strip() + "\n", "  ")
    path.write_text((head % config if "%s" in head else head) + body, encoding="utf-8")
    return Driver(load(path))


def record(value: Any, key: Any = "k", topic: str = "in", timestamp: int = 5, **more: Any) -> dict:
    """Return a record."""
    return {"topic": topic, "key": key, "value": value, "timestamp": timestamp, **more}


def dropped(driver: Driver) -> int:
    """Return how many records were dropped."""
    assert driver._task is not None
    return driver._task.dropped_total
