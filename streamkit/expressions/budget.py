"""The limits of expressions, and the budget of one record in the expressions of all steps: bytes of the values made, and elementary steps.

An elementary step is 20 to 50 ns of work: a visited member of a container, 32 bytes of text, a tenth of a loop's
iteration. Only expressions whose values may be large, or which may take long, charge the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import thread_time
from typing import TypeVar

from streamkit.config import Config
from streamkit.errors import LimitError, TimeLimitError
from streamkit.expressions import regex
from streamkit.extension import native
from streamkit.record import Operand, Value
from streamkit.rounds import LARGE, count_bytes

MAX_RANGE = 1_000_000
MAX_BYTES = 10 * 1024 * 1024
MAX_BITS = 4096
SLOT = 8
"""Bytes that one element of a list counts: a pointer."""

MAX_TEXT = 16_384
"""Characters of an expression's text; longer logic belongs in a Python function."""
MAX_DEPTH = 150
"""Levels of nesting, which keep every recursion below Python's limit."""
MAX_CALLS = 10_000
"""Calls of the file's functions in one expression, calls by other functions included."""

MAX_LOOPS = 5_000_000
"""Iterations of loops whose number depends on the file alone."""
MAX_STEPS = Config.expression_max_steps.default
"""Elementary steps for one record."""
MAX_TOTAL = Config.expression_max_bytes.default
"""Bytes of all values that are made for one record."""
MAX_SECONDS = 2.5
"""Seconds for the constant parts of an expression, which are evaluated when the file is read."""
MAX_LEVELS = 20
"""Levels of lists in each other that `sorted` compares."""
MAX_EQUAL_HASHES = 100
"""Members of a set or keys of an object whose hashes are equal; each of them is compared with all others."""


def size_error(operation: str, size: int, most: int = MAX_BYTES) -> LimitError:
    """Return the error of an operation whose result is too large.

    >>> str(size_error("'*'", 20_000_000))
    "the result of '*' has 20000000 bytes; at most 10485760 are allowed"
    """
    return LimitError(f"the result of {operation} has {_digits(size)} bytes; at most {most} are allowed")


def _digits(number: int) -> str:
    # Python refuses to print integers of more than 4,300 digits.
    return str(number) if number.bit_length() < 200 else f"over 2**{number.bit_length() - 1}"


def check_bits(number: int) -> int:
    """Return the integer, or raise LimitError if it has more than 4,096 bits."""
    if number.bit_length() > MAX_BITS:
        raise LimitError(f"an integer of {number.bit_length()} bits; at most {MAX_BITS} are allowed")
    return number


def deep_size(value: Value, limit: int) -> int:
    """Return roughly the bytes of plain data written out, shared parts counted each time; stops beyond `limit`.

    >>> deep_size(["ab", [1, "c"]], 1000)
    35
    """
    total = 0
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, (str, bytes)):
            total += len(item)
        elif isinstance(item, dict):
            total += 2 * SLOT * len(item)
            if total <= limit:
                todo.extend(item)
                todo.extend(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            total += SLOT * len(item)
            # Long lists are nearly always of one type, which makes a check of each element unnecessary.
            if total <= limit and not (kinds := set(map(type, item))) <= _SCALAR_TYPES:
                if kinds == _TEXT_ALONE:
                    total += sum(map(len, item))
                else:
                    todo.extend(item)
        if total > limit:
            break
    return total


_SCALAR_TYPES = frozenset((int, float, bool))
_TEXT_ALONE = frozenset((str,))


T = TypeVar("T")
Known = dict[int, tuple[Operand, int]]
"""Containers and their sizes by `id`; they are held, so that no other value has their `id`."""

ROUND, OPERATION = 10, 6
"""Steps of one iteration of a loop, and of each operation in it."""
ROW = 512
"""Bytes that a forwarded record counts in addition to its value."""
_CHUNK = 32
"""Bytes of text that one step copies or reads."""
_MADE = 24
"""Bytes counted for a text, or a value other than a number, in addition to its contents: about half of what Python uses."""
_NUMBER = 16
"""Bytes that a number counts which is made."""
_KEPT = 256
"""Bytes from which the size of a container is kept while a record is processed."""
_LOOK = 2_000_000
"""Steps between two reads of the clock."""
_LONGEST = 30.0
_SEARCH, _GROUP, _COMPILE, _INSTRUCTION = 150, 40, 1000, 12
"""Steps of a call of RE2 and of each group, of the first use of a pattern and of each instruction of its program."""
_PLACES = 4
"""Places of a pattern where a search may be, which one step takes a character further."""
_SMALL = frozenset((int, float, bool, type(None)))
_TEXT = frozenset((str,))
_INTEGERS = frozenset((int, bool))
_BIG = 1 << 63


_measured: Callable[[Operand, Known], tuple[int, int] | None] | None = native("measured", None)
"""Bytes and steps of a value by the extension `streamkit._native`, if it is in use; None if only Python can count them."""


class Budget:
    """The bytes and steps that are left to the present record; `start` begins the next one.

    A task has one for its program; its name in generated code is `_y_b`.
    """

    __slots__ = ("_known", "_look", "_patterns", "_until", "bytes", "max_bytes", "max_steps", "seconds", "steps")

    def __init__(self, max_bytes: int = MAX_TOTAL, max_steps: int = MAX_STEPS, seconds: float = _LONGEST):
        self.max_bytes = max_bytes
        self.max_steps = max_steps
        self.seconds = seconds
        self._known: Known = {}
        self._patterns: set[str] = set()
        self.bytes = max_bytes
        self.start()

    def start(self) -> None:
        """Begin a record with the full budget."""
        if self.max_bytes - self.bytes > LARGE:
            count_bytes(self.max_bytes - self.bytes)
        self.bytes = self.max_bytes
        self.steps = self.max_steps
        self._look = self.max_steps - _LOOK if self.max_steps > _LOOK else 0
        self._until = 0.0
        if self._known:
            self._known.clear()
        if self._patterns:
            self._patterns.clear()

    def pause(self) -> tuple[int, int]:
        """Begin a record that was buffered; return the argument of `resume` that continues the current one."""
        left = self.bytes, self.steps
        self.start()
        return left

    def resume(self, left: tuple[int, int]) -> None:
        """Go on with the record that was paused."""
        self.bytes, self.steps = left[0], left[1] - ROUND
        self._look = min(self._look, max(self.steps, 0))

    # -- Charging --

    def spend(self, steps: int) -> None:
        """Charge steps. Raises LimitError when too few are left."""
        self.steps -= steps
        if self.steps < self._look:
            self._check()

    def _check(self) -> None:
        if self.bytes < 0:
            raise LimitError(f"the record makes more than {self.max_bytes} bytes (expression.max.bytes)")
        if self.steps < 0:
            raise LimitError(f"the record takes more than {self.max_steps} steps (expression.max.steps)")
        self._look = max(self.steps - _LOOK, 0)
        # The steps are the limit; the clock is for work that they do not measure well.
        if not self._until:
            self._until = thread_time() + self.seconds
        elif thread_time() > self._until:
            raise TimeLimitError(f"the record takes longer than {self.seconds:g} seconds")

    def take(self, size: int) -> None:
        """Charge the bytes of a value that is made, and the steps of making it. Raises LimitError."""
        self.bytes -= size
        # `spend`, without its call.
        self.steps -= 1 + size // _CHUNK
        if self.bytes < 0 or self.steps < self._look:
            self._check()

    def item(self, value: T) -> T:
        """Charge the size of a new value, and return the value. The size is that of its contents as written, plus its own memory."""
        kind = value.__class__
        if kind is str or kind is bytes:
            # A cast would cost a call for each value.
            if len(value) < _CHUNK:  # type: ignore[arg-type]
                self.steps -= 1
                self.bytes -= _MADE
                if self.bytes < 0 or self.steps < self._look:
                    self._check()
            else:
                is_narrow = kind is bytes or value.isascii()  # type: ignore[attr-defined]
                self.take(_MADE + (len(value) if is_narrow else 2 * len(value)))  # type: ignore[arg-type]
        elif kind in _SMALL:
            self.steps -= 1
            self.bytes -= _NUMBER
            if kind is int and not -_BIG < value < _BIG:  # type: ignore[operator]
                self.take(self.size(value))
            elif self.bytes < 0 or self.steps < self._look:
                self._check()
        else:
            # A set of four numbers takes 216 bytes, and a list of them 88.
            self.take(_MADE + value.__sizeof__() + self._size_of_container(value))
        return value

    def items(self, values: T) -> T:
        """Charge the size of a list whose members are made with it, and return it."""
        self.take(_NUMBER * len(values))  # type: ignore[arg-type]
        return self.item(values)

    def row(self, value: Operand) -> None:
        """Charge a further record: one of several that a step makes of a record, or one that is written."""
        self.take(ROW + self.size(value))

    def weigh(self, value: T) -> T:
        """Charge the steps of reading all of a value, and return it."""
        if value.__class__ not in _SMALL:
            self.spend(1 + self.size(value) // SLOT)
        return value

    def key(self, value: T) -> T:
        """Charge the steps of hashing a value, and return it."""
        if value.__class__ is tuple:
            self.spend(1 + self.size(value) // SLOT)
        return value

    def search(self, pattern: Operand, text: Operand) -> None:
        """Charge a search of a text for a pattern, which is compiled at its first use."""
        compiled = regex.compiled(pattern)
        if pattern not in self._patterns:
            if len(self._patterns) >= regex.KEPT // 2:
                self._patterns.clear()
            self.spend(_COMPILE + _INSTRUCTION * compiled.size)
            self._patterns.add(pattern)
        self.spend(_SEARCH + _GROUP * compiled.groups + self.size(text) * regex.weight(pattern) // _PLACES)

    def loop(self, items: Iterable[T], steps: int = ROUND) -> Iterator[T]:
        """Yield the items, and charge an iteration for each."""
        for item in items:
            self.steps -= steps
            if self.steps < self._look:
                self._check()
            yield item

    def spread(self, items: Iterable[T]) -> tuple[T, ...]:
        """Return the items that a `*` unpacks, and charge all of them."""
        written = tuple(islice(items, max(self.bytes, 0) // SLOT + 1))
        self.item(written)
        return written

    # -- Sizes --

    def size(self, value: Operand) -> int:
        """Return about how many bytes plain data has when it is written out, shared parts each time.

        Large containers are visited once for each record, since they do not change.

        >>> Budget().size(["ab", [1, "c"]])
        35
        """
        kind = value.__class__
        if kind is str:
            return len(value) if value.isascii() else 2 * len(value)
        if kind in _SMALL:
            return 0 if kind is not int or -_BIG < value < _BIG else value.bit_length() // 3
        if kind is bytes:
            return len(value)
        return self._size_of_container(value)

    def _size_of_container(self, value: Operand) -> int:
        if _measured is not None and (measured := _measured(value, self._known)):
            self.steps -= measured[1]
            return measured[0]
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        if isinstance(value, dict):
            total = 2 * SLOT * len(value) + self._size_of_all(value) + self._size_of_all(value.values())
        elif isinstance(value, (list, tuple, set, frozenset)):
            total = SLOT * len(value) + self._size_of_all(value)
        elif isinstance(value, (str, bytes)):
            return len(value)
        else:
            return 2 * SLOT * len(value) if hasattr(value, "__len__") else 0
        self.steps -= 1 + len(value)
        if total >= _KEPT:
            self._known[id(value)] = (value, total)
        return total

    def _size_of_all(self, items: Operand) -> int:
        kinds = set(map(type, items))
        # Long lists are nearly always of one type, which makes a check of each element unnecessary.
        if kinds == _TEXT:
            return sum(map(len, items)) * (1 if all(map(str.isascii, items)) else 2)
        if kinds <= _INTEGERS:
            return 0 if not kinds or max(map(int.bit_length, items)) < 64 else sum(map(self.size, items))
        if int not in kinds and kinds <= _SMALL:
            return 0
        return sum(map(self.size, items))
