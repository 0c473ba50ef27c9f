"""`streamkit consume`: records of a topic to stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.plan.lookup import find_topic

from .json_lines import json_line, line_of_value
from .loading import load_plan
from .options import EnvFile, File, Settings, Topic

if TYPE_CHECKING:
    from streamkit.record import RecordBatch
    from streamkit.transport.base import Consumer

POLL_RECORDS = 1000
POLL_MS = 200
Max = Annotated[int | None, typer.Option("--max", metavar="N", min=0, help="End after N records.")]
UntilIdle = Annotated[bool, typer.Option("--until-idle", help="End when the topic is read to its end.")]
FromEnd = Annotated[bool, typer.Option("--from-end", help="Only records that arrive from now on.")]
Lines = Annotated[bool, typer.Option("--lines", help="Only values, as plain lines: text, or JSON for other serdes.")]


def command(
    file: File,
    topic: Topic,
    most: Max = None,
    until_idle: UntilIdle = False,
    from_end: FromEnd = False,
    lines: Lines = False,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Print the records of a topic.

    JSON Lines from the topic's beginning on, until --max, --until-idle or a signal ends it.
    """
    from streamkit.runtime.records import RecordJson

    from .logs import existing_topic, opened
    from .stop_signals import stopping

    plan = load_plan(file, settings, env_file)
    source = find_topic(plan, topic)
    form = RecordJson(plan)
    left = sys.maxsize if most is None else most
    with stopping() as stopped, opened(plan) as transport:
        info = existing_topic(transport, plan, source)
        # Like a reader with read_committed: records of open or aborted transactions are not the topic's yet.
        consumer = transport.consumer(None, read_committed=True)
        try:
            _seek(consumer, info.name, info.partitions, from_end)
            while left and not stopped.is_set():
                batches = consumer.poll(min(POLL_RECORDS, left), POLL_MS)
                for row in _rows(batches):
                    if not left:
                        break
                    left -= 1
                    record = form.decode(row)
                    record["partition"] = row[5]
                    sys.stdout.write(line_of_value(record["value"], row[2]) if lines else json_line(record))
                sys.stdout.flush()
                if not batches and until_idle and _at_end(consumer, info.name, info.partitions):
                    break
        finally:
            consumer.close()


def _seek(consumer: Consumer, topic: str, partitions: int, from_end: bool) -> None:
    from streamkit.record import TopicPartition
    from streamkit.transport.base import EARLIEST

    every = [TopicPartition(topic, partition) for partition in range(partitions)]
    # The end as it is now: LATEST would be looked up later, and records written meanwhile be missed.
    consumer.assign(consumer.end_offsets(every) if from_end else dict.fromkeys(every, EARLIEST))


def _at_end(consumer: Consumer, topic: str, partitions: int) -> bool:
    from streamkit.record import TopicPartition

    every = [TopicPartition(topic, partition) for partition in range(partitions)]
    return all(consumer.position(partition) >= end for partition, end in consumer.end_offsets(every).items())


def _rows(batches: list[RecordBatch]) -> Iterator[tuple]:
    for batch in batches:
        columns = (batch.keys, batch.values, batch.timestamps, batch.headers)
        for key, value, timestamp, headers in zip(*columns, strict=True):
            yield batch.topic, key, value, timestamp, headers, batch.partition
