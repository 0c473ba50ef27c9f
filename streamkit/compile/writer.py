"""Lines of Python with indentation, unique names, and the objects that the lines refer to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INDENT = "    "


class Writer:
    """Collects lines; `namespace` holds what they refer to by name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.namespace: dict[str, Any] = {}
        self.prologue_lines: list[str] = []
        self.epilogue_lines: list[str] = []
        self._lifecycle: dict[str, list[str]] = {"init": [], "close": []}
        self._prologue: dict[tuple, str] = {}
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []
        self._count = 0

    def line(self, text: str) -> None:
        """Write a line at the present depth."""
        self.lines.append(INDENT * self.depth + text)

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Write a block; an empty one gets `pass`. Deeper levels opened inside it are closed with it."""
        depth = self.depth
        self.depth += 1
        yield
        self.fill_empty()
        self.depth = depth

    def fill_empty(self) -> None:
        """Write `pass` where the last line opens a block that nothing stands in."""
        last = next((line for line in reversed(self.lines) if not line.lstrip().startswith("#")), "")
        if last.endswith(":"):
            opened = (len(last) - len(last.lstrip())) // len(INDENT)
            self.lines.append(INDENT * (opened + 1) + "pass")

    def var(self, prefix: str) -> str:
        """Return a variable name that stands nowhere else."""
        self._count += 1
        return f"{prefix}_{self._count}"

    def name_of(self, thing: Any, prefix: str) -> str:
        """Return a name under which the lines can refer to an object."""
        marker = getattr(thing, "__self__", None)
        identity = hash((id(marker), getattr(thing, "__name__", ""))) if marker is not None else id(thing)
        if identity not in self._names:
            self._kept.append(thing)
            self._names[identity] = f"_{prefix}_{len(self._names)}"
            self.namespace[self._names[identity]] = thing
        return self._names[identity]

    def prologue(self, key: tuple, prefix: str, source: str) -> str:
        """Return a variable that is set once a task, before the functions, to what `source` gives."""
        if key not in self._prologue:
            self._prologue[key] = self.var(prefix)
            self.prologue_lines.append(f"{self._prologue[key]} = {source}")
        return self._prologue[key]

    def epilogue(self, line: str) -> None:
        """Write a line that is executed once a task, after all functions are defined (each line once)."""
        if line not in self.epilogue_lines:
            self.epilogue_lines.append(line)

    def instance(self, key: tuple, prefix: str, source: str) -> str:
        """Return a variable that is set once a task, after all functions are defined, to what `source` gives."""
        if key not in self._prologue:
            self._prologue[key] = self.var(prefix)
            self.epilogue(f"{self._prologue[key]} = {source}")
        return self._prologue[key]

    def on(self, moment: str, call: str) -> None:
        """Have something called at "init" (stores restored) or "close" (each call once)."""
        if call not in self._lifecycle[moment]:
            self._lifecycle[moment].append(call)

    def lifecycle(self, moment: str) -> str:
        """Return the source of a function that makes the calls of a moment."""
        return f"lambda: [{', '.join(self._lifecycle[moment])}] and None"
