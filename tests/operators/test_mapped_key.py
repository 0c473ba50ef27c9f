"""Joins with a global table see the key that they looked up (KIP-1340)."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamkit.errors import TopologyError
from streamkit.plan import load
from streamkit.runtime.driver import Driver

TEXT = """
streamkit: 1
application: app
topics: {{in: {{value: string}}, rates: {{value: string}}, out: {{value: string}}}}
pipelines:
  rates: {{{table}: rates}}
  out:
    stream: in
    steps:
      - {join}: {{with: rates, {on}value: "f'{{key}} {{mapped_key}} {{left}} {{right}}'", value_serde: string}}
    to: out
"""


def file(folder: Path, table: str, join: str, on: str) -> Path:
    path = folder / "topology.yaml"
    path.write_text(TEXT.format(table=table, join=join, on=on))
    return path


@pytest.mark.parametrize(("join", "unmatched"), [("join", []), ("left_join", ["k NONE none None"])])
def test_the_value_sees_both_keys(tmp_path: Path, join: str, unmatched: list[str]) -> None:
    driver = Driver(load(file(tmp_path, "global_table", join, "on: value.upper(), ")))
    driver.pipe({"topic": "rates", "key": "EUR", "value": "7", "timestamp": 1})
    found = driver.pipe({"topic": "in", "key": "k", "value": "eur", "timestamp": 2})
    assert [each["value"] for each in found] == ["k EUR eur 7"]
    found = driver.pipe({"topic": "in", "key": "k", "value": "none", "timestamp": 3})
    assert [each["value"] for each in found] == unmatched


def test_other_joins_have_one_key(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r":10:.*join: only a join with a global table has `mapped_key`"):
        load(file(tmp_path, "table", "join", ""))
