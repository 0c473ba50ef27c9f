"""Restoring from changelogs, and the checkpoints that say from where."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamkit.errors import StateError, TaskCorruptedError
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.local.local_task import LocalTask, TaskFiles, open_files
from streamkit.runtime.local.restore import Changelog, restore
from streamkit.state.directory import OFFSET_UNKNOWN, StateDirectory, read_checkpoint, write_checkpoint
from streamkit.state.engines.open_maps import DEFAULT_ENGINE
from tests.runtime.fake_log import FakeLog
from tests.runtime.harness import IN, LOG, ListStore, changelog_rows


def restored(**options: Any) -> list[bytes]:
    log = FakeLog({})
    log.append(changelog_rows(5))
    store = ListStore()
    assert restore([Changelog(store, LOG, **options)], log.consumer(None), lambda: False)
    return [key for key, _ in store.restored]


def test_restores_everything_without_a_checkpoint():
    assert restored() == [b"0", b"1", b"2", b"3", b"4"]


def test_restores_after_the_checkpoint():
    assert restored(checkpoint=2) == [b"3", b"4"]
    assert restored(checkpoint=4) == []


def test_restores_a_source_topic_up_to_what_is_committed():
    assert restored(limit=2) == [b"0", b"1"]


def test_an_offset_beyond_the_log_is_corruption():
    with pytest.raises(TaskCorruptedError, match="goes up to offset 9 of app-counts-changelog-0, which ends at 5"):
        restored(checkpoint=9)


def test_a_position_beyond_the_log_is_corruption_wherever_it_comes_from():
    changelog = Changelog(ListStore(), LOG, position=10)
    with pytest.raises(TaskCorruptedError, match="goes up to offset 9 of app-counts-changelog-0, which ends at 5"):
        changelog.begin(0, 5)
    # Else it would get into the checkpoint.
    assert changelog.position is None


def test_what_is_restored_is_committed_with_its_offset():
    log = FakeLog({})
    log.append(changelog_rows(5))
    store = ListStore()
    restore([Changelog(store, LOG, limit=3)], log.consumer(None), lambda: False)
    assert store.kept == {0: 3}


def test_offsets_follow_from_what_was_written():
    """Each commit of a transaction leaves a control record, which is there before the next transaction writes."""
    changelog = Changelog(ListStore(), LOG, position=10)
    positions = []
    for total in (3, 3, 5, 8, 8):
        changelog.wrote(total, marks=True)
        positions.append(changelog.position)
    assert positions == [13, 13, 16, 20, 20]
    changelog.wrote(10, marks=False)
    assert changelog.position == 23
    changelog.wrote(11, marks=False)
    assert changelog.position == 24


def test_checkpoints_are_written_every_10_000_records(tmp_path):
    task: Any = SimpleNamespace(task_id="0_0", partition=0, stores={"counts": ListStore()}, consumed=lambda: {IN: 7})
    held = LocalTask(TaskId(0, 0), task, TaskFiles(tmp_path), {"counts": (LOG, False)})

    held.changelogs[0].position = 0

    def checkpoint(end: int, *, enforce: bool = False) -> bool:
        held.produced[LOG.topic] = end
        held.note_positions(marks=False)
        return held.checkpoint(enforce=enforce)

    assert not checkpoint(10_000)
    assert checkpoint(10_001)
    assert read_checkpoint(tmp_path) == {LOG: 10_000}
    assert not checkpoint(20_001)
    assert checkpoint(20_001, enforce=True)


def test_a_task_that_closes_before_its_positions_are_looked_up_has_a_checkpoint_for_an_empty_changelog(tmp_path):
    """Its store was committed while the changelog had no records."""
    store = ListStore(kept={0: 0})
    task: Any = SimpleNamespace(task_id="0_0", partition=0, stores={"counts": store}, consumed=dict)
    held = LocalTask(TaskId(0, 0), task, TaskFiles(tmp_path), {"counts": (LOG, False)})
    assert held.checkpoint(enforce=True)
    assert read_checkpoint(tmp_path) == {LOG: OFFSET_UNKNOWN}


def older(directory: StateDirectory) -> Path:
    """Return the directory of a task as a streamkit left it whose stores did not hold offsets."""
    path = directory.task("0_0")
    (path / ".streamkit-state").write_text(json.dumps({"engine": DEFAULT_ENGINE, "format": 1}))
    return path


def test_exactly_once_trusts_no_state_of_an_older_streamkit_without_a_checkpoint(tmp_path):
    directory = StateDirectory(tmp_path, "app")
    changelogs = {"counts": (LOG, False)}
    (older(directory) / DEFAULT_ENGINE).mkdir()
    assert open_files(directory, "0_0", changelogs, eos=True).offsets == {}
    assert [path.name for path in directory.task("0_0").iterdir()] == [".streamkit-state"]
    write_checkpoint(older(directory), {LOG: 3})
    (directory.task("0_0") / DEFAULT_ENGINE / "counts").mkdir(parents=True)
    assert open_files(directory, "0_0", changelogs, eos=True).offsets == {LOG: 3}


def test_a_store_without_a_changelog_is_not_deleted_with_untrusted_state(tmp_path):
    directory = StateDirectory(tmp_path, "app")
    store = older(directory) / DEFAULT_ENGINE / "unlogged"
    store.mkdir(parents=True)
    with pytest.raises(
        StateError, match=f"store unlogged in {store} may have changes that were never committed; it has"
    ):
        open_files(directory, "0_0", {"counts": (LOG, False)}, eos=True, unlogged=["unlogged"])
    assert store.exists()
    assert open_files(directory, "0_0", {"counts": (LOG, False)}, eos=False, unlogged=["unlogged"]).offsets == {}
    assert store.exists()


def test_a_checkpoint_beside_stores_with_offsets_is_ignored(tmp_path):
    directory = StateDirectory(tmp_path, "app")
    directory.claim("0_0")
    write_checkpoint(directory.task("0_0"), {LOG: 3})
    assert open_files(directory, "0_0", {"counts": (LOG, False)}, eos=True).offsets is None


def test_a_store_that_the_checkpoint_does_not_name_is_restored_into_nothing(tmp_path):
    directory = StateDirectory(tmp_path, "app")
    for store in ("counts", "others", "unlogged"):
        (older(directory) / DEFAULT_ENGINE / store).mkdir(parents=True)
    foreign = TopicPartition("another-counts-changelog", 0)
    write_checkpoint(directory.task("0_0"), {LOG: 3, foreign: 9})
    changelogs = {"counts": (LOG, False), "others": (TopicPartition("app-others-changelog", 0), False)}
    assert open_files(directory, "0_0", changelogs, eos=False).offsets == {LOG: 3}
    assert sorted(os.listdir(directory.task("0_0") / DEFAULT_ENGINE)) == ["counts", "unlogged"]


@pytest.mark.parametrize("eos", [False, True])
def test_a_store_without_files_is_restored_regardless_of_the_checkpoint(tmp_path, eos):
    directory = StateDirectory(tmp_path, "app")
    write_checkpoint(older(directory), {LOG: 3})
    assert open_files(directory, "0_0", {"counts": (LOG, False)}, eos=eos).offsets == {}
