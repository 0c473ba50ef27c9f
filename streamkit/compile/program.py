"""The result of compiling a sub-topology: readable source, and the nodes that its node indices mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamkit.compile.services import BoundProgram, TaskServices


@dataclass
class Program:
    """Code of one sub-topology; executed once a process, bound once a task.

    `nodes`: plan nodes by the index that generated code passes to `on_error`.
    """

    source: str
    nodes: tuple[Any, ...]
    namespace: dict[str, Any]
    """What the source refers to: helpers, serdes, expressions' functions."""
    _factory: Any = None

    def bind(self, rt: TaskServices) -> BoundProgram:
        """Return the program with a task's stores and services built in."""
        if self._factory is None:
            scope = dict(self.namespace)
            exec(compile(self.source, "<streamkit program>", "exec"), scope)
            self._factory = scope["bind"]
        return self._factory(rt)
