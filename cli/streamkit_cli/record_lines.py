"""Records as lines of text and back (JSON Lines, and plain lines that are a topic's values), and the topics that they are written to."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from streamkit.errors import SerdeError, UsageError
from streamkit.plan.model import ExternalTopic, Plan, find_topic
from streamkit.record import OutputTuple
from streamkit.serdes.plain import Json, json_of_line
from streamkit.serdes.serde import Serde
from streamkit.serdes.size import unused
from streamkit.suggestions import number_of
from streamkit_cli.loading import existing_topic

if TYPE_CHECKING:
    from streamkit.runtime.records import RecordJson
    from streamkit.transport.log_interface import Transport


STDIN = "stdin"


def input_name(path: str) -> str:
    """Return the name of an input in messages."""
    return STDIN if path == "-" else path


def input_lines(path: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, or of stdin for `-`. Raises UsageError for one that can't be read, at once."""
    if path != "-" and os.path.isdir(path):
        raise UsageError(f"{path}: is a directory, not a file of records")
    try:
        stream = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115 - read lazily, to the process's end
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    return decode_lines(stream, input_name(path))


def decode_lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """Yield lines as text. Raises SerdeError at the first that is not UTF-8."""
    for number, line in enumerate(stream, 1):
        try:
            # Some editors write a byte order mark before the first line.
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise SerdeError(f"{name}:{number}: not UTF-8 text at byte {error.start + 1}") from None


def json_line(record: Json) -> str:
    """Return a value as one line of compact JSON, without escaping non-ASCII characters."""
    import orjson

    try:
        # orjson and json write a small record the same unless it has a float with an exponent.
        if unused(record) >= 0:
            return orjson.dumps(record).decode() + "\n"
    except (TypeError, RecursionError):
        pass
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


def parse_record(line: str) -> dict[str, Json]:
    """Return the record of a JSON line. Raises SerdeError."""
    record = json_of_line(line)
    if not isinstance(record, dict):
        raise SerdeError("expected an object with key, value, timestamp, headers, partition")
    return record


def value_of_line(line: str, serde: Serde) -> Json:
    """Return the JSON form of the value of a plain line: its text, or for other serdes its JSON.

    Raises SerdeError.
    """
    text = line.rstrip("\r\n")
    if serde.spec == "string":
        return text
    if serde.spec == "bytes":
        return serde.to_json(text.encode())
    try:
        value: Json = json.loads(text)
        return value
    except (ValueError, RecursionError) as error:
        raise SerdeError(f"not a value of {serde.spec} as JSON: {text[:60]!r}") from error


def line_of_value(value: Json, raw: bytes | None) -> str:
    """Return the plain line of a value in JSON form: text unchanged, anything else as JSON, null for an absent value."""
    if isinstance(value, str):
        return value + "\n"
    if isinstance(value, dict) and value.keys() == {"base64"} and raw is not None:
        return raw.decode(errors="replace") + "\n"
    return json_line(value)


# The topics that records are written to, and the rows of records in batches.

BATCH = 1000


class TopicTargets:
    """The topics of the records; each is looked up on the log once, and created if it is missing."""

    def __init__(self, plan: Plan, transport: Transport, only: ExternalTopic | None):
        self._plan = plan
        self._transport = transport
        self._only = only
        self._found: dict[str, tuple[ExternalTopic, int]] = {}
        if only is not None:
            self._open(only.entry, only)

    @property
    def names(self) -> list[str]:
        """The topics so far."""
        return list(dict.fromkeys(topic.name for topic, _ in self._found.values()))

    def of(self, name: object) -> tuple[ExternalTopic, int]:
        """Return the topic of an entry's or its own name, and how many partitions it has. Raises SerdeError."""
        if self._only is not None:
            if name not in (None, self._only.name, self._only.entry):
                raise SerdeError(f"the record is for topic {name!r}, not {self._only.entry!r}")
            return self._found[self._only.entry]
        if not isinstance(name, str):
            raise SerdeError("the record has no topic; it needs one where the command names none")
        if name not in self._found:
            topic = self._plan.external_topics.get(name)
            try:
                self._open(name, topic if topic is not None else find_topic(self._plan, name))
            except UsageError as error:
                raise SerdeError(str(error)) from None
        return self._found[name]

    def _open(self, name: str, topic: ExternalTopic) -> None:
        self._found[name] = (topic, existing_topic(self._transport, self._plan, topic).partitions)


def batches(rows: Iterator[OutputTuple]) -> Iterator[list[OutputTuple]]:
    """Yield rows in batches; if a line raises an error, first the rows before it."""
    batch: list[OutputTuple] = []
    try:
        for row in rows:
            batch.append(row)
            if len(batch) == BATCH:
                yield batch
                batch = []
    except SerdeError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def row_of(form: RecordJson, record: dict[str, Json], target: tuple[ExternalTopic, int], now: int) -> OutputTuple:
    """Return the row of a record for a topic with so many partitions. Raises SerdeError."""
    topic, partitions = target
    _check_partition(record.get("partition"), topic.entry, partitions)
    row = form.encode({**record, "topic": topic.name}, now, _any_topic)
    if row[3] < 0:
        raise SerdeError(f"timestamp is {record['timestamp']!r}; Kafka takes none before 1970-01-01T00:00:00Z")
    return row


def _check_partition(partition: object, topic: str, partitions: int) -> None:
    if partition is not None and (type(partition) is not int or not 0 <= partition < partitions):
        raise SerdeError(
            f"partition is {partition!r}; topic {topic} has {number_of(partitions, 'partition')}, counted from 0"
        )


def _any_topic(topic: str) -> None:
    """Accept any topic, also one that the topology only writes."""
