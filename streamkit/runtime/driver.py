"""Runs a topology in memory, record by record, on the production Task: `try` and tests (TopologyTestDriver)."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from streamkit import durations
from streamkit.compile import compile_sub_topology
from streamkit.errors import ConfigError, SerdeError, StreamkitError, TopicError
from streamkit.plan.model import Plan, SubTopology
from streamkit.record import RecordBatch, TopicPartition
from streamkit.runtime.environment import EmitIntervals, TaskEnvironment, TaskSpec
from streamkit.runtime.handlers import CONTINUE, Handlers
from streamkit.runtime.java_order import JavaPartitionGroup
from streamkit.runtime.queues import Idling
from streamkit.runtime.records import RecordJson, store_rows
from streamkit.runtime.reprocess import reprocess, reprocesses
from streamkit.runtime.stores import MemoryStores
from streamkit.runtime.task import Task
from streamkit.suggestions import did_you_mean
from streamkit.transport.base import CommittedOffset

CONTROL = "advance_wall_clock"


@dataclasses.dataclass
class Remains:
    """What a driver leaves on the log: all from which another one goes on, with stores restored from changelogs."""

    changelogs: dict[str, list[tuple]] = dataclasses.field(default_factory=dict)
    """Rows by changelog, and by source topic where that serves as one."""
    committed: dict[TopicPartition, CommittedOffset] = dataclasses.field(default_factory=dict)
    offsets: dict[TopicPartition, int] = dataclasses.field(default_factory=dict)
    clock: int = 0
    logs: bool = True
    """Whether changelogs are kept: all that is ever written to stores, for a driver that nothing follows too much."""

    def keep(self, row: tuple) -> None:
        """Append a row to its changelog."""
        if self.logs:
            self.changelogs.setdefault(row[0], []).append(row)

    def restore(self, plan: Plan, task: Task) -> None:
        """Bring the empty stores of a task up to date."""
        for name, store in task.stores.items():
            topic = plan.changelog_name(name) or ""
            rows = self.changelogs.get(topic, [])
            if not rows:
                continue
            _, keys, values, timestamps, headers, _ = map(list, zip(*rows, strict=True))
            if reprocesses(task.spec.sub_topology):
                task.start({})
                reprocess(task, RecordBatch(topic, 0, (keys, values, timestamps, headers, list(range(len(keys))))))
                task.flush_stores()
                task.reset()
            else:
                store.restore_batch(keys, values, timestamps, headers)
            store.commit()


class Driver:
    """One task for the whole topology, one partition a topic, a commit after each record, a clock that starts at 0.

    With `remains` it goes on where another driver of the same topology stopped; `reached` counts the records that reach
    each node, by its name. `records` gives the form of what goes in and comes out, in place of JSON.
    """

    def __init__(
        self,
        plan: Plan,
        remains: Remains | None = None,
        reached: Counter[str] | None = None,
        records: RecordJson | None = None,
    ):
        self.plan = plan
        self.remains = remains or Remains()
        self.clock = self.remains.clock
        if plan.registry is not None:
            plan.registry.rehearse()
        self._json = records or RecordJson(plan)
        self._printed: list[dict] = []
        self._internal = {plan.internal_name(topic) for topic in plan.internal_topics}
        self._changelogs = {
            plan.changelog_name(name) for name, store in plan.stores.items() if store.source_topic is None
        }
        self._sources_as_changelogs = {plan.changelog_name(name) for name in plan.stores} - self._changelogs
        self._offsets = self.remains.offsets
        self._pending: deque[tuple] = deque()
        stores = MemoryStores(plan)
        handlers = Handlers.of(plan.config)
        environment = TaskEnvironment(
            plan,
            clock=lambda: self.clock,
            open_store=stores.open,
            partitions=lambda topic: 1,
            handlers=handlers,
            idling=Idling(plan.config["max.task.idle.ms"]),
            emit_intervals=EmitIntervals.of(plan.config, default=0),
            group=JavaPartitionGroup,
            print_line=lambda text: print(text, file=sys.stderr),
            max_request_size=plan.config.max_request_size,
        )
        # Java's driver lets global records that do not decode pass, whatever the handler says.
        lenient = dataclasses.replace(
            environment, handlers=dataclasses.replace(handlers.of_globals(), deserialization=CONTINUE)
        )
        self._globals = [_make_task(sub, lenient, reached) for sub in plan.sub_topologies if sub.is_global]
        shared = {name: store for task in self._globals for name, store in task.stores.items()}
        for task in self._globals:
            self._start(task)
        self._global_topics = {partition.topic: task for task in self._globals for partition in task.spec.inputs}
        whole = merged(plan)
        environment = dataclasses.replace(environment, global_stores=shared)
        self._task = _make_task(whole, environment, reached) if whole else None
        self._task_topics = {partition.topic for partition in self._task.inputs} if self._task else set()
        self._counters: dict[str, TopicPartition] = {}
        """What counts the offsets of a topic that a pattern found."""
        self._patterns = [
            re.compile(node.pattern)
            for sub in plan.sub_topologies
            for node in sub.nodes.values()
            if getattr(node, "pattern", None)
        ]
        if self._task is not None:
            self._start(self._task)
            self._settle()

    def pipe(self, record: Mapping[str, Any]) -> list[dict]:
        """Process a record, or a control line, and return what came out, in order, in JSON form.

        Raises TopicError for a topic that the topology does not read, SerdeError for what its serde can't encode, and
        whatever processing raises; what came out before the failure can then be had from `printed`.
        """
        if CONTROL in record:
            return self.advance(_duration(record[CONTROL]))
        self._pipe(self._json.encode(record, self.clock, self._reads))
        return self.printed()

    def advance(self, by_ms: int) -> list[dict]:
        """Move the clock, fire wall-clock punctuators, and return what came out."""
        self.clock += by_ms
        self.remains.clock = self.clock
        if self._task is not None:
            self._task.punctuate_wall_clock()
            self._commit()
            self._complete()
        return self.printed()

    def printed(self) -> list[dict]:
        """Return what came out since the last call."""
        printed, self._printed = self._printed, []
        return printed

    @property
    def dropped(self) -> int:
        """How many records were dropped so far (dropped-records-total)."""
        return sum(task.dropped_total for task in [*self._globals, *([self._task] if self._task else [])])

    def stores(self) -> dict[str, list]:
        """Return the rows of every store, caches included, in JSON form."""
        return {name: store_rows(self.plan.stores[name], store) for name, store in self.opened().items()}

    def opened(self) -> dict[str, Any]:
        """Return the stores by name, in the order of the plan."""
        tasks = [*self._globals, *([self._task] if self._task else [])]
        opened = {name: store for task in tasks for name, store in task.stores.items()}
        return {name: opened[name] for name in self.plan.stores if name in opened}

    def close(self) -> None:
        """Close processors and stores."""
        for task in [*([self._task] if self._task else []), *self._globals]:
            task.close()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- Inside ----------------------------------------------------------------------------------------------------

    def _start(self, task: Task) -> None:
        self.remains.restore(self.plan, task)
        task.start(self.remains.committed)

    def _reads(self, topic: str) -> None:
        """Raise TopicError unless the topology reads a topic."""
        if topic in self._global_topics or self._task_reads(topic):
            return
        known = sorted({*self._global_topics, *self._task_topics})
        hint = did_you_mean(topic, known, f"it reads {', '.join(known)}")
        raise TopicError(f"the topology does not read topic {topic!r}{hint}")

    def _task_reads(self, topic: str) -> bool:
        if self._task is None:
            return False
        if topic in self._task_topics:
            return True
        found = next((each for each in self._patterns if each.fullmatch(topic)), None)
        if topic in self._internal or found is None:
            return False
        self._counters[topic] = TopicPartition(found.pattern, 0)
        self._task.add_input(TopicPartition(topic, 0))
        self._task_topics.add(topic)
        return True

    def _pipe(self, row: tuple) -> None:
        topic = row[0]
        if self._task_reads(topic):
            self._enqueue(row)
            self._complete()
        if topic in self._global_topics:
            self._update_global(row)

    def _batch(self, row: tuple) -> RecordBatch:
        topic, key, value, timestamp, headers, _ = row
        partition = TopicPartition(topic, 0)
        # Java's driver counts the records of all topics of a pattern together.
        counter = self._counters.get(topic, partition)
        offset = self._offsets.get(counter, 0)
        self._offsets[counter] = self._offsets[partition] = offset + 1
        time = self.clock if timestamp is None or (timestamp < 0 and topic in self._internal) else timestamp
        if topic in self._sources_as_changelogs:
            self.remains.keep((topic, key, value, time, headers, 0))
        return RecordBatch(topic, 0, ([key], [value], [time], [headers], [offset]))

    def _enqueue(self, row: tuple) -> None:
        assert self._task is not None
        self._task.add(self._batch(row))

    def _update_global(self, row: tuple) -> None:
        task = self._global_topics[row[0]]
        task.update(self._batch(row))
        task.flush_stores()
        del task.output[:]

    def _complete(self) -> None:
        task = self._task
        assert task is not None
        self._settle()
        task.set_lags(dict.fromkeys(task.inputs, 0))
        while True:
            expiring = task.expiring
            if not task.process(1) and not expiring:
                break
            task.punctuate_stream_time()
            self._commit()
            self._settle()

    def _commit(self) -> None:
        assert self._task is not None
        offsets = self._task.prepare_commit(lambda partition: self._offsets.get(partition, 0))
        self.remains.committed.update(offsets)
        # The driver enforces a checkpoint, which flushes once more: what the first flush put into caches comes out too.
        self._task.flush_stores()
        self._task.post_commit()

    def _settle(self) -> None:
        """Print external output, and read back what the topology reads itself."""
        task = self._task
        assert task is not None
        rows = list(task.output)
        del task.output[:]
        for row in rows:
            topic = row[0]
            if topic in self._changelogs:
                self.remains.keep(row)
                continue
            if topic not in self._internal:
                self._printed.append(self._json.decode(row))
            if self._task_reads(topic):
                self._enqueue(row)
            if topic in self._global_topics:
                self._update_global(row)


def merged(plan: Plan) -> SubTopology | None:
    """Return all sub-topologies that make tasks as one, as Java's driver runs them; None when there are none."""
    subs = [sub for sub in plan.sub_topologies if not sub.is_global]
    if not subs:
        return None
    used = {name for sub in subs for name in sub.stores}
    nodes = {name: node for sub in subs for name, node in sub.nodes.items()}
    return SubTopology(
        id=0,
        nodes={name: nodes[name] for name in plan.node_order or nodes if name in nodes},
        is_global=False,
        stores=tuple(name for name in plan.stores if name in used),
        source_topics=tuple(topic for sub in subs for topic in sub.source_topics),
        sink_topics=tuple(topic for sub in subs for topic in sub.sink_topics),
    )


def _make_task(sub: SubTopology, environment: TaskEnvironment, reached: Counter[str] | None) -> Task:
    plan = environment.plan
    inputs = tuple(TopicPartition(plan.internal_name(topic), 0) for topic in sub.source_topics)
    return Task(TaskSpec(f"{sub.id}_0", 0, sub, compile_sub_topology(plan, sub, reached), inputs), environment)


def _duration(value: Any) -> int:
    try:
        return durations.parse(value)
    except ConfigError as error:
        raise SerdeError(f"{CONTROL} {error}") from error


def run_lines(driver: Driver, lines: Iterable[str], name: str = "input") -> Iterator[dict]:
    """Feed JSON Lines and yield what comes out; at a failing line, what came before, then raise with the line's number."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise SerdeError(f"not JSON: {error}") from error
            if not isinstance(record, dict):
                raise SerdeError("expected an object with a topic")
            printed = driver.pipe(record)
        except StreamkitError as error:
            yield from driver.printed()
            raise type(error)(f"{name}:{number}: {error}") from error
        yield from printed


def run_case(topology: str | Path, lines: Iterable[str], stores: bool = True) -> tuple[list[dict], dict[str, list]]:
    """Run a topology file over JSON Lines; return (records that came out, rows by store). Raises as Driver.pipe."""
    from streamkit.plan import load

    with Driver(load(topology)) as driver:
        records = list(run_lines(driver, lines))
        return records, driver.stores() if stores else {}
