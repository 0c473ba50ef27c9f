"""A changelog with rows of another form under the same name, where no mark in the state directory says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.support import streamkit

COUNT = """\
streamkit: 1
application: kinds
config: {{bootstrap.servers: "embedded:{folder}/log", state.dir: "{folder}/state"}}
topics: {{in: {{value: json, partitions: 1}}, out: {{value: json, partitions: 1}}}}
pipelines:
  p:
    stream: in
    steps:
      - group_by_key
      - count: counts
      - to_stream: {{key: str(key)}}
    to: out
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A topology whose store has a row in its changelog."""
    path = tmp_path / "topology.yaml"
    path.write_text(COUNT.format(folder=tmp_path))
    assert streamkit("produce", path, "in", stdin='{"key": "a", "value": 1}\n').code == 0
    assert streamkit("run", path, "--until-idle").code == 0
    path.write_text(path.read_text().replace("- count: counts", "- window: {tumbling: 1m}\n      - count: counts"))
    return path


def test_the_start_names_both_forms_and_what_to_do(file: Path) -> None:
    done = streamkit("run", file, "--until-idle")
    assert done.code == 1
    assert "store counts: it held rows by key, holds windows" in done.err
    assert "`streamkit reset-offsets`" in done.err
    assert "`streamkit diff OLD NEW`" in done.err


def test_rows_that_cannot_be_restored_are_explained(file: Path) -> None:
    shutil.rmtree(file.parent / "state")
    done = streamkit("run", file, "--until-idle")
    assert done.code == 1
    (line,) = [line for line in done.err.splitlines() if "store counts" in line]
    assert "store counts holds windows with the key serde string and the value serde long" in line
    assert "records 0 to 0 of its changelog kinds-counts-changelog, partition 0" in line
    assert "`streamkit reset-offsets`" in line
    assert "`streamkit diff OLD NEW`" in line
    assert "unpack" not in line.partition("have others")[0]
