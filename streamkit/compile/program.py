"""The result of compiling a sub-topology: readable source, and the nodes that its node indices mean."""

from __future__ import annotations

import linecache
import threading
import weakref
from dataclasses import dataclass
from typing import Any

from streamkit.compile.services import BoundProgram, TaskServices

_lock = threading.Lock()


@dataclass
class Program:
    """Code of one sub-topology; executed once a process, bound once a task.

    `nodes`: plan nodes by the index that generated code passes to `on_error`.
    """

    name: str
    """Application and sub-topology, as tracebacks, debuggers and profilers show them."""
    source: str
    nodes: tuple[Any, ...]
    namespace: dict[str, Any]
    """What the source refers to: helpers, serdes, expressions' functions."""
    _factory: Any = None

    def bind(self, rt: TaskServices) -> BoundProgram:
        """Return the program with a task's stores and services built in."""
        if self._factory is None:
            listing = Listing(self.name, self.source)
            # The listing lasts as long as any function of the module, of which tracebacks may still speak.
            scope = {**self.namespace, "__listing__": listing}
            exec(compile(self.source, listing.file, "exec"), scope)
            self._factory = scope["bind"]
        return self._factory(rt)


class Listing:
    """The lines of a generated module, which `linecache` knows under `file` as long as this object exists."""

    def __init__(self, name: str, source: str):
        with _lock:
            self.file = _unused(name)
            # Without a time of change the lines are never looked for on a disk.
            linecache.cache[self.file] = (len(source), None, source.splitlines(True), self.file)
        weakref.finalize(self, linecache.cache.pop, self.file, None).atexit = False


def _unused(name: str) -> str:
    """Return a file name in angle brackets, numbered where another program of that name is alive."""
    file, count = f"<streamkit {name}>", 1
    while file in linecache.cache:
        count += 1
        file = f"<streamkit {name} ({count})>"
    return file
