"""The options of a batch job: inputs, outputs and ranges of the log."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from glob import glob, has_magic
from typing import NoReturn, TypeAlias

from streamkit.config.values import MASK, is_secret
from streamkit.errors import UsageError
from streamkit.record import TopicPartition
from streamkit.suggestions import did_you_mean

TIMES = ("years", "months", "days", "hours")
BUCKET = "bucket"
_PIECE = re.compile(r"\s*(?:(\w+)\(\s*(?:(\d+)\s*,)?\s*([^(),]+?)\s*\)|([^(),]+?))\s*(?:,|$)")


@dataclass(frozen=True)
class Transform:
    """One element of `partition_by`. kind: one of TIMES, BUCKET, or "" for the column itself; count: the number of buckets."""

    column: str
    kind: str = ""
    count: int = 0

    @property
    def text(self) -> str:
        """The transform as text, in the syntax of `partition_by`."""
        if not self.kind:
            return self.column
        return f"{self.kind}({f'{self.count}, ' if self.count else ''}{self.column})"

    def of(self, column: str) -> str:
        """Return the transform with another name for its column."""
        return replace(self, column=column).text


def parse_transforms(text: str, shown: str) -> tuple[Transform, ...]:
    """Parse transforms, such as `day(timestamp),bucket(16,key)`. Raises UsageError.

    >>> [each.text for each in parse_transforms("day(timestamp),bucket(16,key),region", "")]
    ['days(timestamp)', 'bucket(16, key)', 'region']
    """
    transforms, at = [], 0
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            _refuse(text, text[at:], shown)
        word, count, inner, column = piece.groups()
        kind = "" if word is None else word if word == BUCKET else f"{word.removesuffix('s')}s"
        if kind not in ("", BUCKET, *TIMES) or (kind == BUCKET) != (count is not None) or count == "0":
            _refuse(text, piece[0].strip(" ,"), shown)
        transforms.append(Transform(column or inner, kind, int(count or 0)))
        at = piece.end()
    return tuple(transforms)


def _refuse(text: str, piece: str, shown: str) -> NoReturn:
    raise UsageError(
        f"{shown}: partition_by={text}: {piece!r} is none of COLUMN, {', '.join(f'{kind}(COLUMN)' for kind in TIMES)} and "
        f"{BUCKET}(N,COLUMN)"
    )


JSON_LINES, PARQUET, TABLE, DELTA, ICEBERG = "json", "parquet", "table", "delta", "iceberg"
AVRO = "avro"
OF_SPARK = (JSON_LINES, PARQUET, "csv", "orc", AVRO)
"""The formats whose files Spark itself lists: all files at a path, in the order of their names."""
DELTA_LOG = "_delta_log"
"""The folder by which the directory of a Delta table is known."""
OF_TABLES = (TABLE, DELTA, ICEBERG)
"""The formats of table outputs, which have a schema and a history."""
UNKNOWN = "format not known yet"
"""The format of a place that only Spark can access."""
REST = "*"
"""The name that selects all topics without a separate output."""
UPDATES, FINAL = "updates", "final"
AUTO, PYTHON = "auto", "python"
ENGINES = (AUTO, PYTHON)
"""The engines that can run the stages: AUTO runs a stage in SQL if the result is exact, otherwise in Python."""
MERGE, APPEND, OVERWRITE = "merge", "append", "overwrite"
MODES = (MERGE, APPEND, OVERWRITE)
"""How records are combined with the existing rows of a table."""
EVERY = "*"
"""Selects all columns of an input."""
WHERE, OPTION = "where", "options."
DECODED, OF_LOG = "decoded", "log"
_BY_MAGIC = {b"PAR1": PARQUET, b"ORC": "orc", b"Obj\x01": AVRO}
_COMPRESSED_BY_MAGIC = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\x28\xb5\x2f\xfd": ".zst"}
_BY_SUFFIX = {".parquet": PARQUET, ".parq": PARQUET, ".csv": "csv", ".orc": "orc", ".avro": AVRO}
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy")
"""The suffixes of files that Spark decompresses."""
_DEEPEST = 12
"""The maximum depth of nested folders NAME=VALUE in which files are searched."""
_CHOSEN_HERE = {
    "mode": "a row that can't be read is an error, and is never left out",
    "columnnameofcorruptrecord": "a row that can't be read is an error, and is never left out",
    "ignorecorruptfiles": "a file that can't be read is an error, and is never left out",
    "enforceschema": "columns are read by their names",
    "columnpruning": "a row with too many fields is an error",
    "unescapedquotehandling": "a quote within a quoted field is written twice; a single one is an error",
    "mergeschema": "the columns of all files are read",
    "samplingratio": "the columns of all rows are read",
    "ignoremissingfiles": "a file that is missing is an error, and is never left out",
    "ignoreinvalidpartitionpaths": "a folder that is not NAME=VALUE beside such folders is an error, and is never left out",
    "ignoredpathsegmentregex": "a file is left out only if its name begins with _ or .",
    "archivepathfilter": "archives are not read",
    "ignoreextension": "files of Avro are read whatever their names are",
}
"""Spark options that would lose records, in lower case, each with the behaviour that a job guarantees instead."""
IN_UTC = {"timeZone": "UTC"}
"""Spark's option for the zone of times without a zone, also in folder names; the default is the session's zone."""
COMPLETE = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "ignoreInvalidPartitionPaths": "false",
    "mapreduce.input.linerecordreader.line.maxlength": str((1 << 31) - 1),
}
"""Options of Spark and Hadoop for files; they override the settings of the session. Hadoop would leave out longer lines."""


Parts: TypeAlias = str | tuple[str, ...] | Mapping[str, str]
"""One column or expression of Spark SQL, several column names, or expressions by field name."""


@dataclass(frozen=True)
class Columns:
    """The columns of an input from which the parts of a record are taken; None: the column with the name of the part."""

    key: Parts | None = None
    value: Parts | None = None
    """EVERY makes an object of all columns."""
    timestamp: str | None = None
    headers: Parts | None = None
    partition: str | None = None
    offset: str | None = None
    where: str | None = None
    """A condition of Spark SQL; the input skips rows for which it is not true."""


@dataclass(frozen=True)
class Layout:
    """How records are written as rows."""

    as_log: bool = False
    """Whether keys and values are the bytes of the log."""
    key: str | None = None
    value: str | None = None
    """The type of keys and values, in Spark's notation; None: the type that the topology determines."""
    mode: str | None = None
    """One of MODES; None: MERGE for a topic that contains one table, APPEND for others."""
    partition_by: tuple[Transform, ...] = ()
    sort_by: tuple[str, ...] = ()
    """The columns that order the rows of a file."""


@dataclass(frozen=True)
class Place:
    """Where the records of a topic are: a path and its format, which is one of the constants above or another format of Spark."""

    path: str
    format: str
    order: str | None = None
    """The column that orders the rows of an input."""
    columns: Columns = Columns()
    options: Mapping[str, str] = field(default_factory=dict)
    """Spark's options for the format."""
    layout: Layout = Layout()
    """The layout of an output's rows, unless the output is JSON Lines."""

    @property
    def is_local(self) -> bool:
        """Whether the path is in this machine's file system."""
        is_name = self.format == TABLE or (self.format == ICEBERG and "/" not in self.path)
        return "://" not in self.path and not is_name

    @property
    def is_table(self) -> bool:
        """Whether an output is a table."""
        return self.format in OF_TABLES

    @property
    def has_lines(self) -> bool:
        """Whether the place contains records as lines of JSON, rather than rows with columns."""
        return self.format == JSON_LINES and self.columns == Columns()

    @property
    def infers_types(self) -> bool:
        """Whether Spark infers the types of columns from their values."""
        options = {name.lower(): value.lower() for name, value in self.options.items()}
        return self.format == JSON_LINES or (self.format == "csv" and options.get("inferschema") == "true")


@dataclass(frozen=True)
class Range:
    """The part of the log that a job reads. start: earliest, committed, a time or offsets; end: latest, committed, a time or offsets."""

    start: str = "earliest"
    end: str = "latest"
    tolerate_loss: bool = False
    """Whether to read the rest if retention has removed the beginning of the range."""
    continued: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The offsets at which earlier runs ended; they replace the start."""
    to_end: frozenset[str] = frozenset()
    """The topics that are read to their ends if `end` is `committed` and the group has committed no offset for them."""
    needs_beginning: bool = False
    """Whether the first run needs every record that was ever written to the log."""


@dataclass(frozen=True)
class JobOptions:
    """What a job reads, writes and does."""

    inputs: Mapping[str, tuple[Place, ...]] = field(default_factory=dict)
    """The places of each topic, by its name on the log; topics without an entry are read from the log."""
    outputs: Mapping[str, Place | None] = field(default_factory=dict)
    """The place of each topic, by its name on the log, or by REST for all other topics; None means the log. If empty, all topics are
    written to the log."""
    emit: str | None = None
    """UPDATES or FINAL; None: FINAL for tables, UPDATES for others."""
    range: Range = field(default_factory=Range)
    overwrite: bool = False
    shadow: str = ""
    """A suffix for the names of topics that are written to the log."""
    compare: tuple[str, ...] = ()
    """Topics on the log with which the result is compared."""
    write_state: bool = False
    """Whether the final stores are written as changelogs for a live run."""
    checkpoint: str | None = None
    """The directory that keeps the state between runs; None: each run reads all input."""
    accept_input_changes: bool = False
    """Whether a run with a checkpoint may read its inputs differently than earlier runs."""
    parallelism: int = 1
    """The minimum number of Spark tasks for a stage that can be split by key."""
    engine: str = AUTO
    """Of ENGINES."""
    state_only: bool = False
    """Whether no topic is written, because only the stores of a checkpoint are needed."""

    @property
    def writes_everything(self) -> bool:
        """Whether all written topics go to the log, since no option names another result."""
        return not (self.outputs or self.compare or self.write_state or self.state_only)


def parse_place(text: str, option: str) -> tuple[str, Place | None]:
    """Parse `TOPIC[=PATH[,SETTING=VALUE…]]` into topic and place. Raises UsageError.

    >>> topic, place = parse_place("orders=/lake/orders,format=orc,key=user,value=amount,ts", "--input")
    >>> topic, place.path, place.format, place.columns.key, place.columns.value
    ('orders', '/lake/orders', 'orc', 'user', 'amount,ts')
    >>> parse_place("lines", "--input")
    ('lines', None)
    """
    topic, equals, rest = text.partition("=")
    path, comma, settings = rest.partition(",")
    if not topic or (equals and not path):
        raise UsageError(f"{option} {text}: expected TOPIC=PATH or TOPIC=PATH,SETTING=VALUE,…")
    if not equals:
        return topic, None
    shown = f"{option} {_SECRET.sub(_masked, text)}"
    options = _settings(settings, shown) if comma else {}
    return topic, make_place(path, options, option == "--input", shown)


_PARTS = tuple(part.name for part in fields(Columns))
INPUT_SETTINGS = ("format", "order", *_PARTS)
OUTPUT_SETTINGS = ("format", "columns", "key", "value", "mode", "partition_by", "sort_by")
_SETTING = re.compile(r"\s*([^\s,=()'\"`]+)=")
_SECRET = re.compile(r"\b(options\.[^\s,=]+)=[^,]*")
_QUOTED = re.compile(r"""'(?:\\.|[^\\'])*'|"(?:\\.|[^\\"])*"|`[^`]*`""", re.DOTALL)


def _masked(setting: re.Match[str]) -> str:
    return f"{setting[1]}={MASK}" if is_secret(setting[1]) else setting[0]


def _settings(text: str, shown: str) -> dict[str, str]:
    """Parse settings by name. A setting ends at a comma before the next NAME=; WHERE extends to the end of the text."""
    settings: dict[str, str] = {}
    at = 0
    while at <= len(text):
        match = _SETTING.match(text, at)
        if match is None or match[1] in settings:
            wrong = text[at:].partition(",")[0]
            raise UsageError(f"{shown}: expected SETTING=VALUE, {f'not {wrong!r}' if match is None else 'once each'}")
        name, begin = match[1], match.end()
        at, is_closed = (
            (len(text), True) if name == WHERE else _end_of_setting(text, begin, not name.startswith(OPTION))
        )
        if not is_closed:
            raise UsageError(f"{shown}: {name} has a bracket that is not closed")
        settings[name] = text[begin:at]
        at += 1
    return settings


def _end_of_setting(text: str, begin: int, is_sql: bool) -> tuple[int, bool]:
    """Return the end of a setting, and whether its brackets are closed. A comma inside brackets or quotes does not end a setting."""
    at, depth = begin, 0
    while at < len(text):
        if text[at] == "," and not depth and _SETTING.match(text, at + 1):
            break
        quoted_part = _QUOTED.match(text, at) if is_sql else None
        if is_sql and text[at] in "([{":
            depth += 1
        elif is_sql and text[at] in ")]}":
            depth = max(0, depth - 1)
        at = at + 1 if quoted_part is None else quoted_part.end()
    return at, not depth


def make_place(path: str, settings: Mapping[str, Parts], is_input: bool, shown: str) -> Place:
    """Return a place with the given settings. Raises UsageError.

    shown: how the user wrote the place, for messages.
    """
    known = INPUT_SETTINGS if is_input else OUTPUT_SETTINGS
    options = {}
    texts = {name: value for name, value in settings.items() if isinstance(value, str)}
    for name, value in settings.items():
        if name.startswith(OPTION) and is_input:
            options[name.removeprefix(OPTION)] = texts[name]
        elif name not in known:
            names = ", ".join(known)
            raise UsageError(f"{shown}: unknown setting {name!r}{did_you_mean(name, known, f'known are {names}')}")
        elif not value:
            raise UsageError(f"{shown}: {name} is empty")
    named = texts.get("format")
    place = Place(
        path,
        _format_of(named) if named else _guess(path) if is_input else _format_of_output(path),
        texts.get("order"),
        _columns(settings, texts) if is_input else Columns(),
        options,
        Layout() if is_input else _layout(texts, shown),
    )
    if not is_input:
        _check_output(place, shown)
    if place.order is not None and place.has_lines:
        raise UsageError(
            f"{shown}: order names a column, but lines of JSON have no columns: give each record an offset"
        )
    for name, reason in _CHOSEN_HERE.items():
        if name in {known.lower() for known in options}:
            raise UsageError(f"{shown}: {OPTION}{name}: {reason}")
    return place


def _columns(settings: Mapping[str, Parts], texts: Mapping[str, str]) -> Columns:
    return Columns(
        settings.get("key"),
        settings.get("value"),
        texts.get("timestamp"),
        settings.get("headers"),
        texts.get("partition"),
        texts.get("offset"),
        texts.get(WHERE),
    )


def _layout(settings: Mapping[str, str], shown: str) -> Layout:
    """Return the layout of an output's rows. Raises UsageError."""
    for name, known in (("columns", (DECODED, OF_LOG)), ("mode", MODES)):
        if settings.get(name, known[0]) not in known:
            raise UsageError(f"{shown}: {name}={settings[name]}: expected {' or '.join(known)}")
    return Layout(
        settings.get("columns") == OF_LOG,
        settings.get("key"),
        settings.get("value"),
        settings.get("mode"),
        parse_transforms(settings.get("partition_by", ""), shown),
        tuple(name.strip() for name in settings.get("sort_by", "").split(",") if name.strip()),
    )


def _check_output(place: Place, shown: str) -> None:
    """Raise UsageError for settings that an output's format does not support."""
    layout = place.layout
    has_columns = layout.as_log or layout.key or layout.value or layout.partition_by or layout.sort_by
    if place.format == JSON_LINES and has_columns:
        raise UsageError(f"{shown}: lines of JSON are whole records without columns; format=parquet has columns")
    if layout.mode is not None and not place.is_table:
        raise UsageError(f"{shown}: mode is for tables; files are always new, and --overwrite replaces existing ones")
    if layout.mode == MERGE and layout.as_log:
        raise UsageError(f"{shown}: columns=log keeps every record, which requires mode=append")
    if place.format == TABLE and "/" in place.path:
        raise UsageError(f"{shown}: a table has a name, such as catalog.database.table; format=iceberg is for paths")


def _format_of(named: str) -> str:
    """Return the format that a setting names, in the form that is compared here: Spark ignores case, and takes names of classes too.

    >>> [_format_of(name) for name in ("Parquet", "JSONL", "com.databricks.spark.csv", "org.example.Source")]
    ['parquet', 'json', 'csv', 'org.example.Source']
    """
    parts = named.lower().split(".")
    if len(parts) == 1:
        return {"jsonl": JSON_LINES}.get(parts[0], parts[0])
    return next((kind for kind in (*OF_SPARK, DELTA, ICEBERG) if kind in parts), named)


def _guess(path: str) -> str:
    """Return the format of the files at a path on this machine; UNKNOWN for a path elsewhere."""
    if "://" in path:
        return UNKNOWN
    if is_table_name(path) and not os.path.exists(path):
        return TABLE
    files = sorted(glob(path)) if has_magic(path) else [path]
    return recognized(files[0] if files else path, _names, _first_bytes)


def is_table_name(text: str) -> bool:
    """Return whether a text has the form CATALOG.DATABASE.TABLE, without the suffix of a file format."""
    suffix = os.path.splitext(text)[1]
    return re.fullmatch(r"\w+(\.\w+){2,}", text) is not None and suffix not in (".json", ".jsonl", *_BY_SUFFIX)


def _format_of_output(path: str) -> str:
    return TABLE if is_table_name(path) else format_of_name(path)


def recognized(path: str, names: Callable[[str], list[str] | None], first_bytes: Callable[[str], bytes]) -> str:
    """Detect the format of the files at a path by folders and first bytes, or else by the suffix of its name.

    names: returns the names in a directory, None for a file; first_bytes: returns the first bytes of a file. Raises UsageError
    for a compressed file whose suffix does not say so.
    """
    for _ in range(_DEEPEST):
        inside = names(path)
        if inside is None:
            data = first_bytes(path)
            by_magic = next((kind for magic, kind in _BY_MAGIC.items() if data.startswith(magic)), None)
            suffix = next(
                (extension for magic, extension in _COMPRESSED_BY_MAGIC.items() if data.startswith(magic)), None
            )
            if suffix is not None and not path.lower().endswith(COMPRESSED):
                raise UsageError(
                    f"{path}: the file is compressed, which Spark recognizes only by its suffix; rename it to end with {suffix}"
                )
            return by_magic or format_of_name(path)
        if DELTA_LOG in inside:
            return DELTA
        if "metadata" in inside and any(name.endswith(".metadata.json") for name in names(f"{path}/metadata") or ()):
            return ICEBERG
        visible = sorted(name for name in inside if not name.startswith(("_", ".")))
        if not visible:
            break
        path = f"{path.rstrip('/')}/{visible[0]}"
    return format_of_name(path)


def format_of_name(path: str) -> str:
    """Return the format that the suffix of a name selects, by default JSON_LINES."""
    name = path.rstrip("/").lower()
    plain, suffix = os.path.splitext(name)
    return _BY_SUFFIX.get(os.path.splitext(plain)[1] if suffix in COMPRESSED else suffix, JSON_LINES)


def _names(path: str) -> list[str] | None:
    if os.path.isdir(path):
        return os.listdir(path)
    return None if os.path.exists(path) else []


def _first_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(max(map(len, _BY_MAGIC)))


def is_ambiguous(place: Place) -> bool:
    """Return whether a path is on this machine, and Spark would take it for a pattern, which matches others."""
    return place.is_local and re.search(r"[*?\[{]", place.path) is not None and os.path.exists(place.path)


def is_missing(place: Place) -> bool:
    """Return whether a path is on this machine and does not exist."""
    return place.is_local and not (glob(place.path) if has_magic(place.path) else os.path.exists(place.path))
