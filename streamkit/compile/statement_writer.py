"""Statements of Python with indentation, unique names, and the objects that they refer to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from streamkit.code import ATOM, CONDITION, Code, names_of, symbol

INDENT = "    "


class Attempt:
    """A `try` block; `empty` is set when it is written."""

    empty = False


class StatementWriter:
    """Collects lines; `namespace` holds the objects that they refer to by name. Statements consist of pieces (streamkit.code)."""

    def __init__(self) -> None:
        self.body_lines: list[str] = []
        self.namespace: dict[str, object] = {}
        self.prologue_lines: list[str] = []
        self.epilogue_lines: list[str] = []
        self._depth = 1
        self._lifecycle: dict[str, dict[str, int]] = {"init": {}, "close": {}}
        self._prologue: dict[tuple[object, ...], Code] = {}
        self.instances: dict[str, Code] = {}
        """The variables of `instance`, by their keys as text."""
        self._names: dict[int, Code] = {}
        self._kept: list[object] = []
        self._count = 0

    # -- Statements --

    def line(self, text: str) -> None:
        """Write a line that needs no piece, at the current depth."""
        self.body_lines.append(INDENT * self._depth + text)

    def assign(self, target: Code, value: Code) -> None:
        """Write `target = value`."""
        self.line(_assigned((target,), (value,)))

    def assign_each(self, targets: tuple[Code, ...], values: tuple[Code, ...]) -> None:
        """Write `a, b = x, y`."""
        self.line(_assigned(targets, values))

    def assign_all(self, targets: tuple[Code, ...], value: Code) -> None:
        """Write `a = b = value`."""
        self.line(" = ".join([*(names_of((target,)) for target in targets), value.at(CONDITION)]))

    def unpack(self, targets: tuple[Code, ...], value: Code) -> None:
        """Write `a, b = value`."""
        self.line(_assigned(targets, (value,)))

    def add_to(self, target: Code, value: Code) -> None:
        """Write `target += value`."""
        self.line(f"{names_of((target,))} += {value.at(CONDITION)}")

    def do(self, piece: Code) -> None:
        """Write a piece that is evaluated for its effect."""
        self.line(piece.at(CONDITION))

    def returns(self, piece: Code) -> None:
        """Write `return piece`."""
        self.line(f"return {piece.at(CONDITION)}")

    # -- Blocks --

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Write a line that opens a block, and the block; an empty one gets `pass`."""
        self.line(opening)
        depth = self._depth
        self._depth += 1
        yield
        self.fill_empty()
        self._depth = depth

    @contextmanager
    def scope(self) -> Iterator[None]:
        """End the blocks that the lines open for the rest of their block (`only_where` and others) with these lines."""
        depth = self._depth
        yield
        self.fill_empty()
        self._depth = depth

    @contextmanager
    def attempt(self) -> Iterator[Attempt]:
        """Write `try:` around the block, which `rescue` follows, but nothing where the block stays empty."""
        self.line("try:")
        start, depth, found = len(self.body_lines), self._depth, Attempt()
        self._depth += 1
        yield found
        self._depth = depth
        if len(self.body_lines) == start:
            found.empty = True
            del self.body_lines[-1]

    def rescue(self) -> AbstractContextManager[None]:
        """Write `except Exception as e:` around the block."""
        return self.block("except Exception as e:")

    def when(self, test: Code) -> AbstractContextManager[None]:
        """Write `if test:` around the block."""
        return self.block(f"if {test.at(CONDITION)}:")

    def otherwise(self, test: Code | None = None) -> AbstractContextManager[None]:
        """Write `else:` around the block, or `elif test:`."""
        return self.block("else:" if test is None else f"elif {test.at(CONDITION)}:")

    def each(self, targets: tuple[Code, ...], items: Code) -> AbstractContextManager[None]:
        """Write `for targets in items:` around the block."""
        return self.block(f"for {names_of(targets)} in {items.at(CONDITION)}:")

    def function(self, name: Code, *parameters: str) -> AbstractContextManager[None]:
        """Write `def name(parameters):` around the block."""
        return self.block(f"def {name.at(ATOM)}({', '.join(parameters)}):")

    def only_where(self, test: Code) -> None:
        """Write `if test:` around the rest of this block."""
        self._rest(f"if {test.at(CONDITION)}:")

    def _rest(self, opening: str) -> None:
        """Write a line that opens a block for the rest of the current block."""
        self.line(opening)
        self._depth += 1

    def fill_empty(self) -> None:
        """Write `pass` where the last line opens a block without statements."""
        last = next((line for line in reversed(self.body_lines) if not line.lstrip().startswith("#")), "")
        if last.endswith(":"):
            opened = (len(last) - len(last.lstrip())) // len(INDENT)
            self.body_lines.append(INDENT * (opened + 1) + "pass")

    @contextmanager
    def rehearsed(self) -> Iterator[None]:
        """Write lines that are discarded; changes of slots and names stay."""
        start, depth = len(self.body_lines), self._depth
        yield
        del self.body_lines[start:]
        self._depth = depth

    # -- Names --

    def var(self, prefix: str) -> Code:
        """Return a variable that no other line has."""
        self._count += 1
        return symbol(f"{prefix}_{self._count}")

    def name_of(self, thing: object, prefix: str) -> Code:
        """Return a name under which the lines can refer to an object."""
        marker = getattr(thing, "__self__", None)
        identity = hash((id(marker), getattr(thing, "__name__", ""))) if marker is not None else id(thing)
        if identity not in self._names:
            self._kept.append(thing)
            self._names[identity] = made = symbol(f"_{prefix}_{len(self._names)}")
            self.namespace[made.source] = thing
        return self._names[identity]

    def prologue(self, key: tuple[object, ...], prefix: str, value: Code) -> Code:
        """Return a variable that is set once a task, before the functions, to the result of `value`."""
        if key not in self._prologue:
            self._prologue[key] = self.var(prefix)
            self.prologue_lines.append(_assigned((self._prologue[key],), (value,)))
        return self._prologue[key]

    def named_prologue(self, name: str, value: Code) -> Code:
        """Return a variable of a given name that is set once a task, before the functions, to the result of `value`."""
        key = ("named", name)
        if key not in self._prologue:
            self._prologue[key] = symbol(name)
            self.prologue_lines.append(_assigned((self._prologue[key],), (value,)))
        return self._prologue[key]

    def instance(self, key: tuple[object, ...], prefix: str, value: Code) -> Code:
        """Return a variable that is set once a task, after all functions are defined, to the result of `value`."""
        if key not in self._prologue:
            self._prologue[key] = self.var(prefix)
            # A number in the key may be the identity of an object, which differs between processes.
            if not any(isinstance(part, int) for part in key):
                self.instances[" ".join(map(str, key))] = self._prologue[key]
            self._epilogue(_assigned((self._prologue[key],), (value,)))
        return self._prologue[key]

    def epilogue(self, piece: Code) -> None:
        """Write a piece that is evaluated once a task, after all functions are defined (each one once)."""
        self._epilogue(piece.at(CONDITION))

    def _epilogue(self, line: str) -> None:
        if line not in self.epilogue_lines:
            self.epilogue_lines.append(line)

    def at_moment(self, moment: str, call: Code, order: int) -> None:
        """Write a call for "init" or "close", each call once; calls are made by their `order`."""
        self._lifecycle[moment].setdefault(call.source, order)

    def lifecycle(self, moment: str) -> str:
        """Return the source of a function that makes the calls of a moment."""
        calls = self._lifecycle[moment]
        return f"lambda: [{', '.join(sorted(calls, key=calls.__getitem__))}] and None"


def _assigned(targets: tuple[Code, ...], values: tuple[Code, ...]) -> str:
    return f"{names_of(targets)} = {', '.join(value.at(CONDITION) for value in values)}"
