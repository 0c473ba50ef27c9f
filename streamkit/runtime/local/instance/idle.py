"""Checks whether an application has read all its inputs, for `--until-idle`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing

from streamkit.errors import RetriableTransportError, UnreachableError
from streamkit.record import TopicPartition
from streamkit.runtime.local.setup import Shared
from streamkit.runtime.local.threads.stream_thread import StreamThread
from streamkit.transport.log_interface import Consumer

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
    with closing(_consumer(shared, read_committed=shared.settings.read_committed)) as consumer:
        ends = consumer.end_offsets(inputs)
        # Brokers write the markers of a transaction after its commit has returned: until then its records are not read. Only
        # this application writes its own topics; a transaction of others in a topic of the file may stay open for ever.
        if exactly_once and _has_open_transactions(shared, ends):
            return True
        others = [tp for tp in inputs if tp not in positions]
        committed = consumer.committed(others) if others else {}
        empty = consumer.beginning_offsets([tp for tp in others if tp not in committed])
    # The committed offset of other processes is before the marker of the last transaction.
    marker = 1 if exactly_once else 0
    done = {**empty, **{tp: offset.offset + marker for tp, offset in committed.items()}, **positions}
    return any(done[tp] < end for tp, end in ends.items())


def _has_open_transactions(shared: Shared, ends: Mapping[TopicPartition, int]) -> bool:
    """Return whether internal topics have records behind the `ends` that read_committed shows."""
    names = set(map(shared.plan.internal_name, shared.plan.internal_topics))
    internal = [partition for partition in ends if partition.topic in names]
    if not internal:
        return False
    with closing(_consumer(shared, read_committed=False)) as consumer:
        written = consumer.end_offsets(internal)
    return any(written[partition] > ends[partition] for partition in internal)


def _consumer(shared: Shared, *, read_committed: bool) -> Consumer:
    return shared.transport.consumer(shared.plan.application, read_committed=read_committed, client_id="idle")
