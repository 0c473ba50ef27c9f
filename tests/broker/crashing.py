"""Run an application once for each named point of a commit and kill it there; a run without a point ends in order.

    python -m tests.broker.crashing TOPOLOGY RUNS.jsonl POINT...

A line of RUNS.jsonl is one run: its point; by changelog partition, records `restored`, offsets `left` to restore of those
that it began to read, and records `in_flight`, which were sent to changelogs and not committed yet, or not in the stores
yet. A child process is forked for each run. The point "as a
standby" is a run of its own, with an empty directory, which follows the changelogs and dies when it has some of them.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.record import TaskId
from streamkit.runtime.execution import task
from streamkit.runtime.execution.task import Expiry, Task
from streamkit.runtime.local.client import Application
from streamkit.runtime.local.committer import Committer
from streamkit.runtime.local.local_task import LocalTask
from streamkit.runtime.local.restore import Changelog, RestoreProgress
from streamkit.runtime.local.task_manager import TaskManager
from streamkit.runtime.operations.opening import open_log
from streamkit.state.engines.leveldb import LevelMap
from streamkit.state.engines.overlay import OverlayMap
from streamkit.state.engines.rocksdb import RocksMap
from streamkit.transport.kafka.kafka_producer import KafkaProducer

NTH = 3
"""The commit of a run from which it dies: after others, whose offsets must be right by then. One that the log postpones is tried again."""
PR_SET_PDEATHSIG = 1
BATCHES = 5
"""What a standby has applied when it dies."""
END, STANDBY = "end", "as a standby"
RESTORING = "while it restores"
BETWEEN, WITHIN = "between two parts of a sweep", "after a part of a sweep"
"""Rows with a time to live are deleted in parts, and some of these are committed by then."""
PART = 20
"""Rows of a part."""
AT_ONCE, SWEEPING = 20, 200
"""Records of a task that a run that dies, and one that dies in a sweep, processes between two commits at most.

A slow machine or a rebalance delays commits; the runs must neither come to the end of the input before their points nor leave
the last run without records for each store.
"""
SENT = "offsets could not be added to the transaction"


class Run:
    """One run: what it restores, what is in flight, and its death."""

    def __init__(self, point: str, out: Path):
        self.point = point
        self.follows = out.exists()
        self.commits = 0
        self.limit = {END: sys.maxsize, BETWEEN: SWEEPING, WITHIN: SWEEPING}.get(point, AT_ONCE)
        """Records of a task from one commit to the next."""
        self.processed: Counter[str] = Counter()
        """Records since the last commit, by task."""
        self.swept_at: int | None = None
        """How many commits there were before the first sweep was interrupted."""
        self.restored: Counter[str] = Counter()
        self.left: dict[str, int] = {}
        self.flight: Counter[str] = Counter()
        self._out = out

    def note(self) -> None:
        line = {"point": self.point, "restored": self.restored, "left": self.left, "in_flight": self.flight}
        with self._out.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def die(self) -> None:
        self.note()
        os.kill(os.getpid(), signal.SIGKILL)

    def die_if(self, point: str) -> None:
        if self.point == point and self.commits >= NTH:
            self.die()

    def die_in_sweep(self, point: str) -> None:
        if self.swept_at is None:
            self.swept_at = self.commits
        elif self.point == point and self.commits > self.swept_at:
            self.die()

    def follow(self, event: str, progress: RestoreProgress) -> None:
        name = f"{progress.changelog.topic}-{progress.changelog.partition}"
        if event == "batch":
            self.restored[name] = progress.restored
        self.left[name] = progress.remaining
        if self.point == STANDBY and len(self.restored) == BATCHES:
            self.die()


def patch(owner: type, name: str, make: Callable[[Callable], Callable]) -> None:
    setattr(owner, name, make(getattr(owner, name)))


def prepare(run: Run) -> None:
    """Put the points into the classes of this process."""
    written = Counter[str]()

    def commit(inner: Callable) -> Callable:
        def patched(self: Committer, dirty: Any) -> None:
            run.commits += 1
            written.clear()
            for each in dirty:
                for changelog in each.changelogs:
                    # What goes out between two commits; the stores' caches are off, so that nothing comes later.
                    name = f"{changelog.partition.topic}-{changelog.partition.partition}"
                    rows = sum(row[0] == changelog.partition.topic for row in (*each.task.output, *each.held))
                    run.flight[name] = each.produced[changelog.partition.topic] - changelog.produced + rows
            run.die_if("before the flush")
            inner(self, dirty)
            run.flight.clear()

        return patched

    def flush(inner: Callable) -> Callable:
        def patched(self: KafkaProducer) -> None:
            inner(self)
            run.die_if("after produce")

        return patched

    def call(inner: Callable) -> Callable:
        def patched(self: KafkaProducer, function: Callable, what: str, *arguments: Any) -> None:
            inner(self, function, what, *arguments)
            if what == SENT:
                run.die_if("after the offsets")

        return patched

    def note(inner: Callable) -> Callable:
        def patched(self: LocalTask, *arguments: Any, **options: Any) -> None:
            run.die_if("before the batch")
            inner(self, *arguments, **options)

        return patched

    def write(inner: Callable) -> Callable:
        def patched(self: OverlayMap, items: Iterable[tuple[bytes, bytes | None]]) -> None:
            written["stores"] += 1
            number = written["stores"]
            inner(self, broken(items) if run.point == f"within batch {number}" else items)
            run.die_if(f"after batch {number}")

        def broken(items: Iterable[tuple[bytes, bytes | None]]) -> Iterator[tuple[bytes, bytes | None]]:
            for item in items:
                yield item
                run.die_if(run.point)

        return patched

    def apply(inner: Callable) -> Callable:
        def patched(self: Changelog, batch: Any, stop: int | None) -> int:
            count: int = inner(self, batch, stop)
            if run.point == RESTORING and count:
                run.die()
            return count

        return patched

    def process(inner: Callable) -> Callable:
        def patched(self: Task, limit: int) -> int:
            if run.point == RESTORING:
                # A task that has nothing to restore would go on beside the others, and leave records in flight.
                threading.Event().wait()
            if not self.commit_needed:
                run.processed[self.task_id] = 0
            limit = min(limit, run.limit - run.processed[self.task_id])
            count: int = inner(self, limit) if limit > 0 else 0
            run.processed[self.task_id] += count
            return count

        return patched

    def expire(inner: Callable) -> Callable:
        def patched(self: Expiry, *arguments: Any) -> int:
            if self.unfinished:
                run.die_in_sweep(BETWEEN)
            count: int = inner(self, *arguments)
            if self.unfinished:
                run.die_in_sweep(WITHIN)
            return count

        return patched

    def change(inner: Callable) -> Callable:
        def patched(self: TaskManager, active: Sequence[TaskId], standby: Sequence[TaskId]) -> None:
            inner(self, *(((), [*active, *standby]) if run.point == STANDBY else (active, standby)))

        return patched

    patch(TaskManager, "change_to", change)
    patch(Committer, "_commit", commit)
    patch(KafkaProducer, "flush", flush)
    patch(KafkaProducer, "_call", call)
    patch(LocalTask, "note_positions", note)
    patch(LevelMap, "_write", write)
    patch(RocksMap, "_write", write)
    patch(Changelog, "apply", apply)
    patch(Task, "process", process)
    patch(Expiry, "run", expire)
    task._AT_ONCE = PART


def run_once(plan: Plan, run: Run) -> None:
    """Run the application until it is idle, or dies."""
    prepare(run)
    if run.point == STANDBY:
        shutil.rmtree(Path(plan.config.state_dir) / plan.application)
    transport = open_log(plan)
    if run.follows:
        # Otherwise the group would wait for the session of the one that was killed.
        admin = transport.admin()
        admin.remove_members(plan.application)
        admin.close()
    application = Application(plan, transport)
    application.set_restore_listener(run.follow)
    application.run(until_idle=True, stop=threading.Event())
    run.note()


def main(path: str, out: str, points: list[str]) -> int:
    plan = load(path, {})
    for point in [*points, END]:
        sys.stderr.flush()
        child = os.fork()
        if not child:
            # A test that fails ends the parent only.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            run_once(plan, Run(point, Path(out)))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        wanted = 0 if point == END else signal.SIGKILL
        if status != wanted:
            print(f"{point}: the run ended with {status}, not {wanted}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
