"""The topics that records are written to, and the rows of records in batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamkit.errors import SerdeError, UsageError
from streamkit.plan.lookup import find_topic

if TYPE_CHECKING:
    from streamkit.plan.model import ExternalTopic, Plan
    from streamkit.record import OutputTuple
    from streamkit.runtime.records import RecordJson
    from streamkit.serdes.plain import Json
    from streamkit.transport.log_interface import Transport

BATCH = 1000


class TopicTargets:
    """The topics of the records; each is looked up on the log once, and created where it is missing."""

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
        from streamkit_cli.logs import existing_topic

        self._found[name] = (topic, existing_topic(self._transport, self._plan, topic).partitions)


def batches(rows: Iterator[OutputTuple]) -> Iterator[list[OutputTuple]]:
    """Yield rows in batches; where a line raises an error, first the rows before it."""
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
        raise SerdeError(f"partition is {partition!r}; topic {topic} has {partitions} partitions, counted from 0")


def _any_topic(topic: str) -> None:
    """Accept any topic, also one that the topology only writes."""
