"""Ends what brokers have lost of a thread's transactions, before its next one in the same partitions ends it in another way."""

from __future__ import annotations

import logging
from contextlib import closing

from streamkit.errors import RetriableTransportError, TransportError, UnreachableError
from streamkit.record import TopicPartition
from streamkit.runtime.local.setup import Shared
from streamkit.transport.log_interface import Admin, OpenTransaction

log = logging.getLogger(__name__)


class OwnTransactions:
    """The transactions of one transactional id, between the end of one and the first record of the next.

    Then none of them is alive: the id is that of one thread, and its coordinator has fenced every other producer of the id.
    """

    def __init__(self, shared: Shared, transactional_id: str):
        self._shared = shared
        self._id = transactional_id

    def settle(self) -> None:
        """End the lost transactions as their coordinator did.

        Raises RetriableTransportError where one is open and can't be ended, UnreachableError: then nothing may be written.
        """
        plan = self._shared.plan
        with closing(self._shared.transport.admin()) as admin:
            try:
                topics = admin.topics(plan.topic_names())
                places = [
                    TopicPartition(name, number) for name, info in topics.items() for number in range(info.partitions)
                ]
                found = admin.open_transactions(places, plan.application)
            except (RetriableTransportError, UnreachableError):
                raise
            except TransportError as error:
                # An application may have no right to read the topics that it writes.
                log.info("lost transactions can't be looked for: %s", error)
                return
            for each in found:
                if each.transactional_id == self._id:
                    self._end(admin, each)

    def _end(self, admin: Admin, found: OpenTransaction) -> None:
        place = f"{found.partition.topic}-{found.partition.partition}"
        if not found.hanging:
            raise RetriableTransportError(f"{place}: brokers are still ending the last transaction of {self._id}")
        try:
            outcome = admin.outcome_of(found)
            if outcome.committed is None:
                raise TransportError(f"its outcome is unknown: {outcome.reason}")
            admin.end_transaction(found, outcome.committed)
        except (RetriableTransportError, UnreachableError):
            raise
        except TransportError as error:
            # To go on would end it as the next transaction ends.
            raise RetriableTransportError(
                f"{place}: brokers have lost the end of the last transaction of {self._id}, and it can't be ended: {error}; "
                f"`streamkit transactions {self._shared.plan.file} --end` ends it, until then this thread waits"
            ) from error
        done = "committed" if outcome.committed else "aborted"
        log.warning("%s: brokers had lost the end of the last transaction of %s; it is %s now", place, self._id, done)
