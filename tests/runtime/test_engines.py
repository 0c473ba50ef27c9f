"""An application whose stores are kept by one engine, then by the other, or by none that is known."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

import streamkit
from streamkit.distribution import install_command
from streamkit.state.engines.open_maps import ENGINES, is_installed

TOPOLOGY = """
streamkit: 1
application: app
topics:
  words:  {key: string, value: string, partitions: 1}
  counts: {key: string, value: long, partitions: 1}
pipelines:
  p:
    stream: words
    steps:
      - group_by_key
      - count: counts
      - to_stream
    to: counts
"""


def count(folder: Path, engine: str) -> dict[str, int]:
    """Count one word more; return the rows of the store."""
    settings = {
        "bootstrap.servers": f"embedded:{folder / 'log'}",
        "state.dir": str(folder / "state"),
        "state.engine": engine,
    }
    topology = streamkit.load(TOPOLOGY, settings)
    with topology.application() as application:
        application._transport.producer().send([("words", b"a", b"x", 1, None, 0)])
        application.wait_until_idle()
        return dict(application.store("counts").all())


@pytest.mark.skipif(not all(map(is_installed, ENGINES)), reason=f"needs both engines: {install_command('leveldb')}")
def test_state_of_the_other_engine_is_put_aside_and_restored(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    for number, engine in enumerate((*ENGINES, *ENGINES[:1]), 1):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert count(tmp_path, engine) == {"a": number}
        lines = [message for message in caplog.messages if "put aside" in message]
        assert len(lines) == (number > 1)
        assert [line for line in lines if not (f"not {engine}" in line and "\n" not in line)] == []
        assert json.loads((tmp_path / "state/app/0_0/.streamkit-state").read_text())["engine"] == engine


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ({"engine": "paper", "format": 1}, "the engine 'paper'"),
        ({"engine": "rocksdb", "format": 1_000}, "newer streamkit"),
    ],
)
def test_state_that_is_not_known_ends_the_application_and_stays(tmp_path: Path, mark: dict[str, object], words: str):
    count(tmp_path, "rocksdb")
    task = tmp_path / "state" / "app" / "0_0"
    (task / ".streamkit-state").write_text(json.dumps(mark))
    before = sorted(path.relative_to(task) for path in task.rglob("*"))
    with pytest.raises(streamkit.StateError, match=words) as raised:
        count(tmp_path, "rocksdb")
    assert str(task) in str(raised.value)
    assert sorted(path.relative_to(task) for path in task.rglob("*")) == before
    assert not (tmp_path / "state" / "app" / "put-aside").exists()
