"""The result of compiling a sub-topology: readable source, and the nodes that its node indices refer to."""

from __future__ import annotations

import linecache
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamkit.compile.bound_program import BoundProgram
from streamkit.operators.core.task_services import TaskServices
from streamkit.plan.model import PlanNode

_lock = threading.Lock()


@dataclass
class Program:
    """Code of one sub-topology; executed once a process, bound once a task.

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
        if self._factory is None:
            listing = Listing(self.name, self.source)
            # Any function of the module keeps the listing, since a traceback may still show its lines.
            scope: dict[str, Any] = {**self.namespace, "__listing__": listing}  # what `exec` defines has no type
            exec(compile(self.source, listing.file, "exec"), scope)
            factory: Callable[[TaskServices], BoundProgram] = scope["bind"]
            self._factory = factory
        return self._factory(rt)


class Listing:
    """The lines of a generated module, which `linecache` knows under `file` as long as this object exists."""

    def __init__(self, name: str, source: str):
        with _lock:
            self.file = _unused(name)
            # Without a modification time linecache does not look for the file on disk.
            linecache.cache[self.file] = (len(source), None, source.splitlines(True), self.file)
        weakref.finalize(self, linecache.cache.pop, self.file, None).atexit = False


def _unused(name: str) -> str:
    """Return a file name in angle brackets, numbered where another program of that name is alive."""
    file, count = f"<streamkit {name}>", 1
    while file in linecache.cache:
        count += 1
        file = f"<streamkit {name} ({count})>"
    return file
