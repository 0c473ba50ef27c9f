"""Processes the record of a dead letter again, in memory and with the state that is on the log now."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from streamkit.errors import DeserializationError, ProcessingError, TopicError, UsageError
from streamkit.plan.model import Plan, SubTopology
from streamkit.record import PLACE_ON_LOG, OutputTuple, TopicPartition
from streamkit.runtime.driver import Driver, Remains
from streamkit.runtime.execution.dead_letters import PREFIX, DeadLetter, dead_letter_topics, read_dead_letter
from streamkit.runtime.tracing import Tracer, Visit
from streamkit.serdes.plain import Json
from streamkit.transport.log_interface import Consumer, Transport

_BATCH, _POLL_MS = 5000, 200


class Explanation(NamedTuple):
    """What the steps do with a record; `failure`: the error that would end the application, if there is one."""

    visits: list[Visit]
    output: list[dict[str, Json]]
    failure: str | None


def find_letter(plan: Plan, transport: Transport, place: str) -> DeadLetter:
    """Return the dead letter at `TOPIC-PARTITION@OFFSET`, or at an offset that only one dead-letter partition of the plan has.

    Raises UsageError for text in any other form, TopicError if there is no such letter.
    """
    with closing(transport.admin()) as admin:
        counts = admin.partition_counts()
    named = PLACE_ON_LOG.fullmatch(place)
    if named is None and not (place.isascii() and place.isdigit()):
        raise UsageError(f"--dead-letter {place}: expected an offset, or TOPIC-PARTITION@OFFSET as replay shows it")
    offset = int(place if named is None else named[3])
    if named is not None:
        names = {topic.entry: topic.name for topic in plan.external_topics.values()}
        places = [TopicPartition(names.get(named[1], named[1]), int(named[2]))]
        places = [partition for partition in places if partition.partition < counts.get(partition.topic, 0)]
    else:
        topics = dead_letter_topics(plan)
        if not topics:
            raise TopicError(f"{plan.file} writes no dead letters: name the place as TOPIC-PARTITION@OFFSET")
        places = [TopicPartition(topic, number) for topic in topics for number in range(counts.get(topic, 0))]
    with closing(transport.consumer(None, read_committed=True, client_id="explain")) as consumer:
        letters = [letter for partition in places if (letter := _letter(consumer, partition, offset)) is not None]
    if not letters:
        raise TopicError(f"there is no dead letter at {place}; `streamkit replay` lists the existing ones")
    if len(letters) > 1:
        known = ", ".join(f"{letter.place.topic}-{letter.place.partition}@{offset}" for letter in letters)
        raise UsageError(f"--dead-letter {place}: several partitions have this offset: {known}")
    return letters[0]


def explain(plan: Plan, transport: Transport, letter: DeadLetter) -> Explanation:
    """Process the record of a dead letter in memory; nothing is written. Raises TopicError for a letter that no record caused."""
    if letter.topic is None and not letter.error:
        place = f"{letter.place.topic}-{letter.place.partition}@{letter.place_offset}"
        raise TopicError(f"the record at {place} is not a dead letter: it has no header {PREFIX}exception")
    if letter.topic is None:
        raise TopicError("no record caused this dead letter: its cause was a timer, or a row that the log refused")
    remains = state_now(plan, transport, TopicPartition(letter.topic, letter.partition))
    remains.offsets[TopicPartition(letter.topic, 0)] = max(letter.offset, 0)
    remains.clock = letter.timestamp
    tracer = Tracer(plan)
    row: OutputTuple = (letter.topic, letter.key, letter.value, letter.timestamp, letter.headers or None, None)
    with Driver(plan, remains, tracer=tracer) as driver:
        tracer.take()
        try:
            output, failure = driver.pipe_row(row), None
        except (ProcessingError, DeserializationError) as error:
            output, failure = driver.printed(), str(error)
        return Explanation(tracer.take(), output, failure)


def state_now(plan: Plan, transport: Transport, source: TopicPartition) -> Remains:
    """Return the changelogs of all stores, and the committed times of the task that reads a partition.

    For the stores of that task only its partition is read. For all other stores every partition is read, since the record may reach any of them.
    """
    with closing(transport.admin()) as admin:
        counts = admin.partition_counts()
    remains = Remains(logs=False)
    with closing(transport.consumer(plan.application, read_committed=True, client_id="explain")) as consumer:
        for sub in plan.sub_topologies:
            is_own = source.topic in {plan.internal_name(topic) for topic in sub.source_topics}
            for topic in _changelogs(plan, sub):
                count = counts.get(topic, 0)
                numbers = (
                    [source.partition] if is_own and not sub.is_global and source.partition < count else range(count)
                )
                remains.changelogs[topic] = _rows(consumer, [TopicPartition(topic, number) for number in numbers])
            if is_own and not sub.is_global:
                places = [TopicPartition(plan.internal_name(topic), source.partition) for topic in sub.source_topics]
                places = [place for place in places if place.partition < counts.get(place.topic, 0)]
                committed = consumer.committed(places) if places else {}
                remains.committed.update(
                    {TopicPartition(partition.topic, 0): offset for partition, offset in committed.items()}
                )
    return remains


def _changelogs(plan: Plan, sub: SubTopology) -> list[str]:
    names = (plan.changelog_name(store) for store in sub.stores)
    return list(dict.fromkeys(name for name in names if name is not None))


def _letter(consumer: Consumer, partition: TopicPartition, offset: int) -> DeadLetter | None:
    end = consumer.end_offsets([partition])[partition]
    if not consumer.beginning_offsets([partition])[partition] <= offset < end:
        return None
    consumer.assign({partition: offset})
    while consumer.position(partition) < end:
        for batch in consumer.poll(1, _POLL_MS):
            columns = (batch.keys[0], batch.values[0], batch.timestamps[0], batch.headers[0])
            return read_dead_letter(partition, offset, columns) if batch.offsets[0] == offset else None
    return None


def _rows(consumer: Consumer, places: Sequence[TopicPartition]) -> list[OutputTuple]:
    """Return the records of partitions up to their current ends."""
    if not places:
        return []
    ends = consumer.end_offsets(places)
    first = consumer.beginning_offsets(places)
    open_places = {partition for partition in places if first[partition] < ends[partition]}
    consumer.assign({partition: first[partition] for partition in open_places})
    rows: list[OutputTuple] = []
    while open_places:
        for batch in consumer.poll(_BATCH, _POLL_MS):
            end = ends[TopicPartition(batch.topic, batch.partition)]
            columns = zip(batch.offsets, batch.keys, batch.values, batch.timestamps, batch.headers, strict=True)
            rows += [
                (batch.topic, key, value, time, headers, 0)
                for offset, key, value, time, headers in columns
                if offset < end
            ]
        open_places = {partition for partition in open_places if consumer.position(partition) < ends[partition]}
    return rows
