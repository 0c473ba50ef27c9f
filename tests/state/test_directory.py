"""Checkpoints and the state directory."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from streamkit.errors import StateError, StateLockedError
from streamkit.record import TopicPartition
from streamkit.state.directory import (
    OFFSET_UNKNOWN,
    StateDirectory,
    delete_checkpoint,
    read_checkpoint,
    stored,
    unsealed,
    write_checkpoint,
)


def test_checkpoints_have_the_format_of_kafka_streams(tmp_path: Path) -> None:
    offsets = {TopicPartition("app-counts-changelog", 0): 12, TopicPartition("other", 1): OFFSET_UNKNOWN}
    write_checkpoint(tmp_path, offsets)
    assert (tmp_path / ".streamkit-checkpoint").read_text() == "0\n2\napp-counts-changelog 0 12\nother 1 -4\n"
    assert read_checkpoint(tmp_path) == offsets
    assert [path.name for path in tmp_path.iterdir()] == [".streamkit-checkpoint"]


def test_no_offsets_mean_no_file(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {TopicPartition("t", 0): 1})
    write_checkpoint(tmp_path, {})
    assert read_checkpoint(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []
    write_checkpoint(tmp_path, {TopicPartition("t", 0): 1})
    delete_checkpoint(tmp_path)
    assert read_checkpoint(tmp_path) == {}


@pytest.mark.parametrize("text", ["", "1\n0\n", "0\n2\nt 0 1\n", "0\n1\nt zero 1\n", "0\n1\nt 0\n"])
def test_damaged_checkpoints_are_state_errors(tmp_path: Path, text: str) -> None:
    (tmp_path / ".streamkit-checkpoint").write_text(text)
    with pytest.raises(StateError, match="checkpoint"):
        read_checkpoint(tmp_path)


def test_impossible_offsets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="-1"):
        write_checkpoint(tmp_path, {TopicPartition("t", 0): -1})


def test_a_missing_directory_is_a_state_error(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="can't be used"):
        write_checkpoint(tmp_path / "gone", {TopicPartition("t", 0): 1})


def test_a_task_that_another_thread_wipes_meanwhile_is_no_error(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path, "app")

    def come_and_go() -> None:
        for _ in range(1_000):
            (directory.task("0_0") / "x").touch()
            directory.wipe("0_0")

    with ThreadPoolExecutor() as pool:
        other = pool.submit(come_and_go)
        while not other.done():
            assert directory.tasks() in ([], ["0_0"])
            assert directory.clean(["0_0"], 0) == directory.clean([], 0) == []
    other.result()


def test_layout_of_the_state_directory(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path / "state", "app")
    (directory.task("1_10") / "x").touch()
    (directory.task("1_2") / "x").touch()
    directory.task("0_0")
    directory.global_state()
    names = {path.name for path in (tmp_path / "state" / "app").iterdir()}
    assert names == {".lock", "0_0", "1_2", "1_10", "global"}
    assert directory.tasks() == ["1_2", "1_10"]
    directory.close()


def test_settled_ids_are_kept(tmp_path: Path) -> None:
    with closing(StateDirectory(tmp_path, "app")) as directory:
        assert directory.settled_ids() == []
        for name in ("app-1", "app-2", "app-1"):
            directory.note_settled(name, True)
    with closing(StateDirectory(tmp_path, "app")) as directory:
        assert sorted(directory.settled_ids()) == ["app-1", "app-2"]
        directory.note_settled("app-1", False)
        assert directory.settled_ids() == ["app-2"]
        path = directory.path / "settled-transactions"
        path.write_text(path.read_text().replace("app-2", "app-3"))
        assert directory.settled_ids() == []


def test_the_process_id_stays(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path, "app")
    first = directory.process_id()
    path = directory.path / "kafka-streams-process-metadata"
    # Java passes over fields that it does not know.
    assert json.loads(path.read_text()) == {"processId": str(first), "inode": directory.path.stat().st_ino}
    directory.close()
    again = StateDirectory(tmp_path, "app")
    assert again.process_id() == first
    path.write_text("{}")
    assert again.process_id() != first
    again.close()


def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    owner = StateDirectory(tmp_path, "app")
    with pytest.raises(StateLockedError, match="Another process") as raised:
        StateDirectory(tmp_path, "app")
    assert "\n" not in str(raised.value)
    other = "import sys; from streamkit.state.directory import StateDirectory; StateDirectory(sys.argv[1], 'app')"
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", other, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": root})
    assert "StateLockedError" in done.stderr
    owner.close()
    StateDirectory(tmp_path, "app").close()


def test_obsolete_tasks_are_cleaned(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path, "app")
    for task in ("0_0", "0_1", "0_2"):
        path = directory.task(task)
        (path / "rows").touch()
        os.utime(path, (100, 100 if task != "0_2" else 300))
    assert directory.clean({"0_0"}, older_than=200) == ["0_1"]
    assert directory.tasks() == ["0_0", "0_2"]
    directory.wipe("0_0")
    directory.wipe("0_0")
    assert directory.tasks() == ["0_2"]
    directory.close()


def test_the_group_of_the_owner_may_write(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path / "state", "app", group_writes=True)
    for path in (tmp_path / "state", directory.path, directory.task("0_0"), directory.global_state()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o770
    directory.close()


def test_a_file_in_the_way_is_a_state_error(tmp_path: Path) -> None:
    (tmp_path / "app").write_text("")
    with pytest.raises(StateError, match="app"):
        StateDirectory(tmp_path, "app")


@pytest.mark.parametrize(
    ("number", "words"), [(28, "No space is left"), (30, "choose another state.dir"), (13, "choose")]
)
def test_errors_of_the_system_are_translated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(StateError, match=words):
        write_checkpoint(tmp_path, {TopicPartition("t", 0): 1})


def test_directories_are_not_for_everybody(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path, "app")
    assert stat.S_IMODE(directory.task("0_0").stat().st_mode) & 0o007 == 0
    directory.close()


# -- Engines ---------------------------------------------------------------------------------------------------------


def claimed(tmp_path: Path, engine: str) -> tuple[StateDirectory, Path]:
    directory = StateDirectory(tmp_path, "app", engine)
    return directory, directory.claim("0_1")


def test_a_directory_names_the_engine_that_wrote_it_and_is_kept_for_it(tmp_path: Path) -> None:
    directory, path = claimed(tmp_path, "rocksdb")
    mark = {"engine": "rocksdb", "format": 2}
    assert unsealed((path / ".streamkit-state").read_text()) == {**mark, "inode": path.stat().st_ino}
    directory.release("0_1")
    assert unsealed((path / ".streamkit-state").read_text()) == mark
    (path / "rocksdb").mkdir()
    directory.close()
    assert (claimed(tmp_path, "rocksdb")[1] / "rocksdb").exists()


@pytest.mark.parametrize(
    ("written", "folder", "engine", "aside"),
    [
        ("leveldb", "leveldb", "rocksdb", "0_1-leveldb"),
        ("rocksdb", "rocksdb", "leveldb", "0_1-rocksdb"),
        (None, "leveldb", "rocksdb", "0_1-leveldb"),
        (None, "rocksdb", "rocksdb", "0_1-kafka-streams"),
    ],
)
def test_what_another_engine_wrote_is_put_aside_with_its_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, written: str | None, folder: str, engine: str, aside: str
) -> None:
    for _ in range(2):  # the second time over what was put aside before
        if written is None:
            path = tmp_path / "app" / "0_1"
            path.mkdir(parents=True)
        else:
            first, path = claimed(tmp_path, written)
            first.close()
        (path / folder / "counts").mkdir(parents=True, exist_ok=True)
        write_checkpoint(path, {TopicPartition("t", 0): 1})
        caplog.clear()
        directory, again = claimed(tmp_path, engine)
        assert read_checkpoint(again) == {}
        assert not (again / folder).exists()
        assert read_checkpoint(tmp_path / "app" / "put-aside" / aside) == {TopicPartition("t", 0): 1}
        assert len(caplog.messages) == 1
        assert "restored from its changelogs" in caplog.messages[0]
        assert directory.tasks() == ["0_1"]
        directory.wipe("0_1")
        directory.close()


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ('{"engine": "paper", "format": 1}', "engine 'paper'"),
        ('{"engine": "leveldb", "format": 3}', "newer streamkit"),
        ("{}", "can't be read"),
        ("nonsense", "can't be read"),
    ],
)
def test_a_directory_that_is_not_understood_is_left_as_it_is(tmp_path: Path, mark: str, words: str) -> None:
    path = tmp_path / "app" / "0_1"
    path.mkdir(parents=True)
    (path / ".streamkit-state").write_text(mark)
    (path / "leveldb").mkdir()
    with pytest.raises(StateError, match=words):
        claimed(tmp_path, "leveldb")
    assert sorted(os.listdir(path)) == [".streamkit-state", "leveldb"]


# -- Copies, and ends half way -----------------------------------------------------------------------------------------


def test_a_copy_of_a_directory_that_was_in_use_is_put_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory, path = claimed(tmp_path / "first", "leveldb")
    (path / "leveldb" / "counts").mkdir(parents=True)
    process = directory.process_id()
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    directory.close()
    # Where it is, it is what a crash has left.
    assert (claimed(tmp_path / "first", "leveldb")[1] / "leveldb").exists()
    assert caplog.messages == []
    copy, path = claimed(tmp_path / "second", "leveldb")
    assert not (path / "leveldb").exists()
    assert (tmp_path / "second" / "app" / "put-aside" / "0_1-copy" / "leveldb" / "counts").exists()
    assert len(caplog.messages) == 1
    assert "was copied while a process used it, so its files may not match: it is put aside" in caplog.messages[0]
    assert copy.process_id() != process


def test_a_copy_of_a_directory_that_was_closed_is_taken(tmp_path: Path) -> None:
    directory, path = claimed(tmp_path / "first", "leveldb")
    (path / "leveldb" / "counts").mkdir(parents=True)
    directory.release("0_1")
    directory.close()
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    assert (claimed(tmp_path / "second", "leveldb")[1] / "leveldb" / "counts").exists()


@pytest.mark.parametrize("whole", [False, True])
def test_what_a_killed_process_was_deleting_is_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    directory, path = claimed(tmp_path, "leveldb")
    store = path / "leveldb" / "counts"
    store.mkdir(parents=True)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        directory.wipe("0_1") if whole else directory.wipe_store("0_1", "counts")
    directory.close()
    assert not store.exists()
    directory, path = claimed(tmp_path, "leveldb")
    directory.wipe_store("0_1", "others")
    assert sorted(os.listdir(path)) == [".streamkit-state"] if whole else [".streamkit-state", "leveldb"]
    assert directory.tasks() == ["0_1"]


def test_a_mark_is_never_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, path = claimed(tmp_path, "leveldb")
    before = (path / ".streamkit-state").read_text()

    def killed(*_: object) -> None:
        raise OSError(errno.EIO, "killed")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", killed)
        with pytest.raises(StateError, match="killed"):
            directory.release("0_1")
    assert (path / ".streamkit-state").read_text() == before


def test_state_is_for_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "app" / "0_0").mkdir(parents=True)
    (tmp_path / "app").chmod(0o755)
    (tmp_path / "app" / "0_0").chmod(0o755)
    directory = StateDirectory(tmp_path / "new", "app")
    older = StateDirectory(tmp_path, "app")
    try:
        for each in (directory, older):
            each.process_id()
            each.claim("0_0")
        write_checkpoint(directory.path / "0_0", {TopicPartition("t", 0): 3})
        found = {path: stat.S_IMODE(path.stat().st_mode) for path in (*tmp_path.rglob("*"),)}
    finally:
        directory.close()
        older.close()
    assert len(found) > 8
    assert {path: oct(mode) for path, mode in found.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}


@pytest.mark.parametrize("link", ["app", "app/0_1", "app/global", "app/0_0/leveldb", "app/0_0/leveldb/counts"])
def test_state_behind_a_link_is_refused_by_its_name(link: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    path = tmp_path / "state" / link
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(outside)
    for use in (lambda: StateDirectory(tmp_path / "state", "app"), lambda: stored(tmp_path / "state" / "app")):
        with pytest.raises(StateError) as caught:
            use()
        assert str(caught.value).startswith(f"{path} is a symbolic link, to {outside}: ")
    assert [each.name for each in outside.iterdir()] == ["precious"]


def test_a_state_dir_that_the_user_names_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "volume")
    StateDirectory(tmp_path / "state", "app").close()
    assert (tmp_path / "volume" / "app").is_dir()
