"""Finds transactions that brokers have lost: no coordinator ends them, so reads of committed records wait behind them forever."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import closing

from streamkit.config import Config
from streamkit.errors import TransportError
from streamkit.record import TopicPartition
from streamkit.transport.log_interface import OpenTransaction, Transport

log = logging.getLogger(__name__)

_TIMEOUTS = 3
"""The time between two looks, in time-outs of the application's transactions: whatever is alive has ended by then."""
_LONGEST_MS = 15 * 60_000
"""The default limit of brokers for the time-out of a transaction: one with an unknown id may be open for so long."""


class TransactionWatch:
    """Logs each lost transaction once, with the command that ends it. Looks from time to time, in a thread of its own."""

    def __init__(
        self,
        transport: Transport,
        config: Config,
        group: str,
        partitions: Callable[[], Iterable[TopicPartition]],
        elapsed: Callable[[], int],
    ):
        """`config`: of an application with exactly-once; `partitions`: returns what the tasks of this instance read; `elapsed`: a clock in milliseconds."""
        self._transport = transport
        self._address = ",".join(config["bootstrap.servers"])
        self._group = group
        self._partitions = partitions
        self._elapsed = elapsed
        self._every = _TIMEOUTS * int(config.client("producer")["transaction.timeout.ms"])
        self._due = elapsed() + self._every
        self._since: dict[OpenTransaction, int] = {}
        self._told: set[OpenTransaction] = set()
        self._thread: threading.Thread | None = None

    def look_if_due(self) -> None:
        """Begin to look if it is due, and the last look has ended."""
        if self._elapsed() < self._due or (self._thread is not None and self._thread.is_alive()):
            return
        self._due = self._elapsed() + self._every
        self._thread = threading.Thread(target=self.look, name="transaction-watch", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Log the transactions that are lost, once the same ones are found twice: between its requests one may end."""
        partitions = sorted(set(self._partitions()))
        try:
            with closing(self._transport.admin()) as admin:
                found = admin.open_transactions(partitions, self._group)
        except TransportError as error:
            log.debug("%s", error)
            return
        now = self._elapsed()
        self._since = {each: self._since.get(each, now) for each in found if each.hanging}
        for each, since in self._since.items():
            least = self._every if each.transactional_id else _LONGEST_MS
            if now - since >= least / 2 and each not in self._told:
                self._told.add(each)
                log.warning("%s", self._line(each))

    def _line(self, found: OpenTransaction) -> str:
        topic, number = found.partition
        owner = found.transactional_id or "an unknown transactional id"
        return (
            f"{topic}-{number}: brokers have lost the end of a transaction of {owner} (producer {found.producer_id}, epoch "
            f"{found.epoch}): its coordinator has ended it, but here it is open from offset {found.start} on, and nothing "
            f"behind it can be read until you end it. Whether it was committed is unknown: if it was, the command loses its "
            f"records in this partition: kafka-transactions.sh --bootstrap-server {self._address} abort "
            f"--topic {topic} --partition {number} --start-offset {found.start}"
        )
