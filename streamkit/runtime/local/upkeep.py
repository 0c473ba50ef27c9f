"""Periodic work of an instance: it deletes the state of tasks that have moved away (state.cleanup.delay.ms)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import closing

from streamkit.errors import StateError, TransportError
from streamkit.plan.model import Plan
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.execution.collecting import CycleCollector
from streamkit.runtime.local.internal_topics import TopicWatch
from streamkit.runtime.local.setup import Shared
from streamkit.transport.log_interface import Admin, OpenTransaction, Outcome, Transport

log = logging.getLogger(__name__)

_OWNER = "state cleaner"


class StateCleaner:
    """Deletes the directories that no thread owns and that have not changed for the delay, each time the delay is over."""

    def __init__(self, shared: Shared):
        self._shared = shared
        self._delay = int(shared.plan.config["state.cleanup.delay.ms"])
        self._due = shared.elapsed() + self._delay

    def clean_if_due(self) -> None:
        """Delete directories if it is due (StateDirectory.cleanRemovedTasks); errors are logged."""
        now = self._shared.elapsed()
        if now < self._due:
            return
        self._due = now + max(1, self._delay)
        try:
            self._clean()
        except StateError as error:
            log.warning("state of tasks that moved away can't be deleted: %s", error)

    def _clean(self) -> None:
        directory, claims = self._shared.directory, self._shared.claims
        names = {name: TaskId.parse(name) for name in directory.tasks()}
        free = {name for name, task in names.items() if claims.claim(task, _OWNER)}
        try:
            older_than = (self._shared.clock() - self._delay) / 1000
            for task in directory.clean(names.keys() - free, older_than):
                log.info("the state of task %s, which moved away, is deleted after %d ms", task, self._delay)
        finally:
            for name in free:
                claims.release(names[name], _OWNER)


class Upkeep:
    """The periodic work of an instance, outside of its threads."""

    def __init__(
        self, topics: TopicWatch, transactions: TransactionWatch | None, cleaner: StateCleaner, cycles: CycleCollector
    ):
        self._topics = topics
        self._transactions = transactions
        self._cleaner = cleaner
        self._cycles = cycles

    def run_if_due(self, running: bool) -> None:
        """Check topics and transactions, collect cycles, and clean state while the instance is running. Raises StreamkitError for changed topics."""
        if running:
            self._cleaner.clean_if_due()
        self._cycles.collect_if_due()
        if self._transactions is not None:
            self._transactions.look_if_due()
        self._topics.check()


# Finds transactions that brokers have lost: no coordinator ends them, so reads of committed records wait behind them forever.

_TIMEOUTS = 3
"""The time between two looks, in time-outs of the application's transactions: whatever is alive has ended by then."""
_LONGEST_MS = 15 * 60_000
"""The default limit of brokers for the time-out of a transaction: one with an unknown id may be open for so long."""


class TransactionWatch:
    """Logs each lost transaction once, with the command that ends it. Looks from time to time, in a thread of its own."""

    def __init__(
        self,
        transport: Transport,
        plan: Plan,
        partitions: Callable[[], Iterable[TopicPartition]],
        elapsed: Callable[[], int],
    ):
        """`plan`: of an application with exactly-once; `partitions`: returns what the tasks of this instance read; `elapsed`: a clock in milliseconds."""
        self._transport = transport
        self._group = plan.application
        self._file = plan.file
        self._partitions = partitions
        self._elapsed = elapsed
        self._every = _TIMEOUTS * int(plan.config.client("producer")["transaction.timeout.ms"])
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
                self._tell(admin, admin.open_transactions(partitions, self._group))
        except TransportError as error:
            log.debug("%s", error)

    def _tell(self, admin: Admin, found: Iterable[OpenTransaction]) -> None:
        now = self._elapsed()
        self._since = {each: self._since.get(each, now) for each in found if each.hanging}
        for each, since in self._since.items():
            least = self._every if each.transactional_id else _LONGEST_MS
            if now - since >= least / 2 and each not in self._told:
                log.warning("%s", self._line(each, _outcome(admin, each)))
                self._told.add(each)

    def _line(self, found: OpenTransaction, outcome: Outcome) -> str:
        topic, number = found.partition
        owner = found.transactional_id or "an unknown transactional id"
        command = f"streamkit transactions {self._file} --end"
        if outcome.committed is None:
            end = (
                f"whether it was committed is unknown: {outcome.reason}. End it as you decide, with {command} --assume commit, or "
                "abort: if it was committed, an abort loses its records in this partition"
            )
        else:
            end = f"it was {'committed' if outcome.committed else 'aborted'}: {command} ends it so, and loses nothing"
        return (
            f"{topic}-{number}: brokers have lost the end of a transaction of {owner} (producer {found.producer_id}, epoch "
            f"{found.epoch}): its coordinator has ended it, but here it is open from offset {found.start} on, and nothing "
            f"behind it can be read until you end it; {end}"
        )


def _outcome(admin: Admin, found: OpenTransaction) -> Outcome:
    try:
        return admin.outcome_of(found)
    except TransportError as error:
        # An application may have no right to read that log; who ends transactions has it.
        return Outcome(None, str(error))
