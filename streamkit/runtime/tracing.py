"""Traces: the visits of nodes by a record and by all that it causes, collected while traced programs run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from uuid import UUID

from streamkit.errors import StreamkitError
from streamkit.metrics import DropReason
from streamkit.operators.codegen.code_writer import ProcessorNode
from streamkit.operators.core.task_services import FailedRecord
from streamkit.operators.steps.processors.process import Process
from streamkit.plan.model import Plan, PlanNode, SinkNode, SubTopology
from streamkit.record import Key, OutputTuple, Value, WindowedKey
from streamkit.runtime.execution.dead_letters import human_reason
from streamkit.runtime.execution.punctuation import Punctuator
from streamkit.runtime.execution.task import Task
from streamkit.runtime.execution.task_environment import TaskEnvironment, TaskSpec
from streamkit.serdes.plain import Json, plain, shown
from streamkit.state.definitions import Query, Store

_LONGEST = 10_000
"""Characters of a value that has no JSON form."""
_MOST_READ = 5
"""Rows that are shown of those that a visit left as they were."""


@dataclass
class _Running:
    """A visit that is running: its key, the rows of its stores before it, and the forwardings in it."""

    visit: Visit
    key: Key
    before: dict[str, Rows | None]
    forwardings: int = 0


class Tracer:
    """The visits of all programs of a driver since the last `take`."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self._visits: list[Visit] = []
        self._running: list[_Running] = []

    def take(self) -> list[Visit]:
        """Return the visits that no other visit caused, in order, and forget them."""
        visits, self._visits = self._visits, []
        return visits

    @property
    def running(self) -> _Running | None:
        """The visit that began last and has not ended."""
        return self._running[-1] if self._running else None

    def begin(self, visit: Visit, key: Key, before: dict[str, Rows | None]) -> None:
        """Begin a visit, below the one that is running."""
        above = self.running
        (above.visit.visits if above is not None else self._visits).append(visit)
        self._running.append(_Running(visit, key, before))

    def end(self) -> _Running:
        """End the visit that began last, and return it."""
        return self._running.pop()


class ProgramTrace:
    """Reports the visits of one program's nodes to a tracer; implements compile.traced.Trace."""

    def __init__(self, tracer: Tracer, sub_topology: SubTopology):
        self.task: Task | None = None
        """The task of the program, once it is made."""
        self._nodes: tuple[PlanNode, ...] = tuple(sub_topology.nodes.values())
        self._tracer = tracer
        self._cause = BATCH
        self._begun: list[bool] = []
        """Of each forwarding that is running: whether it began a visit, because it is in none of its node."""

    # -- Called by generated code --

    def enter(self, node: int, key: Key, value: Value, old: Value, time: int) -> None:
        """Begin the visit of a node by a record."""
        passed = Passed(json_form(key), json_form(value), json_form(old), time)
        above = self._tracer.running
        if above is not None and not above.forwardings:
            above.visit.out.append(passed)  # a processor forwards to one child by its name
        visit = Visit(self._nodes[node], passed)
        self._tracer.begin(visit, key, self._rows(visit.node, key))

    def leave(self) -> None:
        """End the visit that began last, and compare the rows of its stores."""
        ended = self._tracer.end()
        visit = ended.visit
        for store, rows in self._rows(visit.node, ended.key).items():
            earlier = ended.before.get(store)
            if rows is None or earlier is None:
                visit.unread.append(store)
            else:
                visit.rows += _changes(store, earlier, rows)
        changed = {row.store for row in visit.rows if not row.same}
        caching = self._tracer.plan.config.statestore_cache_max_bytes > 0
        visit.cached = caching and any(self._tracer.plan.stores[store].caching for store in changed)

    def forward(self, node: int, key: Key, value: Value, old: Value, time: int) -> None:
        """Begin the forwarding of a record; outside of a visit of the node it counts as a visit."""
        running = self._tracer.running
        begins = running is None or running.visit.node is not self._nodes[node]
        self._begun.append(begins)
        if begins:
            self._tracer.begin(Visit(self._nodes[node], None, cause=self._cause), key, {})
            running = self._tracer.running
        assert running is not None
        running.visit.out.append(Passed(json_form(key), json_form(value), json_form(old), time))
        running.forwardings += 1

    def forwarded(self) -> None:
        """End the forwarding that began last."""
        running = self._tracer.running
        assert running is not None
        running.forwardings -= 1
        if self._begun.pop():
            self._tracer.end()

    # -- Called by the task --

    @contextmanager
    def caused_by(self, cause: str) -> Iterator[None]:
        """Name the cause of records that are forwarded outside of visits."""
        saved, self._cause = self._cause, cause
        try:
            yield
        finally:
            self._cause = saved

    def dropped(self, reason: str) -> None:
        """Note a dropped record in the visit that is running."""
        running = self._tracer.running
        if running is not None:
            running.visit.dropped = str(reason)

    def failed(self, node: int | None, reason: str, record: FailedRecord, written: Sequence[OutputTuple]) -> None:
        """Note a failure in the visit of its node, or as a visit if none is running."""
        failing = self._nodes[node] if node is not None else None
        running = self._tracer.running
        if running is None or running.visit.node is not failing:
            key, value = (
                (plain(record.raw_key), plain(record.raw_value))
                if record.key is None and record.value is None
                else (json_form(record.key), json_form(record.value))
            )
            visit = Visit(failing, Passed(key, value, None, record.timestamp))
            self._tracer.begin(visit, None, {})
            self._tracer.end()
        else:
            visit = running.visit
        visit.failure = reason
        visit.dead_letter = next((row[0] for row in written), visit.dead_letter)

    # -- Inside --

    def _rows(self, node: PlanNode | None, key: Key) -> dict[str, Rows | None]:
        if node is None or self.task is None:
            return {}
        any_key = isinstance(node.processor, Process)
        return {name: rows_of_key(self.task.store(name), key, any_key=any_key) for name in node.stores}


def _changes(store: str, before: Rows, after: Rows) -> list[RowChange]:
    """Return the rows that changed; if none did, some that were read."""
    rows = [
        RowChange(
            store,
            (before.get(text) or after[text])[0],
            before.get(text, (None, None))[1],
            after.get(text, (None, None))[1],
        )
        for text in {**before, **after}
    ]
    return [row for row in rows if not row.same] or rows[:_MOST_READ]


def json_form(value: Value) -> Json:
    """Return a copy of a value of any step as JSON: bytes as base64, windowed keys as objects, others as text.

    >>> json_form({"a": (1, b"x")})
    {'a': [1, {'base64': 'eA=='}]}
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, bytes):
        return plain(value)
    if isinstance(value, WindowedKey):
        return {"key": json_form(value.key), "start": value.start, "end": value.end}
    if isinstance(value, dict):
        return {str(name): json_form(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_form(part) for part in value]
    return str(value) if isinstance(value, UUID) else shown(value, _LONGEST)


# The rows of a store that a record of a key may change, read without an effect on the store.

MOST = 1000
"""Rows of a store that are compared if its rows can't be read by key."""
_BY_KEY = ("versions", "windows", "sessions", "get")

Rows = dict[str, tuple[Json, Json]]
"""Keys and values in JSON form, by the text of the key."""


def rows_of_key(store: Store, key: Key, *, any_key: bool) -> Rows | None:
    """Return the rows of a key, or all rows if `any_key` or if the store has no query by key; None for too many."""
    kind = next((query_kind for query_kind in _BY_KEY if query_kind in store.definition.kind.queries), None)
    if any_key or kind is None or key is None:
        rows = list(islice(store.rows(), MOST + 1))
        return _json(store, rows) if len(rows) <= MOST else None
    try:
        raw = store.definition.key_serde.encode(key)
    except (StreamkitError, TypeError, ValueError, AttributeError):
        return {}  # the node uses other keys than the record's, as a join by another key does
    page = store.page(Query(kind, key=raw, limit=MOST), 0)
    return _json(
        store, [(row.key, row.value) for row in page], [row.timestamp for row in page] if kind == "versions" else None
    )


def _json(store: Store, rows: list[tuple[Key, Value]], times: list[int | None] | None = None) -> Rows:
    write = store.row_writer(store.definition)
    forms: Rows = {}
    for number, (key, value) in enumerate(rows):
        key_json, value_json = write(key, value)
        if times is not None:
            key_json = {"key": key_json, "timestamp": times[number]}
        forms[json.dumps(key_json, sort_keys=True)] = key_json, value_json
    return forms


# A task whose program is traced, and whose failures, drops and timers are noted in the trace.


class TracedTask(Task):
    """A task that notes in a trace what its program does not report itself."""

    def __init__(self, spec: TaskSpec, environment: TaskEnvironment, trace: ProgramTrace):
        trace.task = self
        self._trace = trace
        super().__init__(spec, environment)

    def on_error(self, node: int, error: Exception, record: FailedRecord) -> None:
        with self._noted(node, error, record):
            super().on_error(node, error, record)

    def on_refusal(self, node: int, error: Exception, record: FailedRecord, encoding: bool) -> None:
        with self._noted(node, error, record):
            super().on_refusal(node, error, record, encoding)

    def on_deserialization_error(self, node: int | None, error: Exception, record: FailedRecord) -> None:
        with self._noted(node, error, record):
            super().on_deserialization_error(node, error, record)

    def dropped(self, reason: str, place: str | None = None) -> None:
        super().dropped(reason, place)
        self._trace.dropped(reason)

    def flush_stores(self) -> None:
        """Flush the caches of the stores."""
        with self._trace.caused_by(COMMIT):
            super().flush_stores()

    def fire(self, punctuator: Punctuator, time: int) -> None:
        """Call a punctuator."""
        with self._trace.caused_by(TIMER):
            super().fire(punctuator, time)

    def expire(self) -> None:
        with self._trace.caused_by(EXPIRY):
            super().expire()

    @contextmanager
    def _noted(self, node: int | None, error: Exception, record: FailedRecord) -> Iterator[None]:
        # The handler takes the error's traceback, which has the places in the user's modules.
        reason, written = human_reason(error), len(self.output)
        try:
            yield
        finally:
            self._trace.failed(node, reason, record, self.output[written:])


# The visits of nodes by a record and by all that it causes, as a tree.

BATCH, COMMIT, TIMER, EXPIRY = "batch", "commit", "timer", "expiry"
"""The causes of a forwarding outside of a visit: a step that works on batches, an entry that leaves a cache, a timer, a row
whose `ttl` ended."""


@dataclass(frozen=True)
class Passed:
    """A record between two nodes, in JSON form; `old`: the old value of a table's row; `timestamp` in ms."""

    key: Json
    value: Json
    old: Json
    timestamp: int


@dataclass(frozen=True)
class RowChange:
    """A row of a store before and after a visit; None: absent. `same`: it was only read."""

    store: str
    key: Json
    before: Json
    after: Json

    @property
    def same(self) -> bool:
        """Whether the visit left the row unchanged."""
        return bool(self.before == self.after)


@dataclass
class Visit:
    """What a node makes of a record. node None: a record that does not decode; record None: no record reached it."""

    node: PlanNode | None
    record: Passed | None
    cause: str | None = None
    """BATCH, COMMIT, TIMER or EXPIRY if the node forwards on its own."""
    out: list[Passed] = field(default_factory=list)
    rows: list[RowChange] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """Stores with too many rows to compare."""
    dropped: str | None = None
    """The reason for which the node itself counted a record as dropped (metrics.DropReason)."""
    failure: str | None = None
    dead_letter: str | None = None
    """The topic that the failed record was written to."""
    cached: bool = False
    """Whether a row changed whose store has a cache, which forwards it at the commit."""
    visits: list[Visit] = field(default_factory=list)

    @property
    def result(self) -> str:
        """`failed`, `dropped`, `written`, `forwarded`, `held` (for the end of the batch), `stored` (only rows changed), or
        `ended` if no node follows.
        """
        if self.failure is not None:
            return "failed"
        if isinstance(self.node, SinkNode):
            return "dropped" if self.dropped else "written"
        if self.out:
            return "forwarded"
        if self.dropped:
            return "dropped"
        if not isinstance(self.node, ProcessorNode) or not self.node.children:
            return "ended"
        if getattr(self.node.processor, "holds_records", False):
            return "held"
        return "stored" if any(not row.same for row in self.rows) else "dropped"

    @property
    def reason(self) -> str | None:
        """Why the record goes no further; None if it does."""
        if self.failure is not None:
            return self.failure
        if self.result == "held":
            return "the step works on batches, and forwards its results at the end of one"
        if self.result not in ("dropped", "stored") or not isinstance(self.node, ProcessorNode):
            return None
        if self.cached and not getattr(self.node.processor, "on_close", False):
            return "the change is in the cache of the store until the commit"
        if self.dropped == DropReason.NULL and self.record is not None:
            return "its key is null" if self.record.key is None else "its value is null"
        return self.dropped or self.node.processor.why_nothing()
