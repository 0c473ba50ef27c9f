"""An application whose stores are kept by one engine, then by the other, or by none that is known."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import streamkit
from streamkit.distribution import install_command
from streamkit.state.engines import open_maps
from streamkit.state.engines.open_maps import DEFAULT_ENGINE, ENGINES, is_installed
from tests.requirements import EVERY_ENGINE

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


UNLOGGED = TOPOLOGY.replace("count: counts", "count: {store: {name: counts, logging: false}}")
"""A task whose only store has no changelog."""
MIXED = UNLOGGED.replace("pipelines:\n", "pipelines:\n  q: {stream: words, steps: [group_by_key, count: logged]}\n")
"""A task with such a store, and with one that has a changelog."""


def count(folder: Path, engine: str | None = None, text: str = TOPOLOGY) -> dict[str, int]:
    """Count one word more; return the rows of the store."""
    settings = {
        "bootstrap.servers": f"embedded:{folder / 'log'}",
        "state.dir": str(folder / "state"),
        **({"state.engine": engine} if engine else {}),
    }
    topology = streamkit.load(text, settings)
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


@pytest.mark.parametrize("written", EVERY_ENGINE)
def test_without_the_setting_the_engine_that_wrote_the_state_keeps_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, written: str
):
    assert count(tmp_path, written) == {"a": 1}
    task = tmp_path / "state" / "app" / "0_0"
    inode = (task / written / "counts").stat().st_ino
    with caplog.at_level(logging.WARNING):
        assert count(tmp_path) == {"a": 2}
    assert [message for message in caplog.messages if "restored" in message] == []
    assert json.loads((task / ".streamkit-state").read_text())["engine"] == written
    assert [path.name for path in task.iterdir() if path.is_dir()] == [written]
    assert (task / written / "counts").stat().st_ino == inode


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_a_store_without_a_changelog_that_lost_its_last_commit_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, engine: str
):
    """As after the loss of LevelDB's write-ahead log, or where a task returns to a machine."""
    state, task = tmp_path / "state", tmp_path / "state" / "app" / "0_0" / engine / "counts"
    for number in (1, 2):
        assert count(tmp_path, engine, UNLOGGED) == {"a": number}
        if number == 1:
            shutil.copytree(task, tmp_path / "earlier")
    assert caplog.messages == []
    shutil.rmtree(task)
    shutil.copytree(tmp_path / "earlier", task)
    assert count(tmp_path, engine, UNLOGGED) == {"a": 2}
    assert ["has words-0 up to 1, and not what is committed" in line for line in caplog.messages] == [True]
    caplog.clear()
    shutil.rmtree(state)
    assert count(tmp_path, engine, UNLOGGED) == {"a": 1}
    assert ["counts has no input, and not what is committed" in line for line in caplog.messages] == [True]


def test_an_engine_that_is_missing_is_named_before_the_state_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    task = tmp_path / "state" / "app" / "0_0"
    (task / "leveldb" / "counts").mkdir(parents=True)
    (task / ".streamkit-state").write_text(json.dumps({"engine": "leveldb", "format": 2}))
    monkeypatch.setattr(open_maps, "is_installed", lambda engine: engine != "leveldb")
    with pytest.raises(streamkit.ConfigError, match="0_0, which leveldb wrote, needs the package plyvel: ") as raised:
        count(tmp_path)
    assert "set state.engine to rocksdb, which restores it" in str(raised.value)
    assert (task / "leveldb" / "counts").is_dir()
    assert count(tmp_path, "rocksdb") == {"a": 1}


def test_new_state_is_of_one_engine_whatever_the_python(tmp_path: Path):
    count(tmp_path)
    assert (
        json.loads((tmp_path / "state/app/0_0/.streamkit-state").read_text())["engine"] == DEFAULT_ENGINE == "rocksdb"
    )


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


@pytest.mark.parametrize("written", EVERY_ENGINE)
@pytest.mark.parametrize("text", [UNLOGGED, MIXED], ids=["alone", "mixed"])
def test_a_store_without_a_changelog_is_used_again(tmp_path: Path, text: str, written: str):
    assert count(tmp_path, written, text) == {"a": 1}
    for number in (2, 3):
        assert count(tmp_path, text=text) == {"a": number}


def was_in_use(task: Path, engine: str) -> None:
    (task / ".streamkit-state").write_text(json.dumps({"engine": engine, "format": 2, "inode": 1}))


def unmarked(task: Path, engine: str) -> None:
    """As Kafka Streams leaves it."""
    (task / ".streamkit-state").unlink()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (was_in_use, "was copied while a process used it"),
        (unmarked, "was written by Kafka Streams, not rocksdb"),
    ],
)
@pytest.mark.parametrize("text", [UNLOGGED, MIXED], ids=["alone", "mixed"])
def test_a_store_without_a_changelog_is_never_put_aside(
    tmp_path: Path, text: str, change: Callable[[Path, str], None], words: str
):
    assert count(tmp_path, "rocksdb", text) == {"a": 1}
    task = tmp_path / "state" / "app" / "0_0"
    mark = (task / ".streamkit-state").read_text()
    change(task, "rocksdb")
    for _ in range(2):
        with pytest.raises(streamkit.StateError, match=words) as raised:
            count(tmp_path, "rocksdb", text)
        assert f"store counts in {task / 'rocksdb' / 'counts'}" in str(raised.value)
        assert "it has no changelog to be restored from: delete it to begin without it" in str(raised.value)
    assert not (tmp_path / "state" / "app" / "put-aside").exists()
    (task / ".streamkit-state").write_text(mark)
    # The two records of the starts that failed are counted too.
    assert count(tmp_path, "rocksdb", text) == {"a": 4}


@pytest.mark.skipif(not all(map(is_installed, ENGINES)), reason=f"needs both engines: {install_command('leveldb')}")
def test_another_engine_does_not_begin_without_a_store_that_has_no_changelog(tmp_path: Path):
    assert count(tmp_path, "rocksdb", MIXED) == {"a": 1}
    with pytest.raises(streamkit.StateError, match="was written by rocksdb, not leveldb; it has no changelog"):
        count(tmp_path, "leveldb", MIXED)
    shutil.rmtree(tmp_path / "state" / "app" / "0_0" / "rocksdb" / "counts")
    assert count(tmp_path, "leveldb", MIXED) == {"a": 2}
