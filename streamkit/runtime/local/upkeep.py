"""What an instance does now and then: it deletes the state of tasks that have moved away (state.cleanup.delay.ms)."""

from __future__ import annotations

import logging

from streamkit.errors import StateError
from streamkit.runtime.collecting import CycleCollector
from streamkit.runtime.local.setup import Shared
from streamkit.runtime.local.topics import TopicWatch

log = logging.getLogger(__name__)

_OWNER = "state cleaner"


class StateCleaner:
    """Looks for directories that no thread holds and that have not changed for the delay, each time that the delay is over."""

    def __init__(self, shared: Shared):
        self._shared = shared
        self._delay = int(shared.plan.config["state.cleanup.delay.ms"])
        self._due = shared.elapsed() + self._delay

    def look(self) -> None:
        """Delete what is to be deleted, if it is time (StateDirectory.cleanRemovedTasks); failures are logged."""
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
        names = {name: (int(group), int(number)) for name in directory.tasks() for group, number in [name.split("_")]}
        free = {name for name, task in names.items() if claims.take(task, _OWNER)}
        try:
            older_than = (self._shared.clock() - self._delay) / 1000
            for task in directory.clean(names.keys() - free, older_than):
                log.info("the state of task %s, which moved away, is deleted after %d ms", task, self._delay)
        finally:
            for name in free:
                claims.give_up(names[name], _OWNER)


class Upkeep:
    """What an instance looks at now and then, beside its threads."""

    def __init__(self, topics: TopicWatch, cleaner: StateCleaner, cycles: CycleCollector):
        self._topics = topics
        self._cleaner = cleaner
        self._cycles = cycles

    def look(self, running: bool) -> None:
        """Look at the topics, and while the instance is running at its state. Raises StreamkitError for changed topics."""
        if running:
            self._cleaner.look()
        self._cycles.collect_if_due()
        self._topics.check()
