"""The result of compiling a sub-topology: readable source, and the nodes that its node indices refer to."""

from __future__ import annotations

import linecache
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from streamkit.operators.core.task_services import TaskServices
from streamkit.operators.kernels.replays import Replays
from streamkit.plan.model import PlanNode
from streamkit.record import Headers

_lock = threading.Lock()


@dataclass
class Program:
    """Code of one sub-topology; executed once per process, bound once per task.

    `nodes`: plan nodes by the index that generated code passes to `on_error`.
    """

    name: str
    """Application and sub-topology, as tracebacks, debuggers and profilers show them."""
    source: str
    nodes: tuple[PlanNode, ...]
    namespace: dict[str, object]
    """The objects that the source refers to: helpers, serdes, functions of expressions."""
    sinks: Mapping[str, str] = field(default_factory=dict)
    """Where latencies are measured: sinks by topic, whose records are exactly the output rows of that topic."""
    _factory: Callable[[TaskServices], BoundProgram] | None = None

    def bind(self, rt: TaskServices) -> BoundProgram:
        """Return the program bound to the stores and services of a task."""
        return self.factory()(rt)

    def factory(self) -> Callable[[TaskServices], BoundProgram]:
        """Return the function of the code that binds it; the code is executed by the first call."""
        if self._factory is None:
            listing = Listing(self.name, self.source)
            # Any function of the module keeps the listing, since a traceback may still show its lines.
            scope: dict[str, Any] = {**self.namespace, "__listing__": listing}  # names that `exec` defines have no type
            exec(compile(self.source, listing.file, "exec"), scope)
            factory: Callable[[TaskServices], BoundProgram] = scope["bind"]
            self._factory = factory
        return self._factory


class Listing:
    """The lines of a generated module, which `linecache` knows under `file` as long as this object exists.

    The next listing deletes them: a garbage collection may come while `linecache.checkcache` looks at each entry.
    """

    _released: ClassVar[list[str]] = []

    def __init__(self, name: str, source: str):
        with _lock:
            while self._released:
                linecache.cache.pop(self._released.pop(), None)
            self.file = _unused(name)
            # Without a modification time linecache does not look for the file on disk.
            linecache.cache[self.file] = (len(source), None, source.splitlines(True), self.file)
        weakref.finalize(self, self._released.append, self.file).atexit = False


def _unused(name: str) -> str:
    """Return a file name in angle brackets, numbered if another program of that name is alive."""
    file, count = f"<streamkit {name}>", 1
    while file in linecache.cache:
        count += 1
        file = f"<streamkit {name} ({count})>"
    return file


# A program with the services of a task: the functions that the task calls.

_Bytes: TypeAlias = list[bytes | None]
_Headers: TypeAlias = list[Headers | None]

Run: TypeAlias = Callable[[_Bytes, _Bytes, list[int], _Headers, Sequence[int], int], "Iterator[None] | None"]
"""(keys, values, timestamps, headers, offsets, partition): process these records of one partition, in order.

In a program that is `stepwise`, return a loop that processes one record per step.
"""


@dataclass(slots=True)
class BoundProgram:
    """A sub-topology's code, bound to the services of a task."""

    sources: dict[str, Run]
    """By topic on the log."""
    patterns: dict[str, Callable[[str], Run]]
    """By the regex of a pattern source: the function that returns the run of a topic that matches it."""
    extractors: dict[str, Callable[[_Bytes, _Bytes, list[int], _Headers, Sequence[int], int], list[int | Exception]]]
    """By topic whose entry has a timestamp expression: the function of columns and partition that returns timestamps, or exceptions in their places."""
    stepwise: bool = False
    """Whether each run is a loop of steps, so that a task can merge the records of several topics."""
    timestamp_policies: dict[str, str] = field(default_factory=dict)
    """By topic: fail_on_invalid, log_and_skip, use_partition_time, wallclock (applied by the task's queues)."""
    init: Callable[[], None] = lambda: None
    """Creates processors and calls their init, after stores are restored."""
    close: Callable[[], None] = lambda: None
    """Calls processors' close."""
    position: Callable[[], tuple[str | None, int, int] | None] = lambda: None
    """(topic, partition, offset) of the current record, for messages about failures outside a node."""
    leave: Callable[[], None] = lambda: None
    """Clears the current record, so that a later failure in a timer or a flush does not name it."""
    replays: Replays | None = None
    """The steps that hold records back until the end of a run; None if there are none."""
    instances: dict[str, object] = field(default_factory=dict)
    """The objects of nodes, by their purpose and node; some have state of their own (state.definitions.Volatile)."""

    def flush(self) -> None:
        """Forward the records that steps hold back."""
        if self.replays is not None:
            self.replays.flush()

    def read_position(self) -> tuple[str | None, int, int] | None:
        """Return the position of the last record that the loop of a source has read, also while earlier ones are forwarded."""
        position = self.position()
        if self.replays is None or self.replays.loop is None or position is None:
            return position
        *_, offset, place = self.replays.loop[:4]
        return (*place, offset)
