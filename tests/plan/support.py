"""Plans from the text of a topology."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from streamkit.errors import TopologyError
from streamkit.plan import load
from streamkit.plan.model import Plan

HEAD = """streamkit: 1
application: app
topics:
  a: {value: string, partitions: 2}
  b: {value: string, partitions: 2}
  c: {value: string, partitions: 3}
  by-number: {key: long, value: string}
  out: {value: string}
pipelines:
"""


def plan_of(folder: Path, pipelines: str, head: str = HEAD) -> Plan:
    """Return the plan of pipelines below the usual topics."""
    path = folder / "topology.yaml"
    path.write_text(head + textwrap.indent(textwrap.dedent(pipelines), "  "), encoding="utf-8")
    return load(path)


def problems_of(folder: Path, pipelines: str, head: str = HEAD) -> list[str]:
    """Return what is wrong with pipelines."""
    with pytest.raises(TopologyError) as caught:
        plan_of(folder, pipelines, head)
    return [problem.message for problem in caught.value.problems]


def line(folder: Path, pipelines: str, head: str = HEAD) -> tuple[int, int]:
    """Return line (counted from the first one of `pipelines`) and column of the first problem."""
    with pytest.raises(TopologyError) as caught:
        plan_of(folder, pipelines, head)
    position = caught.value.problems[0].position
    return position.line - head.count("\n"), position.column
