"""The run-time functions of the language's operators and built-in functions; each checks the language's bounds.

Names begin with `_x_` in generated code. Every helper has a fast path for small numbers and text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

from streamkit.errors import LimitError
from streamkit.expressions import regex
from streamkit.expressions.budget import (
    MAX_BITS,
    MAX_BYTES,
    MAX_EQUAL_HASHES,
    MAX_LEVELS,
    MAX_RANGE,
    SLOT,
    Budget,
    check_bits,
    deep_size,
    size_error,
)
from streamkit.extension import native
from streamkit.record import Operand, Value
from streamkit.rounds import LARGE, count_bytes

Text = TypeVar("Text", str, bytes)

_FAST = 1 << 63
_NO_VALUE = object()
_CODECS = frozenset(
    [
        "utf8",
        "utf8sig",
        "ascii",
        "usascii",
        "latin1",
        "iso88591",
        "iso885915",
        "cp1252",
        "windows1252",
        "utf16",
        "utf16le",
        "utf16be",
        "utf32",
        "utf32le",
        "utf32be",
    ]
)
_CODEC_ERRORS = frozenset(("strict", "ignore", "replace", "backslashreplace", "xmlcharrefreplace"))


# -- operators --


def multiply(a: Value, b: Operand) -> Value:
    """`a * b`."""
    if a.__class__ is float or b.__class__ is float:
        return a * b
    if a.__class__ is int and b.__class__ is int:
        result = a * b
        return result if -_FAST < result < _FAST else check_bits(result)
    if isinstance(b, int) and hasattr(a, "__len__"):
        return _repeat(a, b)
    if isinstance(a, int) and hasattr(b, "__len__"):
        return _repeat(b, a)
    result = a * b
    return check_bits(result) if isinstance(result, int) else result


def times(a: Value, b: Operand) -> Value:
    """`a * b` where only a number is valid, as in sum() or left of a minus."""
    if a.__class__ is float or b.__class__ is float:
        return a * b
    if a.__class__ is int and b.__class__ is int:
        result = a * b
        return result if -_FAST < result < _FAST else check_bits(result)
    if hasattr(a, "__len__") or hasattr(b, "__len__"):
        raise TypeError(f"a number is needed, not {type(a).__name__} * {type(b).__name__}")
    return multiply(a, b)


def _repeat(sequence: Operand, count: int) -> Value:
    unit = len(sequence) if isinstance(sequence, (str, bytes)) else deep_size(sequence, MAX_BYTES)
    if unit * count > MAX_BYTES:
        raise size_error("'*'", unit * count)
    if unit * count > LARGE:
        count_bytes(unit * count)
    return sequence * count


def power(a: Value, b: Operand) -> Value:
    """`a ** b`; a complex result is a ValueError, as the language has no complex numbers."""
    if isinstance(a, int) and isinstance(b, int) and b > 0:
        if (a.bit_length() - 1) * b >= MAX_BITS:
            raise LimitError(f"the result of '**' has over {MAX_BITS} bits")
        return check_bits(a**b)
    result = a**b
    if isinstance(result, complex):
        raise ValueError("a negative number can't be raised to a fractional power")
    return result


def shift(a: Value, b: Operand) -> Value:
    """`a << b`."""
    if isinstance(a, int) and isinstance(b, int) and a and a.bit_length() + b > MAX_BITS:
        raise LimitError(f"the result of '<<' has over {MAX_BITS} bits")
    return a << b


# Compiled on first use: most files never write text with '%'.
_DIRECTIVE = r"%(?:\([^)]*\))?[-+ #0]*(\*|\d*)(?:\.(\*|\d*))?"
_NESTED = r"%\([^)]*\("


def modulo(a: Value, b: Operand) -> Value:
    """`a % b`, for text the printf form: its widths must be small numbers in the text."""
    if a.__class__ is int or a.__class__ is float or not isinstance(a, (str, bytes)):
        return a % b
    text = a if isinstance(a, str) else a.decode("latin-1")
    if re.search(_NESTED, text):
        raise LimitError("parentheses inside the '%(name)' of a format are not allowed")
    directives = re.findall(_DIRECTIVE, text, re.ASCII)
    total = len(a)
    argument = deep_size(b, MAX_BYTES) if len(directives) else 0
    for width, precision in directives:
        if "*" in (width, precision):
            raise LimitError("'%' with a width of '*' is not allowed")
        if len(width) > 8 or len(precision) > 8:
            raise LimitError("a width of '%' with more than 8 digits")
        total += int(width or 0) + int(precision or 0)
        total += argument if isinstance(b, dict) else 0
    if total + argument > MAX_BYTES:
        raise size_error("'%'", total + argument)
    return bounded(a % b, "'%'")


# -- sizes --


def bounded(value: Text, operation: str) -> Text:
    """Return text or bytes unchanged, or raise LimitError if they are too long."""
    if len(value) > LARGE:
        if len(value) > MAX_BYTES:
            raise size_error(operation, len(value))
        count_bytes(len(value))
    return value


def written(value: Value, write: Callable[[Value], str], operation: str) -> str:
    """Return a value as text, or raise LimitError if the text is too long; a much too large value is not written at all."""
    if deep_size(value, MAX_BYTES) > MAX_BYTES:
        raise size_error(operation, MAX_BYTES + 1)
    return bounded(write(value), operation)


def collected(items: Iterable[Value], what: str) -> Iterable[Value]:
    """Return the items in a container that is not too long for a list. Raises LimitError."""
    longest = MAX_BYTES // SLOT
    if not hasattr(items, "__len__"):
        items = list(islice(items, longest + 1))
    if len(items) > longest:  # type: ignore[arg-type]
        raise LimitError(f"{what} has over {longest} elements ({MAX_BYTES} bytes)")
    return items


def levels(value: Value) -> int:
    """Return how deep lists and tuples are nested, 1 for a plain one; to order two, Python compares a level once for each above it.

    >>> levels([1, 2]), levels([[1], [2, (3,)]])
    (1, 3)
    """
    depth = 0
    level: list[Operand] = [value] if value.__class__ in _ORDERED else []
    while level:
        depth += 1
        level = list({id(part): part for sequence in level for part in sequence if part.__class__ in _ORDERED}.values())
    return max(depth, 1)


def levels_of_keys(keys: list[Value]) -> int:
    """Return the levels of values that are compared with each other: lists if the first is one, since others can't be."""
    return levels(keys) - 1 if keys and keys[0].__class__ in _ORDERED else 1


def sortable_levels(keys: list[Value]) -> int:
    """Return the levels of keys that are sorted. Raises LimitError beyond MAX_LEVELS."""
    depth = levels_of_keys(keys)
    if depth > MAX_LEVELS:
        raise LimitError(f"sorted() compares lists of {depth} levels; at most {MAX_LEVELS} are allowed")
    return depth


_ORDERED = frozenset((list, tuple))


def listed(items: Iterable[Value], what: str) -> list[Operand]:
    """Return the items as a list. Raises LimitError if it is too long."""
    sequence = collected(items, what)
    return sequence if isinstance(sequence, list) else list(sequence)


# -- built-in functions --


def make_range(*arguments: Operand) -> range:
    """`range(…)`."""
    result = range(*arguments)
    try:
        length = len(result)
    except OverflowError:
        length = MAX_RANGE + 1
    if length > MAX_RANGE:
        raise LimitError(f"a range may be at most {MAX_RANGE} long")
    return result


def make_int(value: Operand = 0, base: Operand = _NO_VALUE) -> int:
    """`int(…)`."""
    if value.__class__ is int and base is _NO_VALUE:
        return value
    if isinstance(value, (str, bytes)) and len(value) > MAX_BITS + 200:
        value = value.strip()
        if len(value) > MAX_BITS + 200:
            raise LimitError(f"the result of int() has over {MAX_BITS} bits")
    return check_bits(int(value) if base is _NO_VALUE else int(value, base))


def make_str(value: Value = "", *arguments: Value, **named: Value) -> str:
    """`str(…)`."""
    if value.__class__ in _PLAIN and not arguments and not named:
        return str(value)
    if arguments or named:
        if not isinstance(value, bytes):
            raise TypeError("str() with an encoding takes bytes")
        return decode(value, *arguments, **named)
    return written(value, str, "str()")


_PLAIN = frozenset((str, int, float, bool, type(None)))


def make_repr(value: Value) -> str:
    """The `!r` of an f-string."""
    return written(value, repr, "'!r'")


def make_ascii(value: Value) -> str:
    """The `!a` of an f-string."""
    return written(value, ascii, "'!a'")


def make_text(*parts: Value) -> str:
    """An f-string whose parts may be large."""
    return bounded("".join([make_str(part) for part in parts]), "an f-string")


def make_list(items: Operand = ()) -> list[Value]:
    """`list(…)`."""
    return list(collected(items, "a list"))


def make_tuple(items: Operand = ()) -> tuple[Value, ...]:
    """`tuple(…)`."""
    return tuple(collected(items, "a tuple"))


def make_set(items: Operand = ()) -> set[Value]:
    """`set(…)`."""
    return set(check_hashes(listed(items, "a set")))


def make_sorted(items: Operand, *, key: Operand = None, reverse: Operand = False) -> list[Value]:
    """`sorted(…)`."""
    members = collected(items, "a list")
    for first in members:
        # A list and another value can't be compared, so that the first key shows whether the keys are lists.
        if (first if key is None else key(first)).__class__ in _ORDERED:
            sortable_levels(list(members if key is None else map(key, members)))
        break
    return sorted(members, key=key, reverse=reverse)


def make_dict(items: Operand = (), **fields: Value) -> dict[Operand, Value]:
    """`dict(…)`."""
    if isinstance(items, dict):
        return dict(items, **fields)
    pairs = listed(items, "a dict")
    if len(pairs) > MAX_EQUAL_HASHES:
        pairs = [pair if isinstance(pair, (tuple, list)) else tuple(pair) for pair in pairs]
        check_hashes([pair[0] for pair in pairs if pair])
    return dict(pairs, **fields)


def make_sum(items: Operand, start: Operand = 0) -> Value:
    """`sum(…)`; lists are joined in linear time."""
    if not isinstance(start, (list, tuple)):
        return sum(items, start)
    result: list[Value] = []
    for item in items:
        if not isinstance(item, type(start)):
            raise TypeError(f"sum() can't add {type(item).__name__} to {type(start).__name__}")
        result.extend(item)
        collected(result, "the result of sum()")
    return [*start, *result] if isinstance(start, list) else (*start, *result)


def make_round(number: Operand, ndigits: Operand = None) -> Value:
    """`round(…)`."""
    if ndigits is None:
        return round(number)
    if isinstance(ndigits, int) and abs(ndigits) > MAX_BITS:
        raise LimitError(f"round() to more than {MAX_BITS} digits")
    if isinstance(number, int) and isinstance(ndigits, int) and 0 < -ndigits >= number.bit_length():
        # Less than half of that power of ten, which Python would compute first.
        return 0
    return round(number, ndigits)


def merge_in_python(*parts: dict[Value, Value]) -> dict[Value, Value]:
    """`merge(a, b, …)`: a new object, shallow; later fields win.

    >>> merge_in_python({"a": 1, "b": 1}, {"b": 2})
    {'a': 1, 'b': 2}
    """
    result: dict[Value, Value] | None = None
    for part in parts:
        if not isinstance(part, dict):
            raise TypeError(f"merge() takes objects, not {type(part).__name__}")
        if result is None:
            # An object may have a type, which its copy keeps (UnionRecord).
            result = part.copy()
        else:
            result |= part
    return {} if result is None else result


merge = native("merge", merge_in_python)
"""The same by the extension `streamkit._native`, if it is in use."""


def header(headers: Iterable[tuple[str, bytes | None]], name: str) -> str | None:
    """`header(name)`: the last header of that name as text, or None.

    >>> header([("a", b"1"), ("a", b"2")], "a")
    '2'
    """
    latest = None
    for key, value in headers:
        if key == name:
            latest = value
    return None if latest is None else latest.decode("utf-8", "replace")


def codec(encoding: Operand, errors: Value) -> tuple[str, str]:
    """Check the name of a codec and its error handler. Raises ValueError for one that the language does not have."""
    plain = encoding.lower().replace("-", "").replace("_", "") if isinstance(encoding, str) else encoding
    if plain not in _CODECS:
        raise ValueError(f"encoding {encoding!r} is not available; try utf-8")
    if errors not in _CODEC_ERRORS:
        raise ValueError(f"error handler {errors!r} is not available")
    return encoding, errors


def decode(data: Value, encoding: Value = "utf-8", errors: Value = "strict") -> str:
    """`data.decode(…)`."""
    if not isinstance(data, bytes):
        raise AttributeError(f"decode() is a method of bytes, not of {type(data).__name__}")
    return bounded(data.decode(*codec(encoding, errors)), "decode()")


def re_match(pattern: str, text: str) -> bool:
    """`re_match(…)`."""
    return regex.match(pattern, text)


def re_split(pattern: str, text: str) -> list[str]:
    """`re_split(…)`."""
    return regex.split(pattern, text)


HELPERS: dict[str, Callable[..., Value]] = {
    "_x_mul": multiply,
    "_x_times": times,
    "_x_pow": power,
    "_x_shift": shift,
    "_x_mod": modulo,
    "_x_Int": int,
    "_x_text": make_text,
    "_x_repr": make_repr,
    "_x_ascii": make_ascii,
    "_x_len": len,
    "_x_min": min,
    "_x_max": max,
    "_x_sum": make_sum,
    "_x_abs": abs,
    "_x_round": make_round,
    "_x_int": make_int,
    "_x_float": float,
    "_x_str": make_str,
    "_x_bool": bool,
    "_x_sorted": make_sorted,
    "_x_any": any,
    "_x_all": all,
    "_x_list": make_list,
    "_x_dict": make_dict,
    "_x_tuple": make_tuple,
    "_x_set": make_set,
    "_x_zip": zip,
    "_x_enumerate": enumerate,
    "_x_range": make_range,
    "_x_re_match": re_match,
    "_x_re_split": re_split,
    "_x_merge": merge,
    "_x_header": header,
}


# Limits how many members of sets and keys of objects have equal hashes, since each is compared with all others.
#
# Python salts the hashes of text and bytes in each process, unless PYTHONHASHSEED is set. It does not salt those of
# integers, floats and tuples of them: all multiples of 2**61 - 1 have the same hash.

T = TypeVar("T")

_SALTED = frozenset((str, bytes, bool, type(None)))
_CHUNK = 4096


def check_hashes(members: list[T], budget: Budget | None = None) -> list[T]:
    """Return the members. Raises LimitError if too many different ones have the same hash.

    >>> check_hashes([2**61 - 1] * 1000) is not None
    True
    """
    if len(members) <= MAX_EQUAL_HASHES:
        if budget is not None:
            for member in members:
                budget.key(member)
        return members
    kinds = set(map(type, members))
    if kinds <= _SALTED:
        return members
    if budget is not None and tuple in kinds:
        for member in members:
            budget.key(member)
    integers: list[Operand] = members
    if kinds == {int} and min(integers) > -_PRIME and max(integers) < _PRIME:
        # Small integers are their own hashes; -1 has that of -2.
        return members
    if not all(map(_is_hashable, kinds)):
        # Python's own error names the member that can't be hashed.
        return members
    hashes = Counter(map(hash, members))
    most = max(hashes.values())
    if most > MAX_EQUAL_HASHES:
        suspects = {hash_ for hash_, count in hashes.items() if count > MAX_EQUAL_HASHES}
        different: dict[int, list[Value]] = {}
        for member in members:
            hash_ = hash(member)
            if hash_ in suspects:
                same = different.setdefault(hash_, [])
                if not any(other is member or other == member for other in same):
                    same.append(member)
                    if len(same) > MAX_EQUAL_HASHES:
                        raise LimitError(
                            f"more than {MAX_EQUAL_HASHES} keys or members with equal hashes, such as {same[0]!r:.40}"
                            f" and {same[1]!r:.40}"
                        )
    return members


_PRIME = (1 << 61) - 1


def _is_hashable(kind: type) -> bool:
    return kind.__hash__ is not None


# Methods that expressions may call: the public ones of plain types that change nothing, some of them with limits.


_TEXT = """capitalize center count endswith expandtabs find index isalnum isalpha isascii isdigit islower isspace
 istitle isupper join ljust lower lstrip partition removeprefix removesuffix replace rfind rindex rjust rpartition
 rsplit rstrip split splitlines startswith strip swapcase title translate upper zfill maketrans"""

BY_KIND: dict[str, frozenset[str]] = {
    "str": frozenset((_TEXT + " casefold encode isdecimal isidentifier isnumeric isprintable").split()),
    "bytes": frozenset((_TEXT + " decode hex fromhex").split()),
    "list": frozenset(("copy", "count", "index")),
    "tuple": frozenset(("count", "index")),
    "dict": frozenset(("copy", "fromkeys", "get", "items", "keys", "values")),
    "set": frozenset(
        ("copy", "difference", "intersection", "isdisjoint", "issubset", "issuperset", "symmetric_difference", "union")
    ),
    "int": frozenset(("as_integer_ratio", "bit_count", "bit_length", "conjugate", "from_bytes", "to_bytes")),
    "float": frozenset(("as_integer_ratio", "conjugate", "fromhex", "hex", "is_integer")),
}
ALLOWED = frozenset().union(*BY_KIND.values())
BY_KIND["random"] = frozenset(("boolean", "choice", "exponential", "integer", "normal", "number", "uuid", "zipf"))
"""The draws of `random`, in the expressions of generators; no value has these methods."""
MUTATING = frozenset(
    [
        "append",
        "extend",
        "insert",
        "pop",
        "popitem",
        "remove",
        "clear",
        "sort",
        "reverse",
        "update",
        "setdefault",
        "add",
        "discard",
        "difference_update",
        "intersection_update",
        "symmetric_difference_update",
    ]
)
VIEWS = frozenset(("items", "keys", "values"))
PRODUCTS = frozenset(("rfind", "rindex", "rsplit", "rpartition", "strip", "lstrip", "rstrip"))
"""Methods whose time may grow with the product of the lengths of the text and the argument."""
RESULT_KINDS = {
    **dict.fromkeys(("split", "rsplit", "splitlines"), "list"),
    **dict.fromkeys(("startswith", "endswith", "isdigit", "isalpha", "isspace", "isupper", "islower"), "bool"),
    "encode": "bytes",
    "decode": "str",
    "to_bytes": "bytes",
    "bit_length": "int",
}


def _need_text(receiver: Operand, name: str) -> None:
    if not isinstance(receiver, (str, bytes)):
        raise AttributeError(f"{name}() is a method of str and bytes, not of {type(receiver).__name__}")


def _padding(name: str) -> Callable[..., Operand]:
    def pad(receiver: Operand, width: Operand, *fill: Operand) -> Operand:
        _need_text(receiver, name)
        if isinstance(width, int) and width > MAX_BYTES:
            raise size_error(f"{name}()", width)
        return getattr(receiver, name)(width, *fill)

    return pad


def _expandtabs(receiver: Operand, tabsize: Operand = 8) -> Operand:
    _need_text(receiver, "expandtabs")
    tab = "\t" if isinstance(receiver, str) else b"\t"
    size = len(receiver) + receiver.count(tab) * max(tabsize, 0)
    if size > MAX_BYTES:
        raise size_error("expandtabs()", size)
    return receiver.expandtabs(tabsize)


def _replace(receiver: Operand, old: Operand, new: Operand, count: Operand = -1) -> Operand:
    _need_text(receiver, "replace")
    if (len(receiver) + 1) * (len(new) + 1) > MAX_BYTES:
        times = receiver.count(old) if count < 0 else min(receiver.count(old), count)
        size = len(receiver) + times * (len(new) - len(old))
        if size > MAX_BYTES:
            raise size_error("replace()", size)
    return receiver.replace(old, new, count)


def _join(receiver: Operand, items: Operand) -> Operand:
    _need_text(receiver, "join")
    items = items if isinstance(items, (list, tuple)) else collected(items, "the argument of join()")
    size = sum(map(len, items)) + len(receiver) * len(items)
    if size > MAX_BYTES + len(receiver):
        raise size_error("join()", size)
    return receiver.join(items)


def _translate(receiver: Operand, table: Operand, *delete: Operand, **named: Operand) -> Operand:
    _need_text(receiver, "translate")
    if isinstance(receiver, str) and isinstance(table, dict):
        longest = max((len(text) for text in table.values() if isinstance(text, str)), default=1)
        if longest > 1 and len(receiver) * longest > MAX_BYTES:
            raise size_error("translate()", len(receiver) * longest)
    return receiver.translate(table, *delete, **named)


def _encode(receiver: Operand, encoding: Operand = "utf-8", errors: Operand = "strict") -> bytes:
    if not isinstance(receiver, str):
        raise AttributeError(f"encode() is a method of str, not of {type(receiver).__name__}")
    return bounded(receiver.encode(*codec(encoding, errors)), "encode()")


def _hex(receiver: Operand, *arguments: Operand, **named: Operand) -> str:
    if isinstance(receiver, bytes):
        size = len(receiver) * (3 if arguments or named else 2)
        if size > MAX_BYTES:
            raise size_error("hex()", size)
    elif not isinstance(receiver, float):
        raise AttributeError(f"hex() is a method of bytes and float, not of {type(receiver).__name__}")
    return str(receiver.hex(*arguments, **named))


def _to_bytes(receiver: Operand, length: Operand = 1, byteorder: Operand = "big", *, signed: Operand = False) -> bytes:
    if not isinstance(receiver, int):
        raise AttributeError(f"to_bytes() is a method of int, not of {type(receiver).__name__}")
    if length > MAX_BYTES:
        raise size_error("to_bytes()", length)
    return receiver.to_bytes(length, byteorder, signed=signed)


def _from_bytes(receiver: Operand, data: Operand, byteorder: Operand = "big", *, signed: Operand = False) -> int:
    if not isinstance(receiver, int):
        raise AttributeError(f"from_bytes() is a method of int, not of {type(receiver).__name__}")
    if len(data) > MAX_BITS // 8:
        raise LimitError(f"the result of from_bytes() has over {MAX_BITS} bits")
    return int.from_bytes(data, byteorder, signed=signed)


GUARDED: dict[str, Callable[..., Operand]] = {
    **{name: _padding(name) for name in ("ljust", "rjust", "center", "zfill")},
    "expandtabs": _expandtabs,
    "replace": _replace,
    "join": _join,
    "translate": _translate,
    "encode": _encode,
    "decode": decode,
    "hex": _hex,
    "to_bytes": _to_bytes,
    "from_bytes": _from_bytes,
}
"""Methods whose results may be much larger than their arguments; called as `_x_m_NAME(receiver, …)`."""

HASHING = frozenset(("union", "symmetric_difference", "issubset", "fromkeys"))
"""Methods that create a set or an object from the items of their arguments; called as `_x_h_NAME(receiver, …)`."""


def _hashing(name: str) -> Callable[..., Operand]:
    def call(receiver: Operand, *arguments: Operand, **named: Operand) -> Operand:
        method = getattr(receiver, name)
        # The second argument of `fromkeys` is a value of the new object.
        hashed = 1 if name == "fromkeys" else len(arguments)
        return method(*map(_hashable, arguments[:hashed]), *arguments[hashed:], **named)

    return call


def _hashable(items: Operand) -> Operand:
    # Sets, objects and views have hashed their members already.
    return items if hasattr(items, "isdisjoint") or isinstance(items, dict) else check_hashes(listed(items, "a set"))


METHOD_HELPERS = {
    **{f"_x_m_{name}": helper for name, helper in GUARDED.items()},
    **{f"_x_h_{name}": _hashing(name) for name in HASHING},
}
