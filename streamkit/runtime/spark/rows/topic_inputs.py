"""The inputs of a topic: orders their rows, and turns them into records, in Spark or in its workers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn

import orjson

from streamkit import durations
from streamkit.errors import ErrorCollector, InexactError, SerdeError, TransportError, UsageError
from streamkit.plan.model import Plan
from streamkit.record import Headers
from streamkit.runtime.records import RecordJson, headers_from_json
from streamkit.runtime.spark.fields_read import fields_read
from streamkit.runtime.spark.job_options import OF_SPARK, Columns, Place
from streamkit.runtime.spark.rows.file_system import BLOCK, FILE, INDEX, ROW, input_files, place_of_line, same_path
from streamkit.runtime.spark.rows.files import FILES, OFFSETS, ORDERED, OpenedInput, narrowed
from streamkit.runtime.spark.rows.input_columns import (
    PARTS,
    encoded_part,
    is_plain,
    milliseconds,
    plain_part,
    with_fields,
)
from streamkit.runtime.spark.rows.text_checks import EXCERPT_CHARACTERS
from streamkit.runtime.spark.spark_session import changed_meaning
from streamkit.runtime.spark.stage_plan import matching
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.output_collector import partitions_of
from streamkit.runtime.spark.workers.worker import load, mark_errors, source_id
from streamkit.serdes.formats.json_text import from_text
from streamkit.serdes.plain import Json
from streamkit.serdes.serde import Serde
from streamkit.serdes.size import MAX_BYTES
from streamkit.suggestions import did_you_mean

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame


_NUMBERS = ("partition", "offset")
_OF_A_LINE = frozenset(("topic", *PARTS, "error"))
"""The fields of a line that is a record; `consume` writes `error`."""
_OF_A_HEADER = ({"name", "value"}, {"key", "value"})
_PLACED = {
    "partition": "int",
    "key": "binary",
    "value": "binary",
    "timestamp": "bigint",
    "source": "bigint",
    "offset": "bigint",
}
"""The columns of rows that Spark has encoded; the others are constant (arrow_rows.with_all_columns)."""
_PLACED_DDL = ", ".join(f"`{name}` {kind}" for name, kind in _PLACED.items())
_BLOCK_BITS = 41
"""The bits for the position of a block in its file: files may have up to 2 TB."""


def select_topic(
    plan: Plan,
    opened: OpenedInput,
    topic: str,
    inputs: Mapping[str, Sequence[Place]],
    earlier: Callable[[], Iterable[OpenedInput]] = lambda: (),
) -> OpenedInput:
    """Return the rows of an input that belong to a topic, if its column `topic` names the topic of each row.

    If all rows name one topic that is not `topic`, they are an output that was renamed: all belong to `topic`, unless the
    job reads the input for several topics, or an earlier run read rows under the name of `topic`. Inputs with settings for
    columns are returned unchanged, and so are JSON Lines, whose topics the workers check. inputs: the inputs of all topics;
    earlier: opens the inputs of earlier runs. Raises TransportError for a topic that the plan does not have.
    """
    place = opened.place
    if not _names_topics(opened):
        return opened
    names, topics = names_of(plan, topic), _topics_in(opened)
    if len(topics) == 1 and topics.isdisjoint(names):
        readers = [reader for reader, places in inputs.items() if any(other.path == place.path for other in places)]
        before = (other for other in earlier() if other.place == place and _names_topics(other))
        if readers == [topic] and all(_topics_in(other).isdisjoint(names) for other in before):
            return opened
    known = topics_of(plan)
    for name in topics:
        try:
            check_topic(plan, name, known)
        except SerdeError as error:
            raise TransportError(f"{place.path}: column topic: {error}") from error
    return narrowed(opened, _topic().isin(list(names)))


def _is_timed(plan: Plan, topic: str) -> bool:
    """Return whether an expression of the topology makes the timestamps of a topic's records."""
    declared = plan.external_topics.get(topic)
    return declared is not None and declared.timestamp is not None and not isinstance(declared.timestamp, str)


def _names_topics(opened: OpenedInput) -> bool:
    """Return whether the rows of an input name their topics."""
    place, kind = opened.place, dict(opened.source.dtypes).get("topic")
    return (
        kind is not None and "<" not in kind and not place.has_lines and replace(place.columns, where=None) == Columns()
    )


def _topics_in(opened: OpenedInput) -> set[Json]:
    return {topic for (topic,) in opened.source.select(_topic()).distinct().collect()}


def _topic() -> Column:
    """Return the topic of a row: not all writers of Parquet say that its bytes are text, and a name of digits is inferred as a number."""
    from pyspark.sql import functions as sf

    return sf.col("topic").cast("string")


def names_of(plan: Plan, topic: str) -> tuple[str, ...]:
    """Return the names by which records can refer to a topic: its name on the log, and its entry in the topology."""
    declared = plan.external_topics.get(topic)
    return (topic,) if declared is None else (topic, declared.entry)


def check_order(topic: str, inputs: Sequence[tuple[str, str]]) -> None:
    """Raise UsageError if the order among the rows of several inputs is undefined. inputs: path and order of each.

    Rows with offsets and rows of files can be combined, as in a directory; those with offsets come first.
    """
    for (path, order), (other_path, other_order) in pairwise(inputs):
        if order != other_order and {order, other_order} != {FILES, OFFSETS}:
            raise UsageError(
                f"--input {topic}: the order between the rows of {path} ({order}) and {other_path} ({other_order}) is undefined; "
                "give both inputs an order=COLUMN of the same kind"
            )


def ranks_of(inputs: Sequence[OpenedInput]) -> list[Mapping[str, int]]:
    """Return, for each input, the ranks of its files in reading order: input by input, and by file name within an input.

    Raises UsageError for a file that two inputs read in the same way, because its rows would count twice.
    """
    ranks: list[Mapping[str, int]] = []
    first = 0
    for number, opened in enumerate(inputs):
        names = sorted(map(same_path, input_files(opened.frame)))
        for other, known in zip(inputs[:number], ranks, strict=True):
            twice = known.keys() & set(names) if _reads_alike(opened.place, other.place) else ()
            if twice:
                raise UsageError(
                    f"{min(twice)} is in both {other.place.path} and {opened.place.path}, and would be read twice; each file must belong "
                    "to one input"
                )
        ranks.append({name: rank for rank, name in enumerate(names, first)})
        first += len(names)
    return ranks


def _reads_alike(one: Place, other: Place) -> bool:
    """Return whether two inputs turn a file into the same records."""
    return one.format in OF_SPARK and replace(one, path="") == replace(other, path="")


def read_inputs(
    plan: Plan,
    pickled: bytes,
    topic: str,
    partitions: int,
    inputs: Sequence[OpenedInput],
    ranks: Sequence[Mapping[str, int]],
    *,
    whole: bool = False,
) -> DataFrame:
    """Return the records of a topic as rows for a stage. Raises TransportError for missing columns.

    pickled: the plan for the workers; ranks: the ranks of each input's files in reading order; whole: as in `read_files`.
    """
    timed = _is_timed(plan, topic)
    first, *others = (
        read_files(
            opened.frame,
            opened.place,
            FileReading(
                pickled, topic, names_of(plan, topic), partitions, ranks[number], timed, opened.place.has_lines
            ),
            whole=whole,
        )
        for number, opened in enumerate(inputs)
    )
    if not others:
        return first
    rows = arrow_rows.with_all_columns(first, topic)
    for frame in others:
        rows = rows.unionByName(arrow_rows.with_all_columns(frame, topic))
    return rows


@dataclass(frozen=True)
class FileReading:
    """How workers turn the rows of a file into records of a topic."""

    plan: bytes
    topic: str
    names: tuple[str, ...]
    """The names that records may use for the topic: its name on the log, and the name of its entry."""
    partitions: int
    files: Mapping[str, int]
    """The index of each file when they are sorted by name."""
    timed: bool
    """Whether the topic has a timestamp expression."""
    of_lines: bool = True
    """Whether the rows are lines of text."""


def read_files(frame: DataFrame, place: Place, reading: FileReading, *, whole: bool) -> DataFrame:
    """Return the records of a topic as rows for a stage. Raises TransportError for columns that are missing.

    `whole`: also read the fields that no step uses, because the records themselves are shown.
    """
    from pyspark.sql import functions as sf

    if place.has_lines:
        return frame.mapInArrow(partial(read_lines, reading), arrow_rows.DDL)
    for error in _missing_parts(frame.columns, place, reading.timed):
        raise error
    if _is_raw(dict(frame.dtypes)):
        return _raw_frame(frame, reading)
    if "headers" in frame.columns:
        _check_headers(frame, place)
    plan = load(reading.plan).plan
    serdes = dict(zip(("key", "value"), RecordJson(plan).reading(reading.topic), strict=True))
    # The types of all columns must fit, including columns that no step uses.
    for name in frame.columns:
        if name in serdes:
            plain_part(frame, place, name, serdes[name])
    used = None if whole or changed_meaning(frame.sparkSession) is not None else fields_read(plan, reading.topic)
    pruned = None if used is None else with_fields(frame, used)
    encoded = None if pruned is None else _encoded(pruned, place, serdes)
    if encoded is not None:
        return encoded.mapInArrow(partial(place_columns, reading, INDEX in frame.columns), _PLACED_DDL)
    frame = frame if pruned is None else pruned
    columns = [
        plain_part(frame, place, name, serdes[name])
        if name in serdes
        else milliseconds(frame, place)
        if name == "timestamp"
        else _whole(name)
        if name in _NUMBERS and frame.schema[name].dataType.simpleString() == "string"
        else sf.col(name)
        for name in frame.columns
    ]
    return frame.select(*columns).mapInArrow(partial(read_columns, reading), arrow_rows.DDL)


def _encoded(frame: DataFrame, place: Place, serdes: Mapping[str, Serde]) -> DataFrame | None:
    """Return records encoded by Spark, with their positions; None if they have parts that only Python can encode."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StructType

    parts = {name for name in frame.columns if name in PARTS}
    if not {"value", "timestamp"} <= parts <= {"key", "value", "timestamp"}:
        return None
    if frame.schema["timestamp"].dataType.simpleString() == "string":
        return None
    if "key" in parts and isinstance(frame.schema["key"].dataType, StructType):
        # The bytes of a key determine its partition, but Spark and Python write objects as different text.
        return None
    value = encoded_part(frame, place, "value", serdes["value"])
    key = encoded_part(frame, place, "key", serdes["key"]) if "key" in parts else sf.lit(None).cast("binary")
    if key is None or value is None:
        return None
    time = sf.coalesce(milliseconds(frame, place), sf.lit(0)).alias("timestamp")
    positions = [name for name in (FILE, BLOCK, ROW) if name in frame.columns]
    return frame.select(key.alias("key"), value.alias("value"), time, *positions)


def _missing_parts(columns: Collection[str], place: Place, is_timed: bool) -> list[TransportError]:
    return [
        TransportError(
            f"{place.path}: there is no column {name} for the {name} of a record; name another column with "
            f"{place.path},{name}=COLUMN{', or all of them with *' if name == 'value' else ''}"
        )
        for name in (["value"] if is_timed else ["value", "timestamp"])
        if name not in columns
    ]


def check_parts(plan: Plan, opened: OpenedInput, topic: str) -> None:
    """Raise an error for each part of an input's records that is missing, or has a type that the topic does not take."""
    errors, place = ErrorCollector(), opened.place
    if place.has_lines:
        return
    for error in _missing_parts(opened.schema.names, place, _is_timed(plan, topic)):
        with errors.collecting():
            raise error
    for part, serde in zip(("key", "value"), RecordJson(plan).reading(topic), strict=True):
        # Spark is asked only if the types do not show that the serde takes them.
        if part in opened.schema.names and not is_plain(opened.schema[part].dataType, part, serde):
            with errors.collecting():
                plain_part(opened.parts, place, part, serde)
    if "headers" in opened.schema.names:
        with errors.collecting():
            _check_headers(opened.parts, place)
    errors.raise_errors()


def _check_headers(frame: DataFrame, place: Place) -> None:
    """Raise TransportError for objects that are no headers: their names and values would be null."""
    from pyspark.sql.types import ArrayType, StructType

    kind = frame.schema["headers"].dataType
    header = kind.elementType if isinstance(kind, ArrayType) else None
    if isinstance(header, StructType) and set(header.names) not in _OF_A_HEADER:
        raise TransportError(
            f"{place.path}: headers is of type {kind.simpleString()}; a header is an object with name (or key) and value, such as of "
            "headers=transform(headers, h -> struct(h.NAME as name, h.VALUE as value))"
        )


def _whole(name: str) -> Column:
    """Convert a column of text to whole numbers; other text fails, whatever the session's rule for casts."""
    from pyspark.sql import functions as sf

    column = sf.col(name)
    refusal = sf.concat(sf.lit(f"{name} is "), column, sf.lit("; expected a whole number"))
    number = sf.coalesce(column.try_cast("bigint"), sf.raise_error(refusal).cast("bigint"))
    return sf.when(column.isNotNull(), number).alias(name)


def _is_raw(columns: Mapping[str, str]) -> bool:
    """Return whether columns are those of the log, which Spark turns into rows without Python."""
    needed = {"key": "binary", "value": "binary", "timestamp": "bigint", "partition": "int", "offset": "bigint"}
    return (
        needed.items() <= columns.items() and columns.get("headers", arrow_rows.HEADERS_DDL) == arrow_rows.HEADERS_DDL
    )


def _raw_frame(frame: DataFrame, reading: FileReading) -> DataFrame:
    from pyspark.sql import functions as sf

    def checked(name: str, kind: str, highest: int, reason: str) -> Column:
        column = sf.col(name)
        text = sf.coalesce(column.cast("string"), sf.lit("null"))
        refusal = sf.concat(sf.lit(f"topic {reading.topic}: {name} is "), text, sf.lit(f", {reason}"))
        valid = sf.when(column.between(0, highest), column)
        return valid.otherwise(sf.raise_error(refusal).cast(kind)).alias(name)

    unplaced = "which is not an offset; without this column, the place of a row in its file is its offset"
    return frame.select(
        checked("partition", "int", reading.partitions - 1, f"but the topic has {reading.partitions}"),
        "key",
        "value",
        sf.coalesce("timestamp", sf.lit(0)).alias("timestamp"),
        *(["headers"] if "headers" in frame.columns else []),
        checked("offset", "bigint", (1 << arrow_rows.PLACE_BITS) - 1, unplaced),
    )


@mark_errors
def read_lines(reading: FileReading, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records of JSON Lines; lines of other topics and control lines are skipped."""
    fields = _Fields(reading)
    for batch in batches:
        lines = arrow_rows.values_of(batch.column(0).cast("binary"))
        rows = []
        parse = _parser(batch.column(0))
        for at, (line, place) in enumerate(zip(lines, fields.places(batch), strict=True)):
            if not line or line.isspace():
                continue
            try:
                record = parse(line)
                if type(record) is not dict:
                    raise SerdeError("expected an object with key, value, timestamp, headers, partition, offset")
                if "advance_wall_clock" not in record and fields.is_of_topic(record.get("topic", reading.topic)):
                    if not record.keys() <= _OF_A_LINE:
                        _refuse_field(record)
                    rows.append(fields.row(record, place))
            except (SerdeError, ValueError) as error:
                reason = error if isinstance(error, SerdeError) else f"not JSON: {error}"
                where = fields.line_of(batch, at)
                raise TransportError(f"{where}: topic {reading.topic}: {reason}: {_short(line)}") from error
        if rows:
            topics, numbers, keys, values, times, headers, order, sources, offsets = zip(*rows, strict=True)
            yield fields.batch((topics, numbers, keys, values, times, headers, order, sources, offsets))


@mark_errors
def read_columns(reading: FileReading, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield records from columns: bytes stay as they are, and the topic's serde encodes other types."""
    fields = _Fields(reading)
    for batch in batches:
        if not len(batch):
            continue
        parts = {
            name: batch.column(name).to_pylist() if name == "headers" else arrow_rows.plain_of(batch.column(name))
            for name in batch.schema.names
            if name in PARTS
        }
        try:
            columns = fields.columns(parts, fields.places(batch))
        except SerdeError as error:
            raise TransportError(f"topic {reading.topic}: {error}") from error
        yield fields.batch(columns)


@mark_errors
def place_columns(reading: FileReading, has_index: bool, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield records that Spark has encoded, with their partitions and places. `has_index`: whether blocks are indices of rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    fields = _Fields(reading)
    count = reading.partitions
    for batch in batches:
        if not len(batch):
            continue
        # With Spark's setting useLargeVarTypes, these columns have a larger type.
        keys, values = (batch.column(name).cast(pa.binary()) for name in ("key", "value"))
        for part, column in (("key", keys), ("value", values)):
            _check_bytes(reading.topic, part, column)
        sources, offsets = (
            fields.index_places(batch) if has_index else map(np.array, zip(*fields.places(batch), strict=True))
        )
        partitions = partitions_of(keys, count)
        if keys.null_count:
            partitions = np.where(np.asarray(pc.is_valid(keys)), partitions, offsets % count)
        arrays = [partitions.astype(np.int32), keys, values, batch.column("timestamp"), sources, offsets]
        yield pa.RecordBatch.from_arrays([pa.array(array) for array in arrays], names=list(_PLACED))


def _check_bytes(topic: str, part: str, column: pa.Array) -> None:
    """Raise TransportError for bytes that are too large for a record."""
    import pyarrow.compute as pc

    longest = pc.max(pc.binary_length(column)).as_py() or 0
    if longest > MAX_BYTES:
        raise TransportError(f"topic {topic}: {part}: {longest:,} bytes; at most {MAX_BYTES:,} are allowed")


def _parser(lines: pa.Array) -> Callable[[bytes], Json]:
    """Return a parser of lines: orjson, unless one of them may have an integer that is too large for it."""
    import pyarrow.compute as pc

    return from_text if pc.any(pc.match_substring_regex(lines, "[0-9]{19}")).as_py() else orjson.loads


class _Fields:
    """Makes rows of records in JSON form."""

    def __init__(self, reading: FileReading):
        plan = self._plan = load(reading.plan).plan
        key_serde, value_serde = RecordJson(plan).reading(reading.topic)
        self._topics = topics_of(plan)
        self._reading = reading
        self._key = _encoder(key_serde, "key")
        self._value = _encoder(value_serde, "value")
        self._last: tuple[str, int] | None = None
        self._first_row = 0
        self._before: tuple[tuple[str, int] | None, int] = (None, 0)

    def is_of_topic(self, topic: Json) -> bool:
        """Return whether a record belongs to the topic being read. Raises SerdeError for a topic that the topology does not have."""
        if topic not in self._reading.names:
            check_topic(self._plan, topic, self._topics)
        return topic in self._reading.names

    def row(self, record: Mapping[str, Json], place: tuple[int, int]) -> arrow_rows.Row:
        """Return the row of a record. Raises SerdeError."""
        key, value = record.get("key"), record.get("value")
        raw_key = None if key is None else self._key(key)
        raw_value = None if value is None else self._value(value)
        time = record.get("timestamp")
        if time is None:
            time = 0
        elif type(time) is not int:
            time = _instant(time)
        source, offset = place
        own_offset = record.get("offset")
        if own_offset is not None:
            source, offset = 0, _integer(own_offset, "offset")
        headers = record.get("headers")
        return (
            self._reading.topic,
            self._partition(record.get("partition")),
            raw_key,
            raw_value,
            time,
            _headers(headers) if headers else None,
            None,
            source,
            offset,
        )

    def columns(self, parts: Mapping[str, Sequence[Json]], places: Sequence[tuple[int, int]]) -> arrow_rows.RowColumns:
        """Return the columns of rows for the parts of their records, in half the time that `row` would take. Raises SerdeError."""
        none: list[None] = [None] * len(places)
        sources, offsets = zip(*places, strict=True)
        if "offset" in parts:
            own = [None if offset is None else _integer(offset, "offset") for offset in parts["offset"]]
            sources = tuple(0 if offset is not None else source for source, offset in zip(sources, own, strict=True))
            offsets = tuple(at if offset is None else offset for at, offset in zip(offsets, own, strict=True))
        return (
            [self._reading.topic] * len(places),
            [self._partition(number) for number in parts["partition"]] if "partition" in parts else none,
            [None if key is None else self._key(key) for key in parts.get("key", none)],
            [None if value is None else self._value(value) for value in parts.get("value", none)],
            [
                time if type(time) is int else 0 if time is None else _instant(time)
                for time in parts.get("timestamp", none)
            ],
            [_headers(headers) if headers else None for headers in parts["headers"]] if "headers" in parts else none,
            none,
            sources,
            offsets,
        )

    def batch(self, columns: arrow_rows.RowColumns) -> pa.RecordBatch:
        """Return the columns of rows as an Arrow batch; the partitioner chooses the partitions of rows without one."""
        import pyarrow as pa

        topics, named, keys, values, times, headers, order, sources, offsets = columns
        partitions: list[int | None] = list(named)
        count = self._reading.partitions
        if None in partitions and count > 1:
            by_key = partitions_of(pa.array(keys, pa.binary()), count).tolist()
            partitions = [
                (at if key is not None else offset % count) if number is None else number
                for number, at, key, offset in zip(partitions, by_key, keys, offsets, strict=True)
            ]
        elif None in partitions:
            partitions = [0] * len(partitions)
        return arrow_rows.to_batch((topics, partitions, keys, values, times, headers, order, sources, offsets))

    def places(self, batch: pa.RecordBatch) -> list[tuple[int, int]]:
        """Return two numbers for each row of a batch: the place of its file, or of a block in the file, and the row's place in that.

        The place of a file does not depend on its format, because a topic may have inputs of several formats.
        """
        files = self._reading.files
        names = arrow_rows.values_of(batch.column(FILE))
        blocks = arrow_rows.values_of(batch.column(BLOCK))
        numbers = arrow_rows.values_of(batch.column(ROW))
        # Lines have at least one byte, so that the places in a block are smaller than those in the next block.
        is_place = self._reading.of_lines or INDEX in batch.schema.names
        self._before = self._last, self._first_row
        places = []
        last, first = self._last, self._first_row
        for name, block, row in zip(names, blocks, numbers, strict=True):
            if (name, block) != last:
                last, first = (name, block), row
            if not name:
                places.append((ORDERED + row, block))
            elif is_place:
                places.append(((1 + files[same_path(name)]) << _BLOCK_BITS, block + row - first))
            else:
                places.append((((1 + files[same_path(name)]) << _BLOCK_BITS) + block, row - first))
        self._last, self._first_row = last, first
        return places

    def index_places(self, batch: pa.RecordBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the places of rows as arrays, for rows whose blocks are their indices in their files."""
        import numpy as np

        names = batch.column(FILE).dictionary_encode()
        starts = [(1 + self._reading.files[same_path(name)]) << _BLOCK_BITS for name in names.dictionary.to_pylist()]
        return np.array(starts, dtype=np.int64)[names.indices.to_numpy()], batch.column(BLOCK).to_numpy()

    def line_of(self, batch: pa.RecordBatch, at: int) -> str:
        """Return the file and line of a row of the batch last passed to `places`."""
        names, blocks, rows = (arrow_rows.values_of(batch.column(name)) for name in (FILE, BLOCK, ROW))
        last, first = self._before
        for name, block, row in zip(names[: at + 1], blocks, rows, strict=False):
            if (name, block) != last:
                last, first = (name, block), row
        return place_of_line(same_path(names[at]), blocks[at], rows[at] - first)

    def _partition(self, number: Json) -> int | None:
        if number is None:
            return None
        partition = _integer(number, "partition")
        if not 0 <= partition < self._reading.partitions:
            raise SerdeError(f"partition is {number}, but the topic has {self._reading.partitions}")
        return partition


def topics_of(plan: Plan) -> set[str]:
    """Return the names that records may use for the topics of a plan: the names on the log, and the names of entries."""
    return plan.topic_names() | {topic.entry for topic in plan.external_topics.values()}


def check_topic(plan: Plan, topic: Json, topics: Collection[str]) -> None:
    """Raise SerdeError for the topic of a record that is neither one of `topics` nor matches a pattern of the plan."""
    if topic not in topics and not matching(plan, str(topic)):
        known = sorted(topics)
        raise SerdeError(f"the topology has no topic {topic!r}{did_you_mean(str(topic), known, ', '.join(known))}")


def _refuse_field(record: Mapping[str, Json]) -> NoReturn:
    unknown = next(name for name in record if name not in _OF_A_LINE)
    raise SerdeError(
        f"unknown field {unknown!r}; a record has {', '.join(sorted(_OF_A_LINE))}; if the lines are data, value=* and "
        "timestamp=COLUMN of --input make records of them"
    )


def _instant(time: object) -> int:
    """Return the milliseconds of a time that is text, because its file has no types. Raises SerdeError."""
    if isinstance(time, str):
        if re.fullmatch("-?[0-9]+", time):
            return int(time)
        instant = durations.iso_time(time)
        if instant is not None:
            return instant
    raise SerdeError(f"timestamp is {time!r}; expected milliseconds or a time such as 2025-01-31T08:00:00Z")


def _integer(number: object, what: str) -> int:
    if type(number) is not int:
        raise SerdeError(f"{what} is {number!r}; expected a whole number")
    return number


def _headers(value: Json) -> Headers | None:
    if not isinstance(value, list):
        raise SerdeError("headers must be a list of objects with name and value, or of pairs")
    if isinstance(value[0], Mapping):
        # A column of structs: name (or key) and value.
        headers = [(header.get("name", header.get("key")), header.get("value")) for header in value]
        if any(name is None for name, _ in headers):
            raise SerdeError(f"headers are {headers!r}; a header needs a name")
        return headers
    return headers_from_json(value)


def _encoder(serde: Serde, what: str) -> Callable[[Json], bytes]:
    encode, from_json = serde.encode, serde.from_json

    def run(data: Json) -> bytes:
        if type(data) is bytes:
            return data
        try:
            return encode(from_json(data))
        except SerdeError as error:
            raise SerdeError(f"{what}: {error}") from error

    return run


def _short(line: bytes) -> str:
    text = line[:EXCERPT_CHARACTERS].decode(errors="replace")
    # A terminal would interpret the control characters of a binary file.
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
    return shown + ("…" if len(line) > EXCERPT_CHARACTERS else "")


# Records of queries for stages in Python.


@dataclass(frozen=True)
class Sender:
    """The stage of a query that writes a topic between stages, for the rows of stages in Python that read it.

    sub: its sub-topology; tasks: those that write the topic in a live run, one for each partition of the topic `source`.
    """

    sub: int
    tasks: int
    source: str
    topic: str
    partitions: int


WRITER = "writer"
"""The column of the key of the record of the topic `Sender.source` that a row comes from, if several tasks write the topic."""


def sent_rows(frame: DataFrame, sender: Sender, plan: bytes, files: Sequence[str]) -> DataFrame:
    """Return the records of a query as rows of the topic that its stage writes.

    frame: the columns `key` and `value`, as bytes or as what the topic's serdes encode, `timestamp`, `source` and `offset`, by which
    a task has the rows in their order, FILE if the places of files come before these, and WRITER. files: those of the query's input.
    """
    ranks = {name: rank << _BLOCK_BITS for rank, name in enumerate(sorted(map(same_path, files)), 1)}
    return frame.mapInArrow(partial(send_columns, sender, plan, ranks), _PLACED_DDL)


@mark_errors
def send_columns(
    sender: Sender, plan: bytes, ranks: Mapping[str, int], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield records of a query with their bytes and partitions. Raises InexactError for what a serde refuses."""
    import numpy as np
    import pyarrow as pa

    form = RecordJson(load(plan).plan)
    serdes = dict(zip(("key", "value"), form.reading(sender.topic), strict=True))
    serdes[WRITER] = form.reading(sender.source)[0]
    for batch in batches:
        if not len(batch):
            continue
        names = set(batch.schema.names)
        try:
            parts = {name: _bytes_of(batch.column(name), serdes[name], name) for name in serdes if name in names}
        except SerdeError as error:
            raise InexactError(f"topic {sender.topic}: {error}") from error
        sources, offsets = (batch.column(name).to_numpy() for name in ("source", "offset"))
        if FILE in names:
            file = batch.column(FILE).dictionary_encode()
            starts = [ranks[same_path(name)] for name in file.dictionary.to_pylist()]
            sources = sources + np.array(starts, dtype=np.int64)[file.indices.to_numpy()]
        if WRITER in names:
            offsets = sources if FILE in names else offsets
            sources = source_id(sender.sub, 0) + partitions_of(parts[WRITER], sender.tasks)
        partitions = partitions_of(parts["key"], sender.partitions).astype(np.int32)
        columns = [partitions, parts["key"], parts["value"], batch.column("timestamp"), sources, offsets]
        yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=list(_PLACED))


def _bytes_of(column: pa.Array, serde: Serde, what: str) -> pa.Array:
    """Return a column as bytes; what are no bytes yet, the serde encodes. Raises SerdeError."""
    import pyarrow as pa

    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column.cast(pa.binary())
    encode = _encoder(serde, what)
    return pa.array([None if data is None else encode(data) for data in arrow_rows.plain_of(column)], pa.binary())
