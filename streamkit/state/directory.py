"""The state directory of an application on this machine (StateDirectory), with its marks and checkpoint files."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import re
import shutil
import threading
import uuid
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from streamkit.errors import StateError, StateLockedError
from streamkit.record import TaskId, TopicPartition
from streamkit.state.engines.open_maps import DEFAULT_ENGINE, ENGINES, check_engine

log = logging.getLogger(__name__)

_TASK = re.compile(r"\d+_\d+")
_PROCESS_FILE = "kafka-streams-process-metadata"
_SETTLED_FILE = "settled-transactions"
_PERMISSIONS = 0o700
"""Of directories: state is a copy of records, which may be personal. Java's are 0750."""
_GROUP_WRITES = 0o770
_GLOBAL = "global"
_PUT_ASIDE = "put-aside"
_DELETED = ".deleted-"
"""The prefix of the name of a directory that is being deleted."""


def stored(path: Path) -> list[str]:
    """Return the directories of tasks, and of global stores, below an application's directory; none if that is missing."""
    refuse_links(path)
    with translated(path):
        names = [entry.name for entry in os.scandir(path) if entry.is_dir()] if path.is_dir() else []
    tasks = [name for name in names if _TASK.fullmatch(name)]
    return sorted(tasks, key=TaskId.parse) + [name for name in names if name == _GLOBAL]


def instance_directory(state_dir: Path, number: int) -> Path:
    """Return the state directory of an instance of `run --processes`, counted from 1: the first one uses `state.dir` itself."""
    return state_dir if number == 1 else state_dir / f"instance-{number}"


def directories_of(state_dir: str | Path, application: str) -> list[Path]:
    """Return an application's directory in `state.dir`, and those of its other instances (`run --processes`) that exist."""
    return [Path(state_dir) / application, *sorted(Path(state_dir).glob(f"instance-*/{application}"))]


def refuse_links(path: Path) -> None:
    """Raise StateError if an application's directory, or one of a task or a store in it, is a symbolic link.

    The target of a link may be any directory of the machine, whose files the application would write and delete.
    """
    with translated(path):
        paths = [path, *path.glob("*"), *path.glob("*/*"), *path.glob("*/*/*")] if path.is_dir() else [path]
        link = next((entry for entry in paths if entry.is_symlink()), None)
        if link is not None:
            raise StateError(
                f"{link} is a symbolic link, to {os.readlink(link)}: state is not read or written through links; move the "
                "directory here, or set state.dir to where it is"
            )


def _holds_files(path: str) -> bool:
    try:
        with os.scandir(path) as entries:
            return any(entries)
    except FileNotFoundError:
        return False  # another thread of this process has deleted it since


def _changed_since(path: Path, time: float) -> bool:
    try:
        return path.stat().st_mtime >= time
    except FileNotFoundError:
        return True


def store_path(task: Path, engine: str, store: str) -> Path:
    """Return the directory of a persistent store in its task's directory."""
    return task / engine / store


def unrestorable(store: str, path: Path, why: str) -> StateError:
    """Return the error for the state of a store that can't be used and has no changelog; it is never deleted."""
    return StateError(
        f"The state of store {store} in {path} {why}; it has no changelog to be restored from: delete it to begin without it"
    )


def require_restorable(task: Path, unlogged: Collection[str], why: str) -> None:
    """Raise StateError if a task's directory, which can't be used, has one of its stores without a changelog."""
    for store in sorted(unlogged):
        for path in (store_path(task, engine, store) for engine in ENGINES):
            if path.exists():
                raise unrestorable(store, path, why)


def check_engines(path: Path, engine: str | None) -> None:
    """Raise ConfigError if the package of an engine is missing: of `engine` (state.engine), or else of those on disk.

    path: the directory of an application. Raises StateError too.
    """
    if engine is not None:
        check_engine(engine)
        return
    check_engine(DEFAULT_ENGINE)
    for name in stored(path):
        mark = read_mark(path / name)
        if mark is not None and mark.engine in ENGINES:
            check_engine(mark.engine, f"the state in {path / name}, which {mark.engine} wrote,")


class StateDirectory:
    """`<state.dir>/<application.id>/`, owned by this process until `close`.

    Holds `.lock`, `kafka-streams-process-metadata`, `settled-transactions`, a directory for each task (`0_1`) and `global`. `engine`: the engine of
    its stores (state.engine); None: the one that wrote a directory, DEFAULT_ENGINE in a new one. `group_writes`: the group of the owner may write too
    (allow.os.group.write.access, KIP-1230).
    Raises StateLockedError when another process owns it, StateError when it can't be made or written.
    """

    def __init__(
        self, state_dir: str | Path, application: str, engine: str | None = None, *, group_writes: bool = False
    ):
        self.path = Path(state_dir) / application
        self._engine = engine
        self._group_writes = group_writes
        refuse_links(self.path)
        with translated(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=_PERMISSIONS)
            self.path.mkdir(exist_ok=True, mode=_PERMISSIONS)
        self._admit_group(self.path.parent)
        self._limit_access(self.path)
        self._lock = self._acquire()
        self._settling = threading.Lock()

    def _acquire(self) -> IO[str]:
        path = self.path / ".lock"
        with translated(path):
            file = open(path, "a", encoding="utf-8", opener=private)  # noqa: SIM115 - open as long as the directory is locked
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise StateLockedError(f"Another process is running on the state directory {self.path}") from error
        except OSError as error:
            file.close()
            raise StateError(f"{path} can't be locked: {error.strerror}") from error
        return file

    def process_id(self) -> uuid.UUID:
        """Return the id of this directory, which is created on first use; a damaged file is replaced, as in Java.

        A copy of the directory gets a new id: two processes with the same id would fence each other.
        """
        path = self.path / _PROCESS_FILE
        inode = self.path.stat().st_ino
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document.get("inode", inode) == inode:
                return uuid.UUID(document["processId"])
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError, AttributeError):
            pass  # not written by streamkit: a new id costs a rebalance, not data
        except OSError as error:
            raise StateError(f"{path} can't be read: {error.strerror}") from error
        fresh = uuid.uuid4()
        with translated(path):
            # Java ignores unknown fields.
            write_atomically(path, json.dumps({"processId": str(fresh), "inode": inode}, separators=(",", ":")))
        return fresh

    def settled_ids(self) -> list[str]:
        """Return the transactional ids of `note_settled`; none if their file is damaged. Raises StateError."""
        path = self.path / _SETTLED_FILE
        with translated(path), suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            return list(map(str, unsealed(path.read_text(encoding="utf-8"))["ids"]))
        return []

    def note_settled(self, transactional_id: str, settled: bool) -> None:
        """Note whether no two transactions of an id of this process are ever open at once in a partition. Raises StateError."""
        with self._settling:
            before = self.settled_ids()
            others = [other for other in before if other != transactional_id]
            ids = [*others, transactional_id] if settled else others
            if ids != before:
                path = self.path / _SETTLED_FILE
                with translated(path):
                    write_atomically(path, sealed({"ids": ids}))

    def task(self, task_id: str) -> Path:
        """Return the directory of a task such as "0_1", which is created if it is missing. Raises StateError."""
        return self._directory(task_id)

    def global_state(self) -> Path:
        """Return the directory of global stores, which is created if it is missing. Raises StateError."""
        return self._directory(_GLOBAL)

    def claim(self, name: str, unlogged: Collection[str] = ()) -> Path:
        """Return the directory of a task, or "global", until `release`; `unlogged`: its stores without a changelog.

        A directory that another engine than state.engine, or Kafka Streams, wrote is moved aside first, with its checkpoint, so that the stores
        are restored from their changelogs; so is a copy of a directory that was in use. Raises StateError for an unknown
        engine or format, or if one of the `unlogged` would be moved, and leaves the directory as it is.
        """
        path = self._directory(name)
        self._sweep(path)
        mark = read_mark(path)
        if mark is not None:
            if mark.engine not in (*ENGINES, JAVA):
                raise StateError(
                    f"{path} was written by the engine {mark.engine!r}, which is not known here; it is left as it is"
                )
            if mark.format > FORMAT:
                raise StateError(f"{path} was written by a newer streamkit (format {mark.format}); it is left as it is")
            wanted = self._engine or (DEFAULT_ENGINE if mark.engine == JAVA else mark.engine)
            if mark.engine != wanted:
                self._put_aside(path, mark.engine, f"was written by {mark.engine}, not {wanted}", unlogged)
                mark = None
            elif mark.is_torn_copy(path):
                why = "was copied while a process used it, so its files may not match"
                self._put_aside(path, "copy", why, unlogged)
                mark = None
        path = self._directory(name)
        engine = self._engine or DEFAULT_ENGINE
        self._mark(path, Mark(engine, FORMAT) if mark is None else mark, in_use=True)
        if self.keeps_offsets(name):
            _delete_javas_checkpoint(path)
        return path

    def release(self, name: str) -> None:
        """Mark a claimed directory as closed; do nothing if it is deleted. Raises StateError."""
        path = self.path / name
        mark = read_mark(path)
        if mark is not None and mark.inode is not None:
            self._mark(path, mark, in_use=False)

    def keeps_offsets(self, name: str) -> bool:
        """Return whether the stores of a claimed directory have the offsets of their changelogs. Raises StateError."""
        mark = read_mark(self.path / name)
        return mark is not None and mark.format >= FORMAT

    def upgrade(self, name: str) -> None:
        """Mark that all stores of a claimed directory have their offsets. Raises StateError."""
        self._mark(self.path / name, Mark(self.engine_of(name), FORMAT), in_use=True)
        _delete_javas_checkpoint(self.path / name)

    def engine_of(self, name: str) -> str:
        """Return the engine of the stores in a claimed directory. Raises StateError."""
        mark = read_mark(self.path / name)
        return self._engine or (DEFAULT_ENGINE if mark is None else mark.engine)

    def _mark(self, path: Path, mark: Mark, *, in_use: bool) -> None:
        with translated(path):
            mark = replace(mark, inode=path.stat().st_ino if in_use else None)
        if mark != read_mark(path):
            write_mark(path, mark)

    def _put_aside(self, path: Path, label: str, why: str, unlogged: Collection[str]) -> None:
        require_restorable(path, unlogged, why)
        aside = self.path / _PUT_ASIDE / f"{path.name}-{label.lower().replace(' ', '-')}"
        with translated(aside):
            aside.parent.mkdir(exist_ok=True, mode=_PERMISSIONS)
            if aside.exists():
                shutil.rmtree(aside)
            path.rename(aside)
        log.warning(
            "The state in %s %s: it is put aside to %s, which may be deleted, and restored from its changelogs",
            path,
            why,
            aside,
        )

    def store(self, task_id: str, store: str) -> Path:
        """Return the directory of a store of a task, whether it exists or not."""
        return store_path(self.path / task_id, self.engine_of(task_id), store)

    def _directory(self, name: str) -> Path:
        path = self.path / name
        with translated(path):
            path.mkdir(exist_ok=True, mode=_PERMISSIONS)
        self._limit_access(path)
        return path

    def _limit_access(self, path: Path) -> None:
        """Let the owner alone use a directory, or the group too; earlier versions made directories that others can read."""
        if self._group_writes:
            self._admit_group(path)
            return
        with translated(path):
            status = path.stat()
            if status.st_mode & 0o077 and status.st_uid == os.geteuid():
                path.chmod(_PERMISSIONS)

    def _admit_group(self, path: Path) -> None:
        if not self._group_writes:
            return
        try:
            path.chmod(_GROUP_WRITES)  # mkdir applies the process's umask
        except OSError as error:
            log.warning("%s can't be opened to the group of its owner: %s", path, error.strerror)

    def tasks(self) -> list[str]:
        """Return the ids of the tasks whose directory is not empty, in numerical order."""
        with translated(self.path):
            names = [
                entry.name
                for entry in os.scandir(self.path)
                if _TASK.fullmatch(entry.name) and entry.is_dir() and _holds_files(entry.path)
            ]
        return sorted(names, key=TaskId.parse)

    def wipe(self, task_id: str) -> None:
        """Delete the state of a task, so that it is restored from its changelogs. Raises StateError."""
        self._delete(self.path / task_id, self.path)

    def wipe_store(self, task_id: str, store: str) -> None:
        """Delete the files of one store of a task. Raises StateError."""
        self._delete(self.store(task_id, store), self.path / task_id)

    def _delete(self, path: Path, folder: Path) -> None:
        """Rename a directory to a name that `_sweep` deletes, then delete it: half of its files could be taken for a store."""
        with translated(path):
            if path.exists():
                self._sweep(folder)
                gone = folder / f"{_DELETED}{path.name}"
                path.rename(gone)
                shutil.rmtree(gone)

    @staticmethod
    def _sweep(folder: Path) -> None:
        """Delete the directories that a process was deleting when it was killed."""
        with translated(folder):
            for left in folder.glob(f"{_DELETED}*"):
                shutil.rmtree(left, ignore_errors=True)

    def clean(self, owned: Collection[str], older_than: float) -> list[str]:
        """Delete the directories of tasks that are not `owned` and unchanged since `older_than`; return their ids.

        Time is in seconds since the epoch (state.cleanup.delay.ms; state.cleanup.dir.max.age.ms, KIP-1259).
        """
        gone = []
        for task_id in self.tasks():
            path = self.path / task_id
            if task_id not in owned and not _changed_since(path, older_than):
                self.wipe(task_id)
                gone.append(task_id)
        return gone

    def close(self) -> None:
        """Release the lock, so that another process can use the directory."""
        self._lock.close()


# The mark of a task's directory: which engine wrote it, in which format, and whether it is in use.

MARK_FILE = ".streamkit-state"
FORMAT = 2
"""The format of a task's directory; a newer release may increase it. From 2 on stores have the offsets of their changelogs."""
JAVA = "Kafka Streams"


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translate the operating system's errors about a file into StateError, with one line."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StateError(f"No space is left for {path}") from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise StateError(f"{path} can't be written: {error.strerror}; choose another state.dir") from error
        raise StateError(f"{path} can't be used: {error.strerror or error}") from error


def private(path: str, flags: int) -> int:
    """Open a file that is new for the owner alone, or for the group too if that has access to the folder: an opener of `open`."""
    group = os.stat(os.path.dirname(path) or ".").st_mode & 0o020
    return os.open(path, flags, 0o660 if group else 0o600)


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a crash or a loss of power leaves the old file or the new one. Raises OSError."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8", opener=private) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sealed(fields: Mapping[str, object]) -> str:
    """Return fields as JSON with a checksum."""
    return json.dumps({**fields, "crc": _crc(fields)}, indent=1)


def unsealed(text: str) -> Any:
    """Return what `sealed` wrote. Raises ValueError for a changed text; older releases wrote no checksum."""
    fields = json.loads(text)
    crc = fields.pop("crc", None) if isinstance(fields, dict) else None
    if crc is not None and crc != _crc(fields):
        raise ValueError("it was changed since it was written: its checksum is another")
    return fields


def _crc(fields: Mapping[str, object]) -> int:
    return zlib.crc32(json.dumps(fields, sort_keys=True).encode())


@dataclass(frozen=True)
class Mark:
    """The content of a task's directory. `inode`: the inode of the directory while a process uses it; None: it was closed.

    Files that are copied while a process writes them may be inconsistent, and no engine detects all of that. A copy has
    another inode, which shows that the directory was in use; a closed directory may be copied, and moved to another host.
    """

    engine: str
    format: int
    inode: int | None = None

    def is_torn_copy(self, path: Path) -> bool:
        """Return whether the directory was copied while a process used it, or after a crash. Raises OSError."""
        return self.inode is not None and self.inode != path.stat().st_ino


def read_mark(path: Path) -> Mark | None:
    """Return the mark of a task's directory; None if it has no state. Raises StateError."""
    file = path / MARK_FILE
    try:
        with translated(file):
            mark = unsealed(file.read_text(encoding="utf-8"))
        inode = mark.get("inode")
        return Mark(str(mark["engine"]), int(mark["format"]), None if inode is None else int(inode))
    except StateError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError(f"{file} can't be read: {error}; delete {path} to restore it from its changelogs") from error
    # A directory without a mark is of a release that had one engine, or of Kafka Streams, which has its files there.
    if (path / "leveldb").exists():
        return Mark("leveldb", 1)
    return Mark(JAVA, 1) if (path / "rocksdb").exists() else None


def write_mark(path: Path, mark: Mark) -> None:
    """Mark a task's directory. Raises StateError."""
    fields = {name: value for name, value in vars(mark).items() if value is not None}
    with translated(path / MARK_FILE):
        write_atomically(path / MARK_FILE, sealed(fields))


# Checkpoint files: the changelog offsets up to which a task's stores are durable (OffsetCheckpoint).

FILE_NAME = ".streamkit-checkpoint"
JAVA_FILE_NAME = ".checkpoint"
"""Of Kafka Streams, and of older releases: Kafka Streams does not restore a store up to an offset in it, and has none of these stores."""
OFFSET_UNKNOWN = -4
"""The offset of a store whose offset is not known."""


def write_checkpoint(directory: str | Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Write offsets by (topic, partition) so that a crash leaves the old file or the new one; no offsets: no file.

    A task's offsets are the last applied, the global ones the next. Raises StateError.
    """
    path = Path(directory) / FILE_NAME
    for place, offset in offsets.items():
        if offset < 0 and offset != OFFSET_UNKNOWN:
            raise StateError(f"Offset {offset} of {place[0]}-{place[1]} can't stand in a checkpoint")
    lines = ["0", str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    with translated(path):
        if not offsets:
            path.unlink(missing_ok=True)
            return
        write_atomically(path, "\n".join(lines) + "\n")


def read_checkpoint(directory: str | Path) -> dict[TopicPartition, int]:
    """Return offsets by (topic, partition), none if there is no file. Raises StateError for a damaged file."""
    path = Path(directory) / FILE_NAME
    if not path.exists():
        path = path.with_name(JAVA_FILE_NAME)
    try:
        with translated(path):
            lines = path.read_text(encoding="utf-8").splitlines()
    except StateError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return {}
        raise
    except UnicodeDecodeError as error:
        raise StateError(f"The checkpoint {path} is damaged: it is not text") from error
    return _parse(path, lines)


def _parse(path: Path, lines: list[str]) -> dict[TopicPartition, int]:
    try:
        if lines[0] != "0":
            raise StateError(f"The checkpoint {path} has the unknown version {lines[0]}")
        offsets = {}
        for line in lines[2:]:
            topic, partition, offset = line.split()
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        if len(offsets) != int(lines[1]):
            raise StateError(f"The checkpoint {path} is damaged: it has {len(offsets)} of {lines[1]} entries")
    except (ValueError, IndexError) as error:
        raise StateError(f"The checkpoint {path} is damaged: {error}") from error
    return offsets


def delete_checkpoint(directory: str | Path) -> None:
    """Delete the file, and that of an older release or of Kafka Streams. Raises StateError."""
    path = Path(directory) / FILE_NAME
    with translated(path):
        path.unlink(missing_ok=True)
    _delete_javas_checkpoint(path.parent)


def _delete_javas_checkpoint(directory: Path) -> None:
    path = directory / JAVA_FILE_NAME
    with translated(path):
        path.unlink(missing_ok=True)
