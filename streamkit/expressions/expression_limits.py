"""The bounds of the expression language."""

from __future__ import annotations

from streamkit.config import Config
from streamkit.errors import LimitError
from streamkit.record import Value

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


def size_error(what: str, size: int) -> LimitError:
    """Return the error of a value that is too large.

    >>> str(size_error("text made by '*'", 20_000_000))
    "text made by '*' has 20000000 bytes; at most 10485760 are allowed"
    """
    return LimitError(f"{what} has {_digits(size)} bytes; at most {MAX_BYTES} are allowed")


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
            if total <= limit and not (kinds := set(map(type, item))) <= _SMALL:
                if kinds == _TEXT:
                    total += sum(map(len, item))
                else:
                    todo.extend(item)
        if total > limit:
            break
    return total


_SMALL = frozenset((int, float, bool))
_TEXT = frozenset((str,))
