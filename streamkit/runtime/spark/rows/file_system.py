"""Files in every file system that Spark can write to (local, hdfs://, s3a://), through Hadoop, and the positions of rows in files."""

from __future__ import annotations

import fcntl
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote

from streamkit.errors import ConfigError, StateLockedError, UsageError
from streamkit.runtime.spark.spark_session import classic_context

if TYPE_CHECKING:
    from py4j.java_gateway import JavaClass, JavaObject, JVMView
    from pyspark.sql import DataFrame, SparkSession

_MAGIC_BYTES = 4
TOKEN = 8
"""Hexadecimal digits of a token in the name of a directory."""
_CONDITIONAL = "fs.option.create.conditional.overwrite"
"""Hadoop's option for a request that writes an object only if it does not exist; S3A supports it since Hadoop 3.4.2."""
_GLOB = re.compile(r"([{}\[\]*?\\])")
_ASCII = ("ANSI_X3.4-1968", "US-ASCII", "646")
"""What Java calls the encoding of the locale C."""
_ENCODING = "sun.jnu.encoding"
_FILES = "LogicalRelation"
"""The leaf of a plan that reads files."""
_RELATION, _LISTED = "HadoopFsRelation", "InMemoryFileIndex"
"""The class of Spark's relations of files, and that of the lists of their files that Spark makes once."""
_OF_ICEBERG = "org.apache.iceberg.spark.source.SparkTable"
_STATE = re.compile(r"Status\{path=(.*?); isDirectory=.*? length=(\d+);.* modification_time=(\d+);")


@dataclass(frozen=True)
class FileState:
    """A file: its name as `same_path` returns it, its size in bytes, and its modification time (ms)."""

    name: str
    size: int
    time: int


class FileSystem:
    """The operations on files that a checkpoint needs. Raises UsageError in a session of Spark Connect."""

    def __init__(self, spark: SparkSession):
        context = classic_context(spark)
        if context is None:
            raise UsageError(
                "--checkpoint needs access to files, which Spark Connect does not provide; use another master"
            )
        assert context._jvm is not None
        assert context._gateway is not None
        self._jvm: JVMView = context._jvm
        self._paths = class_of(self._jvm, "org.apache.hadoop.fs.Path")
        self._gateway = context._gateway
        self._conf = context._jsc.hadoopConfiguration()
        self._is_local = self._conf.get("fs.defaultFS", "file:///").startswith("file:")
        """Whether a path without a scheme is on this machine."""

    def exists(self, path: str) -> bool:
        """Return whether a file or a directory exists."""
        answer: bool = self._of(path).exists(self._path(path))
        return answer

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; an empty list if it does not exist."""
        local = re.sub("^file:/+", "/", path)
        if (self._is_local or local != path) and local.startswith("/") and os.path.isdir(local):
            # Hadoop hides its checksums, and takes a call for each name. It also says why a directory can't be read.
            with suppress(OSError):
                return sorted(
                    name for name in os.listdir(local) if not (name.startswith(".") and name.endswith(".crc"))
                )
        folder = self._path(path)
        files = folder.getFileSystem(self._conf)
        if not files.exists(folder):
            return []
        return sorted(status.getPath().getName() for status in files.listStatus(folder))

    def matches(self, path: str) -> list[str]:
        """Return the paths that a path with wildcards matches, sorted."""
        states = self._of(path).globStatus(self._path(path))
        return sorted(status.getPath().toString() for status in states or ())

    def inside(self, path: str) -> list[str] | None:
        """Return the names in a directory; None for a file."""
        return self.names(path) if not self.exists(path) or self.is_folder(path) else None

    def first_bytes(self, path: str) -> bytes:
        """Return the first bytes of a file, which identify its format."""
        with closing(self._of(path).open(self._path(path))) as stream:
            return bytes(stream.readNBytes(_MAGIC_BYTES))

    def files(self, path: str) -> list[FileState]:
        """Return all files below a directory, or the file itself."""
        states, listing = [], self._of(path).listFiles(self._path(path), True)
        while listing.hasNext():
            states.append(_state(listing.next()))
        return states

    def files_in(self, folder: str) -> dict[str, int]:
        """Return the sizes of all files below a directory, by relative path; an empty dict if it does not exist."""
        if not self.exists(folder):
            return {}
        start = len(self.normal(folder)) + 1
        return {file.name[start:]: file.size for file in self.files(folder)}

    def is_folder(self, path: str) -> bool:
        """Return whether a path is a directory."""
        return self.exists(path) and bool(self._of(path).getFileStatus(self._path(path)).isDirectory())

    def states(self, uris: list[str]) -> dict[str, FileState]:
        """Return the states of files, given as URIs, by name. Each directory is listed once."""
        uri_of = class_of(self._jvm, "java.net.URI")
        paths = [self._paths(uri_of(uri)) for uri in uris]
        folders = {path.getParent().toString(): path.getParent() for path in paths}
        wanted = {same_path(uri) for uri in uris}
        states = {}
        for folder in folders.values():
            for status in folder.getFileSystem(self._conf).listStatus(folder):
                state = _state(status)
                if state.name in wanted:
                    states[state.name] = state
        return states

    def read(self, path: str) -> str | None:
        """Return the text of a file; None if the file does not match its checksum."""
        from py4j.protocol import Py4JJavaError

        stream = self._of(path).open(self._path(path))
        try:
            text: str = class_of(self._jvm, "org.apache.commons.io.IOUtils").toString(stream, "UTF-8")
            return text
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() == "ChecksumException":
                return None
            raise
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write a file, or replace an existing one."""
        with closing(self._of(path).create(self._path(path), True)) as stream:
            stream.write(bytearray(text.encode()))

    def publish(self, path: str, text: str, token: str) -> bool:
        """Write a file completely or not at all; return False if it exists. `token`: part of the name of a temporary file.

        If two runs write at once, one of them gets False: disks and HDFS refuse its rename, object stores its conditional request.
        An object store without conditional requests may return True to both.
        """
        if self._of(path).hasPathCapability(self._path(path), _CONDITIONAL):
            return self._create(path, text)
        folder, name = posixpath.split(path)
        temporary = posixpath.join(folder, f"_{token}-{name}")
        self.write(temporary, text)
        if self.exists(path):
            self.delete(temporary)
            return False
        # A local file that was deleted by hand leaves its checksum file, which Hadoop's rename does not replace.
        self._of(path).delete(self._path(posixpath.join(folder, f".{name}.crc")), False)
        return self.rename(temporary, path)

    def _create(self, path: str, text: str) -> bool:
        """Write an object with one request, which the store refuses if the object exists."""
        from py4j.protocol import Py4JJavaError

        stream = self._of(path).createFile(self._path(path)).must(_CONDITIONAL, True).build()
        try:
            stream.write(bytearray(text.encode()))
            stream.close()
        except Py4JJavaError:
            # Refused. If the first response was lost, S3A has repeated its request, and the existing object is this one.
            if not self.exists(path):
                raise
            return self.read(path) == text
        return True

    def rename(self, source: str, target: str) -> bool:
        """Rename a file or a directory, and create the parents of the target; return False if the target exists."""
        contexts = class_of(self._jvm, "org.apache.hadoop.fs.FileContext")
        context = contexts.getFileContext(self._path(source).toUri(), self._conf)
        # FileSystem.rename moves a directory into a target that exists, and replaces a local file.
        none = self._gateway.new_array(class_of(self._jvm, "org.apache.hadoop.fs.Options$Rename"), 0)
        if self.exists(target):
            return False
        self._of(target).mkdirs(self._path(target).getParent())
        context.rename(self._qualified(source), self._qualified(target), none)
        return True

    def delete(self, path: str) -> None:
        """Delete a file or a directory with its contents, if it exists."""
        self._of(path).delete(self._path(path), True)

    def is_local(self, path: str) -> bool:
        """Return whether a path is on this machine's disks."""
        scheme: str = self._qualified(path).toUri().getScheme()
        return scheme == "file"

    def check_names(self, paths: Iterable[str]) -> None:
        """Raise ConfigError if a path is on this machine, and the JVM of the driver passes over files whose names are not ASCII.

        The JVM has the locale with which it was started: by spark-submit, without the variables that streamkit sets.
        """
        encoding = class_of(self._jvm, "java.lang.System").getProperty(_ENCODING)
        _refuse_ascii(encoding, filter(self.is_local, paths), "spark-submit")

    @contextmanager
    def locked(self, folder: str) -> Iterator[None]:
        """Hold the lock of a local directory, which the operating system releases if the process ends. Raises StateLockedError.

        Other file systems have no such lock; there `publish` fails if another run has committed first.
        """
        if not self.is_local(folder):
            yield
            return
        local = self.normal(folder)
        os.makedirs(local, exist_ok=True)
        with open(os.path.join(local, "_lock"), "w", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StateLockedError(
                    f"--checkpoint {folder}: another run uses it; wait until that run ends"
                ) from error
            yield

    def beside(self, path: str, token: str) -> str | None:
        """Return the path of a hidden directory beside another one; None for the root of a file system."""
        target = self._qualified(path)
        name = f"_{target.getName()}-{token}"
        return None if target.isRoot() else self._paths(target.getParent(), name).toString()

    def written_beside(self, path: str) -> list[str]:
        """Return the paths of the directories beside another one whose names are those of `beside`."""
        target = self._qualified(path)
        if target.isRoot():
            return []
        folder = target.getParent().toString()
        name = re.compile(f"_{re.escape(target.getName())}-[0-9a-f]{{{TOKEN}}}")
        return [join(folder, each) for each in self.names(folder) if name.fullmatch(each)]

    def normal(self, path: str) -> str:
        """Return the normal form of a path: `/lake/a` for `/lake/a/` and for `file:///lake/a`."""
        return same_path(self._qualified(path).toUri().toString()).rstrip("/")

    def _path(self, path: str) -> JavaObject:
        return self._paths(path)

    def _of(self, path: str) -> JavaObject:
        return self._path(path).getFileSystem(self._conf)

    def _qualified(self, path: str) -> JavaObject:
        return self._of(path).makeQualified(self._path(path))


def check_names_of_server(spark: SparkSession, paths: Sequence[str]) -> None:
    """Raise ConfigError if a server of Spark Connect passes over files with names that are not ASCII; it may refuse to tell."""
    from pyspark.errors import PySparkException

    if not paths:
        return
    with suppress(PySparkException):
        ((encoding,),) = spark.sql(f"SELECT java_method('java.lang.System', 'getProperty', '{_ENCODING}')").collect()
        _refuse_ascii(encoding, paths, "the server of Spark Connect")


def _refuse_ascii(encoding: str, paths: Iterable[str], started: str) -> None:
    path = next(iter(paths), None) if encoding in _ASCII else None
    if path is not None:
        raise ConfigError(
            f"{path}: Spark takes names of files as ASCII in this locale, and would pass over others; set LC_ALL=C.UTF-8 before {started}"
        )


def join(folder: str, *names: str) -> str:
    """Return the path of a file below a directory."""
    return posixpath.join(folder, *names)


def escaped(name: str) -> str:
    """Return a path with escaped wildcards, which Hadoop takes literally.

    >>> escaped("/a/b[1].parquet")
    '/a/b\\\\[1\\\\].parquet'
    """
    return _GLOB.sub(r"\\\1", name)


@lru_cache(maxsize=4)  # asked for several times for each input, with six calls of Java
def relation_of(frame: DataFrame) -> JavaObject | None:
    """Return what Spark knows of the files of a frame; None if it does not tell, or the frame is more than its files."""
    plan = None if classic_context(frame.sparkSession) is None else frame._jdf.queryExecution().analyzed()
    is_known = plan is not None and plan.getClass().getSimpleName() == _FILES
    return plan.relation() if plan is not None and is_known else None


def file_relations(frame: DataFrame) -> Iterator[JavaObject]:
    """Yield the relations of Spark that read the files of a frame."""
    only = relation_of(frame)
    relations = (leaf.relation() for leaf in _leaves(frame, _FILES)) if only is None else [only]
    for relation in relations:
        kind = relation.getClass()
        # Delta has a subclass without a name.
        if _RELATION in (kind.getSimpleName(), kind.getSuperclass().getSimpleName()):
            yield relation


def reads_hive_text(frame: DataFrame) -> bool:
    """Return whether a frame reads a table whose text Hive parses, which reads fields that do not fit as nulls and drops extra ones."""
    tables = _leaves(frame, "HiveTableRelation")
    return any("TextInputFormat" in leaf.tableMeta().storage().inputFormat().toString() for leaf in tables)


def _leaves(frame: DataFrame, kind: str | None = None) -> Iterator[JavaObject]:
    """Yield the leaves in the plan of a frame. kind: only those of this name."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    return (leaf for leaf in map(leaves.apply, range(leaves.size())) if kind is None or leaf.nodeName() == kind)


def _indexes(frame: DataFrame, kind: str) -> Iterator[JavaObject]:
    """Yield the lists of files that a frame reads, of one class."""
    indexes = (relation.location() for relation in file_relations(frame))
    return (index for index in indexes if index.getClass().getSimpleName() == kind)


def changed_files(frame: DataFrame) -> list[str]:
    """Return the paths of the files of a frame whose sizes or times are not those that Spark listed when it made the frame."""
    changed = set[tuple[str, ...]]()
    for index in _indexes(frame, _LISTED):
        # Of any number of files, one call of Java tells all.
        known = {state for state in _STATE.findall(index.allFiles().mkString("\n")) if not _is_same(*state)}
        if not known:
            continue
        paths = list(map(escaped, index.rootPaths().mkString("\n").splitlines()))
        reader = frame.sparkSession.read.format("binaryFile").option("recursiveFileLookup", "true")
        for now in _indexes(reader.load(paths), _LISTED):
            changed |= known.difference(_STATE.findall(now.allFiles().mkString("\n")))
    return sorted(path for path, *_ in changed)


def _is_same(path: str, size: str, time: str) -> bool:
    """Return whether this is surely the state of a file on this machine. size: in bytes; time: of its last change, in milliseconds."""
    if not path.startswith("file:/"):
        return False
    try:
        found = os.stat(path.removeprefix("file:"))
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns // 1_000_000) == (int(size), int(time))


def formats_of(frame: DataFrame) -> set[str]:
    """Return the formats of the files that a frame reads, in lower case, and the kinds of its other sources."""
    if classic_context(frame.sparkSession) is None:
        return {""}
    files = {relation.fileFormat().getClass().getSimpleName() for relation in file_relations(frame)}
    others = {leaf.nodeName() for leaf in _leaves(frame)} - {_FILES}
    return {name.removesuffix("FileFormat").lower() for name in files | others}


def table_versions(frame: DataFrame) -> list[tuple[int | None, int | None]]:
    """Return, for each table of Delta and Iceberg that a frame reads, its version when the frame was made, and that which a query would
    read now; None for a table of Iceberg without commits.
    """
    indexes = _indexes(frame, "TahoeLogFileIndex")
    versions = [(index.snapshotAtAnalysis().version(), index.getSnapshot().version()) for index in indexes]
    leaves = _leaves(frame, "DataSourceV2Relation")
    return versions + [_snapshots_of(leaf) for leaf in leaves if leaf.table().getClass().getName() == _OF_ICEBERG]


def _snapshots_of(leaf: JavaObject) -> tuple[int | None, int | None]:
    """Return the snapshot of a table of Iceberg that a plan names, and that which it would name now."""
    then = leaf.table().snapshotId()
    if leaf.timeTravelSpec().isDefined():
        return then, then
    table, branch = leaf.table().table(), leaf.table().branch()
    table.refresh()
    now = table.currentSnapshot() if branch is None else table.snapshot(branch)
    return then, None if now is None else now.snapshotId()


def class_of(jvm: JVMView, name: str) -> JavaClass:
    """Return a class of Java by its whole name. Package by package, as `jvm.org.apache`, Java would look for each in all archives."""
    return getattr(jvm, name)


def joined(spark: SparkSession, array: JavaObject) -> str:
    """Return the texts of an array's elements, with zeros between them: each element would be a call."""
    text: str = class_of(spark._jvm, "scala.collection.immutable.ArraySeq").unsafeWrapArray(array).mkString("\0")
    return text


def input_files(frame: DataFrame) -> list[str]:
    """Return the URIs of the files that a frame reads, which one call of Java gives."""
    context = classic_context(frame.sparkSession)
    if context is None:
        return list(frame.inputFiles())
    assert context._jvm is not None
    relation = relation_of(frame)
    is_of_files = relation is not None and relation.getClass().getSimpleName() == _RELATION
    # Spark would optimize the plan of a frame first.
    found = relation.inputFiles() if relation is not None and is_of_files else frame._jdf.inputFiles()
    text = joined(frame.sparkSession, found)
    return list(dict.fromkeys(text.split("\0"))) if text else []


def _state(status: JavaObject) -> FileState:
    return FileState(same_path(status.getPath().toUri().toString()), status.getLen(), status.getModificationTime())


# Positions of rows in files: Spark's hidden columns for them, and their text in messages.

FILE, BLOCK, ROW, INDEX = "_streamkit_file", "_streamkit_block", "_streamkit_row", "_streamkit_index"
FILE_OF_SPARK, INDEX_OF_SPARK = "_metadata.file_path", "_metadata.row_index"
"""Spark's own columns, which only rows of files have."""


def position_columns(place: str) -> list[str]:
    """Return SQL of the columns of a row's position: its file, the offset of its block in the file, and its index among all rows."""
    return [
        f"{FILE_OF_SPARK} AS {FILE}",
        f"CAST({place} AS BIGINT) AS {BLOCK}",
        f"monotonically_increasing_id() AS {ROW}",
    ]


def same_path(name: str) -> str:
    """Return the normal form of a file's name; Spark writes both file:/a and file:///a.

    >>> same_path("file:///a%20b"), same_path("file:/a%20b"), same_path("s3a://lake/a")
    ('/a b', '/a b', 's3a://lake/a')
    """
    return unquote(re.sub("^file:/+", "/", name))


def place_of_line(path: str, block: int, row: int) -> str:
    """Return the file and line number of a row. A block is a part of a file, which a task reads from the first line that begins in it."""
    if not block:
        return f"{path}:{row + 1}"
    if not path.startswith("/"):
        return f"{path}: line {row + 1} after byte {block}"
    with open(path, "rb") as file:
        lines = sum(file.read(min(1 << 20, block - at)).count(b"\n") for at in range(0, block, 1 << 20))
    # A line that begins at the end of a block belongs to that block.
    return f"{path}:{lines + 2 + row}"
