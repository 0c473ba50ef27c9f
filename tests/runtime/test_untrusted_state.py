"""State on disk that is not, or not all, what the changelog has: offsets, older formats, damage, copies, a full disk."""

from __future__ import annotations

import json
import random
import shutil
import threading
from pathlib import Path

import pytest

from streamkit.errors import StateError
from streamkit.record import TopicPartition
from streamkit.state.definitions import BytesMap
from streamkit.state.engines.open_maps import DEFAULT_ENGINE, open_map
from streamkit.state.store_offsets import StoreOffsets, decode_offsets
from streamkit.transport.log_interface import NewTopic
from tests.broker.support import until
from tests.runtime.counting import PARTITIONS, by_key, send
from tests.runtime.one_thread import CHANGELOG, GUARANTEES, KEYS, Started, counted, rows_of, said


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_an_offset_that_the_changelog_does_not_have_is_not_trusted(log, tmp_path, guarantee, caplog):
    with Started(log, tmp_path / "state", processing_guarantee=guarantee):
        send(log, 2)
        counted(log, 2)
    directory = tmp_path / "state" / "app"
    # One is ahead of its changelog; of the other the log has forgotten what came next.
    change_offset(directory / "0_0", 0, 77)
    change_offset(directory / "0_1", 1, 1)
    admin = log.admin()
    admin.delete_records({TopicPartition(CHANGELOG, 1): 2})
    admin.close()
    with Started(log, tmp_path / "state", processing_guarantee=guarantee):
        send(log, 1)
        counted(log, 3)
    assert len(said(caplog, "restored from its changelogs")) == 2
    assert said(caplog, f"{CHANGELOG}-1, and its records from 1 to 1 were deleted since, by the topic's retention")


def test_stores_of_inputs_without_committed_offsets_are_named(log, tmp_path, caplog):
    for total in (1, 2):
        with Started(log, tmp_path / "state", processing_guarantee="exactly_once_v2"):
            send(log, 1)
            counted(log, total)
        assert len(said(caplog, "no offset of its inputs is committed")) == (total - 1) * PARTITIONS
        admin = log.admin()
        # The offsets of the group go with the topic.
        admin.delete_topics(["words"])
        admin.create_topics([NewTopic("words", PARTITIONS)])
        admin.close()


def change_offset(task: Path, partition: int, offset: int) -> None:
    """Have the store of a task say another offset than that of its rows."""
    rows = stored(task)
    found = decode_offsets(rows.metadata or b"")
    assert found.positions == {partition: 4}
    rows.metadata = StoreOffsets(found.owner, {partition: offset}).encode()
    rows.commit()
    rows.close()


def stored(task: Path) -> BytesMap:
    return open_map(DEFAULT_ENGINE, task / DEFAULT_ENGINE / "counts")


def as_an_older_streamkit_left_it(task: Path) -> None:
    """Take the offsets out of a store, and the format of the directory back."""
    rows = stored(task)
    rows.metadata = None
    rows.put(b"", None)  # the metadata goes with a row
    rows.commit()
    rows.close()
    (task / ".streamkit-state").write_text(json.dumps({"engine": DEFAULT_ENGINE, "format": 1}))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_what_an_older_streamkit_left_is_taken_by_its_checkpoint_once(log, tmp_path, guarantee, caplog):
    with Started(log, tmp_path / "state", processing_guarantee=guarantee):
        send(log, 2)
        counted(log, 2)
    for number in range(PARTITIONS):
        as_an_older_streamkit_left_it(tmp_path / "state" / "app" / f"0_{number}")
    (tmp_path / "state" / "app" / "0_1" / ".streamkit-checkpoint").unlink()
    with Started(log, tmp_path / "state", processing_guarantee=guarantee) as again:
        send(log, 1)
        counted(log, 3)
    assert sorted(each.start or 0 for event, each in again.events if event == "start") == [0, 4, 4]
    for number in range(PARTITIONS):
        (tmp_path / "state" / "app" / f"0_{number}" / ".streamkit-checkpoint").unlink()
    with Started(log, tmp_path / "state", processing_guarantee=guarantee) as third:
        send(log, 1)
        counted(log, 4)
    assert [each.start for event, each in third.events if event == "start"] == [6, 6, 6]
    assert not said(caplog, "restored")[3:]


def test_no_damage_of_files_after_a_kill_changes_a_count(log, tmp_path, caplog):
    state, draw = tmp_path / "state", random.Random(12)
    with Started(log, state, processing_guarantee="exactly_once_v2"):
        send(log, 2)
        counted(log, 2)
        # As a process leaves them that is killed; the marks alone stop a start.
        stores = (path for path in state.glob(f"app/*/{DEFAULT_ENGINE}/**/*") if path.is_file())
        files = {path: path.read_bytes() for path in stores if path.name not in ("LOCK", "LOG")}
    for total in range(3, 7):
        for path in state.glob(f"app/*/{DEFAULT_ENGINE}"):
            shutil.rmtree(path)
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        for path in draw.sample(sorted(files), 5):
            content = bytearray(files[path])
            cut = draw.randrange(len(content) + 1)
            if total % 2:
                path.write_bytes(content[:cut])
            elif cut:
                content[cut - 1] ^= 1 << draw.randrange(8)
                path.write_bytes(content)
            else:
                path.unlink()
        with Started(log, state, processing_guarantee="exactly_once_v2"):
            send(log, 1)
            counted(log, total)
    assert said(caplog, "it is deleted, and restored from its changelog")


def test_state_of_others_is_deleted_and_restored(log, tmp_path, caplog):
    """Directories that were exchanged, a layout that has changed, rows without offsets, a changelog that was made again."""
    with Started(log, tmp_path / "state"):
        send(log, 2)
        counted(log, 2)
    app = tmp_path / "state" / "app"
    (app / "0_0").rename(app / "0_9")
    (app / "0_1").rename(app / "0_0")
    (app / "0_9").rename(app / "0_1")
    rows = stored(app / "0_2")
    rows.metadata = None
    rows.put(b"k5", (1).to_bytes(16))
    rows.commit()
    rows.close()
    with Started(log, tmp_path / "state"):
        send(log, 1)
        counted(log, 3)
    deleted = said(caplog, "it is deleted, and restored from its changelog")
    assert ["partition 1, not 0" in deleted[0], "partition 0, not 1" in deleted[1]] == [True, True]
    assert "does not record how much of its changelog it contains" in deleted[2]
    caplog.clear()
    admin = log.admin()
    admin.delete_topics([CHANGELOG])
    admin.create_topics([NewTopic(CHANGELOG, PARTITIONS)])
    admin.close()
    with Started(log, tmp_path / "state"):
        send(log, 1)
        until(lambda: len(rows_of(log)) == 4 * KEYS, "it counts")
    assert len(said(caplog, f"follows a topic {CHANGELOG} that was deleted since")) == PARTITIONS
    assert set(by_key(rows_of(log))["k0"][-1:]) == {1}


def test_files_that_were_cut_short_are_deleted_and_restored(log, tmp_path, caplog):
    """LevelDB notices a short table only when it reads it, which is while records are processed."""
    guarantee = "exactly_once_v2"  # else what was counted before the damage showed may count twice
    with Started(log, tmp_path / "state", processing_guarantee=guarantee):
        send(log, 2)
        counted(log, 2)
    app = tmp_path / "state" / "app"
    for number, name in enumerate(("CURRENT", "MANIFEST-*", "*.[ls][ds][bt]")):
        # Opening makes a table of the log; the metadata is written again, so that it is not in the table.
        rows = stored(app / f"0_{number}")
        rows.put(b"", None)
        rows.commit()
        rows.close()
        files = list((app / f"0_{number}" / DEFAULT_ENGINE / "counts").glob(name))
        assert files
        for file in files:
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with Started(log, tmp_path / "state", processing_guarantee=guarantee):
        send(log, 1)
        counted(log, 3)
    assert by_key(rows_of(log)) == {f"k{key}": [1, 2, 3] for key in range(KEYS)}
    lines = [message for message in caplog.messages if "damaged" in message]
    assert [sum(f"0_{number}" in line for line in lines) for number in range(PARTITIONS)] == [1, 1, 1], lines


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_directory_that_was_copied_while_it_was_in_use(log, tmp_path, guarantee, caplog):
    with Started(log, tmp_path / "state", processing_guarantee=guarantee):
        send(log, 2)
        counted(log, 2)
        shutil.copytree(tmp_path / "state", tmp_path / "copy")
        send(log, 1)
        counted(log, 3)
    with Started(log, tmp_path / "copy", processing_guarantee=guarantee):
        send(log, 1)
        counted(log, 4)
    assert by_key(rows_of(log)) == {f"k{key}": [1, 2, 3, 4] for key in range(KEYS)}
    assert len(said(caplog, "was copied while a process used it")) == PARTITIONS


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_disk_that_is_full_while_a_commit_is_written(log, tmp_path, guarantee, monkeypatch, caplog):
    """The log has the commit by then: the next start takes what is missing from the changelog."""
    engine = type(open_map(DEFAULT_ENGINE, tmp_path / "any"))
    write, full = engine._write, threading.Event()

    def fails(rows, items):
        if full.is_set() and rows._path.parent.parent.name == "0_1":
            raise OSError(28, "No space left on device")
        write(rows, items)

    monkeypatch.setattr(engine, "_write", fails)
    started = Started(log, tmp_path / "state", processing_guarantee=guarantee)
    started.__enter__()
    send(log, 2)
    counted(log, 2)
    full.set()
    send(log, 1)
    until(lambda: started.thread.error, "the thread ends")
    with pytest.raises(StateError, match=r"No space is left for the store in .*0_1"):
        started.__exit__()
    full.clear()
    with Started(log, tmp_path / "state", processing_guarantee=guarantee):
        send(log, 1)
        counted(log, 4)
    assert by_key(rows_of(log)) == {f"k{key}": [1, 2, 3, 4] for key in range(KEYS)}
    assert not said(caplog, "deleted")
