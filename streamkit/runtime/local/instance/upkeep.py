"""Periodic work of an instance: it deletes the state of tasks that have moved away (state.cleanup.delay.ms)."""

from __future__ import annotations

import logging

from streamkit.errors import StateError
from streamkit.record import TaskId
from streamkit.runtime.execution.collecting import CycleCollector
from streamkit.runtime.local.instance.internal_topics import TopicWatch
from streamkit.runtime.local.instance.transaction_watch import TransactionWatch
from streamkit.runtime.local.setup import Shared

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
