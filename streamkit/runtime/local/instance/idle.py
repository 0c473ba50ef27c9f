"""Checks whether an application has read all its inputs, for `--until-idle`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from streamkit.errors import RetriableTransportError, UnreachableError
from streamkit.record import TopicPartition
from streamkit.runtime.local.setup import Shared
from streamkit.runtime.local.threads.stream_thread import StreamThread

log = logging.getLogger(__name__)


def all_read(shared: Shared, threads: Sequence[StreamThread]) -> bool:
    """Return whether threads that are idle, and other processes, have read all inputs, and stay idle meanwhile."""
    before = [thread.activity for thread in threads]
    try:
        behind = is_behind(shared, {tp: offset for thread in threads for tp, offset in thread.positions.items()})
    except (RetriableTransportError, UnreachableError) as error:
        log.info("%s; trying again", error)
        return False
    # A thread that worked meanwhile may have written records after the offsets that were read above.
    return not behind and all(thread.idle for thread in threads) and before == [each.activity for each in threads]


def is_behind(shared: Shared, positions: Mapping[TopicPartition, int]) -> bool:
    """Return whether any input has records beyond what this process read, or other processes committed.

    `positions`: the next offsets that this process reads. Raises TransportError.
    """
    topics, exactly_once = shared.topics, shared.settings.exactly_once
    inputs = list({tp for task in topics.tasks() for tp in topics.partitions_of(task)})
    if not inputs:
        return False
    consumer = shared.transport.consumer(
        shared.plan.application, read_committed=shared.settings.read_committed, client_id="idle"
    )
    try:
        ends = consumer.end_offsets(inputs)
        others = [tp for tp in inputs if tp not in positions]
        committed = consumer.committed(others) if others else {}
        empty = consumer.beginning_offsets([tp for tp in others if tp not in committed])
    finally:
        consumer.close()
    # The committed offset of other processes is before the marker of the last transaction.
    marker = 1 if exactly_once else 0
    done = {**empty, **{tp: offset.offset + marker for tp, offset in committed.items()}, **positions}
    return any(done[tp] < end for tp, end in ends.items())
