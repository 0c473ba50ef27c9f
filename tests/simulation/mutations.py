"""Mistakes that a simulation must find: each is one change of the product's text, made while a module is loaded."""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    """A mistake: the module, its text, and what takes its place."""

    module: str
    text: str
    instead: str


_LOCAL = "streamkit.runtime.local."
_EMBEDDED = "streamkit.transport.embedded."
MUTATIONS: dict[str, Mutation | tuple[Mutation, ...]] = {
    "lost tasks come back after a failed commit": Mutation(
        _LOCAL + "stream_thread",
        "                        if self._lose:\n                            self._keep_standbys()\n",
        "",
    ),
    "what is lost meanwhile counts as closed": Mutation(
        _LOCAL + "stream_thread",
        "if self._assigned is None and not self._lose and self._tasks.settled:",
        "if self._assigned is None and self._tasks.settled:",
    ),
    "a fenced thread keeps its tasks": Mutation(
        _LOCAL + "stream_thread",
        "            self._keep_standbys()\n        self._close_active()",
        "            self._keep_standbys()",
    ),
    # Each of the two keeps the member from joining.
    "a member joins before lost tasks are closed": (
        Mutation(_LOCAL + "rebalance_listener", "if self._losing and not self._threads_settled():", "if False:"),
        Mutation(
            _LOCAL + "rebalance_listener",
            "self._coordinator.poll(join=self._threads_settled())",
            "self._coordinator.poll()",
        ),
    ),
    "lost tasks go on": Mutation(_LOCAL + "rebalance_listener", "            thread.lose()", "            pass"),
    "commits go on during a rebalance": Mutation(
        _LOCAL + "coordinator", "return self._blocked and not self._commits", "self._blocked = False; return True"
    ),
    "offsets without the member's generation": Mutation(
        _LOCAL + "committer",
        "return (coordinator and coordinator.group_metadata()) or self.consumer.group_metadata()",
        "return self.consumer.group_metadata()",
    ),
    "a transaction without an answer counts as committed": Mutation(
        _LOCAL + "committer",
        'raise TaskCorruptedError(f"a transaction may or may not be committed: {error}", on_disk=False) from error',
        "self._replace_producer()",
    ),
    "a failed transaction goes on": Mutation(
        _LOCAL + "committer",
        "            self._producer.abort()\n        except TransportError as error:\n            log.info(",
        "            pass\n        except TransportError as error:\n            log.info(",
    ),
    "output that is not sent before the commit": Mutation(
        _LOCAL + "committer",
        "            self.send(local_task)\n        if self._settings.exactly_once and not offsets",
        "            local_task.task.output.clear()\n        if self._settings.exactly_once and not offsets",
    ),
    "records are deleted before they are read": Mutation(
        _LOCAL + "committer", "partition: offset + 1\n", "partition: offset + 12\n"
    ),
    "tasks leave without a commit": Mutation(
        _LOCAL + "task_manager",
        "        self.commit()\n        if self._committer.postponed",
        "        if self._committer.postponed",
    ),
    "damaged tasks go on": Mutation(
        _LOCAL + "task_manager",
        "wiped = self._close(task, quietly=True, damage=damage) or wiped",
        "wiped = True",
    ),
    "two threads have one task": Mutation(
        _LOCAL + "setup", "return self._owners.setdefault(task, owner) == owner", "return True"
    ),
    "two threads have one transactional id": Mutation(
        _LOCAL + "stream_thread", '{application}-{self._process}-{number}"', '{application}-{self._process}"'
    ),
    "a store is restored to the last stable offset": Mutation(
        _LOCAL + "state_updater",
        "        if self._shared.settings.restore_read_committed:\n            end_consumer",
        "        if False:\n            end_consumer",
    ),
    "offsets of an open transaction are not waited for": Mutation(
        _LOCAL + "state_updater",
        'self._open("restore-consumer", read_committed=self._shared.settings.restore_read_committed)',
        'self._open("restore-consumer", read_committed=False)',
    ),
    "positions of stores are ahead": Mutation(
        _LOCAL + "restore", "self.position += written + self.marked", "self.position += written + 3"
    ),
    "a store is not restored": Mutation(
        _LOCAL + "restore", "self.end = end if self.limit is None", "self.end = self.position if self.limit is None"
    ),
    "partitions go to two owners": Mutation(
        "streamkit.transport.log_interface", "if owners.get(partition, {name}) == {name})", "if True)"
    ),
    # Each of the two keeps tasks from having two owners.
    "a join that is repeated claims what others have": (
        Mutation(
            "streamkit.transport.kafka.kafka_membership",
            "        if self._is_lost():\n            self._lost_partitions.happened = True\n        elif",
            "        if",
        ),
        Mutation(
            "streamkit.transport.log_interface",
            "            owners.setdefault(partition, set()).add(name)",
            "            owners[partition] = {name}",
        ),
    ),
    "a loss is not noticed": Mutation(
        "streamkit.transport.kafka.kafka_membership",
        "lost = self._number != NO_GENERATION and (self._lost_partitions.happened or self._is_lost())",
        "lost = False",
    ),
    "markers are not waited for": Mutation(
        _LOCAL + "committer", "self._workers.submit(self._own.await_markers, self._unmarked)", "None"
    ),
    "stores are committed before the log": (
        Mutation(
            _LOCAL + "committer",
            "        with self._gate.opened():\n            self._commit_to_log(offsets)\n",
            "        for each in dirty:\n"
            "            each.note_positions(marks=True)\n"
            "        self._commit_stores([store for each in dirty for store in each.task.stores.values()])\n"
            "        with self._gate.opened():\n            self._commit_to_log(offsets)\n",
        ),
        Mutation(
            _LOCAL + "committer",
            "        for local_task in dirty:\n            local_task.note_positions(marks=marks)\n"
            "        self._commit_stores([store for local_task in dirty for store in local_task.task.stores.values()])\n",
            "",
        ),
    ),
    "a task runs before its store is restored": Mutation(
        _LOCAL + "restore",
        "return self.end is not None and self.position is not None and self.position >= self.end",
        "return self.end is not None",
    ),
    "a fenced producer is kept": Mutation(
        _LOCAL + "committer",
        '            log.info("%s; the producer is replaced", error)\n            self._replace_producer()',
        '            log.info("%s", error)',
    ),
    "a checkpoint has the offset -1": Mutation(
        _LOCAL + "local_task", "return last if last >= 0 else OFFSET_UNKNOWN", "return last"
    ),
    "a transaction that hangs is not ended": Mutation(
        _LOCAL + "committer", "self._own.settle(self._unmarked or ())", "pass"
    ),
    "a transaction has no offsets": Mutation(
        _LOCAL + "committer",
        "self._producer.commit(offsets, self._group_metadata())",
        "self._producer.commit({}, self._group_metadata())",
    ),
    "lost tasks do not abort their transaction": Mutation(
        _LOCAL + "stream_thread",
        "        try:\n            self._committer.restart()\n        finally:",
        "        if True:",
    ),
    "tasks start again in a transaction that failed": Mutation(
        _LOCAL + "stream_thread",
        "            self._committer.restart()\n            tasks.handle_corruption(error)",
        "            tasks.handle_corruption(error)",
    ),
    "a closed task stays claimed": Mutation(
        _LOCAL + "task_manager",
        "        finally:\n            self._shared.claims.release(task.id, self._owner)",
        "        finally:",
    ),
    "commits wait for ever after a rebalance": Mutation(
        _LOCAL + "coordinator",
        "    def _unblock_commits(self) -> None:\n        with self._lock:\n            self._blocked = False",
        "    def _unblock_commits(self) -> None:\n        with self._lock:\n            pass",
    ),
    "tasks of a fenced thread are not asked for": Mutation(
        _LOCAL + "rebalance_listener", "            self._coordinator.rejoin()", "            pass"
    ),
    "positions are lost in one poll": Mutation(
        _EMBEDDED + "embedded_clients",
        "                if ready:\n                    # Their positions have advanced; the next poll begins with this partition "
        "and raises its error.\n                    break\n",
        "",
    ),
    "commits of the embedded log are not on disk": Mutation(
        _EMBEDDED + "database", "'FULL' if self._synced else 'NORMAL'", "'NORMAL'"
    ),
    "records of a poll are dropped": Mutation(
        _LOCAL + "stream_thread",
        "            for local_task, batch in arrived:\n                tasks.wake(local_task)",
        "            for local_task, batch in arrived[:1]:\n                tasks.wake(local_task)",
    ),
}


def changes(name: str) -> tuple[Mutation, ...]:
    """Return the changes of a mistake; none for an unknown name."""
    found = MUTATIONS.get(name, ())
    return (found,) if isinstance(found, Mutation) else found


def of_embedded_log(name: str) -> bool:
    """Return whether only histories on the embedded log find a mistake."""
    return any(change.module.startswith(_EMBEDDED) for change in changes(name))
