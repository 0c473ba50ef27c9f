"""What the operators and built-in functions of the language call at run time; each holds the language's bounds.

Names begin with `_x_` in generated code. Every helper has a fast way for small plain numbers and text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Any

from streamkit.errors import LimitError
from streamkit.expressions.limits import (
    MAX_BITS,
    MAX_BYTES,
    MAX_EQUAL_HASHES,
    MAX_RANGE,
    SLOT,
    check_bits,
    deep_size,
    refuse_size,
)
from streamkit.expressions.members import check_hashes
from streamkit.rounds import LARGE, made

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


def multiply(a: Any, b: Any) -> Any:
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


def times(a: Any, b: Any) -> Any:
    """`a * b` where only a number makes sense, as below sum() or left of a minus."""
    if a.__class__ is float or b.__class__ is float:
        return a * b
    if a.__class__ is int and b.__class__ is int:
        result = a * b
        return result if -_FAST < result < _FAST else check_bits(result)
    if hasattr(a, "__len__") or hasattr(b, "__len__"):
        raise TypeError(f"a number is needed, not {type(a).__name__} * {type(b).__name__}")
    return multiply(a, b)


def _repeat(sequence: Any, count: int) -> Any:
    unit = len(sequence) if isinstance(sequence, (str, bytes)) else deep_size(sequence, MAX_BYTES)
    if unit * count > MAX_BYTES:
        raise refuse_size(f"{noun(sequence)} made by '*'", unit * count)
    if unit * count > LARGE:
        made(unit * count)
    return sequence * count


def power(a: Any, b: Any) -> Any:
    """`a ** b`; a complex result is a ValueError, as the language has no complex numbers."""
    if isinstance(a, int) and isinstance(b, int) and b > 0:
        if (a.bit_length() - 1) * b >= MAX_BITS:
            raise LimitError(f"an integer of over {MAX_BITS} bits made by '**'")
        return check_bits(a**b)
    result = a**b
    if isinstance(result, complex):
        raise ValueError("a negative number can't be raised to a fractional power")
    return result


def shift(a: Any, b: Any) -> Any:
    """`a << b`."""
    if isinstance(a, int) and isinstance(b, int) and a and a.bit_length() + b > MAX_BITS:
        raise LimitError(f"an integer of over {MAX_BITS} bits made by '<<'")
    return a << b


# Compiled on first use: most files never write text with '%'.
_DIRECTIVE = r"%(?:\([^)]*\))?[-+ #0]*(\*|\d*)(?:\.(\*|\d*))?"
_NESTED = r"%\([^)]*\("


def modulo(a: Any, b: Any) -> Any:
    """`a % b`, for text the printf form: its widths are written out in the text and small."""
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
        raise refuse_size("text made by '%'", total + argument)
    return bounded(a % b, "text made by '%'")


# -- sizes --


def bounded(value: Any, what: str) -> Any:
    """Return text or bytes unchanged, or raise LimitError where they are too long."""
    if len(value) > LARGE:
        if len(value) > MAX_BYTES:
            raise refuse_size(what, len(value))
        made(len(value))
    return value


def noun(value: Any) -> str:
    """Return what a person calls a sequence."""
    if isinstance(value, str):
        return "text"
    return "bytes" if isinstance(value, bytes) else f"a {type(value).__name__}"


def collected(items: Iterable[Any], what: str) -> Iterable[Any]:
    """Return something that holds the items and is not too long to be made a list."""
    longest = MAX_BYTES // SLOT
    if not hasattr(items, "__len__"):
        items = list(islice(items, longest + 1))
    if len(items) > longest:  # type: ignore[arg-type]
        raise LimitError(f"{what} has over {longest} elements ({MAX_BYTES} bytes)")
    return items


def listed(items: Iterable[Any], what: str) -> list[Any]:
    """Return the items as a list, which is not too long."""
    held = collected(items, what)
    return held if isinstance(held, list) else list(held)


# -- built-in functions --


def make_range(*arguments: Any) -> range:
    """`range(…)`."""
    result = range(*arguments)
    try:
        length = len(result)
    except OverflowError:
        length = MAX_RANGE + 1
    if length > MAX_RANGE:
        raise LimitError(f"a range may be at most {MAX_RANGE} long")
    return result


def make_int(value: Any = 0, base: Any = _NO_VALUE) -> int:
    """`int(…)`."""
    if value.__class__ is int and base is _NO_VALUE:
        return value
    if isinstance(value, (str, bytes)) and len(value) > MAX_BITS + 200:
        value = value.strip()
        if len(value) > MAX_BITS + 200:
            raise LimitError(f"an integer of over {MAX_BITS} bits made by int()")
    return check_bits(int(value) if base is _NO_VALUE else int(value, base))


def make_str(value: Any = "", *arguments: Any, **named: Any) -> str:
    """`str(…)`."""
    if value.__class__ in _PLAIN and not arguments and not named:
        return str(value)
    if arguments or named:
        if not isinstance(value, bytes):
            raise TypeError("str() with an encoding takes bytes")
        return decode(value, *arguments, **named)
    if deep_size(value, MAX_BYTES) > MAX_BYTES:
        raise refuse_size("text made by str()", MAX_BYTES + 1)
    return bounded(str(value), "text made by str()")


_PLAIN = frozenset((str, int, float, bool, type(None)))


def make_repr(value: Any) -> str:
    """The `!r` of an f-string."""
    if deep_size(value, MAX_BYTES) > MAX_BYTES:
        raise refuse_size("text made by '!r'", MAX_BYTES + 1)
    return bounded(repr(value), "text made by '!r'")


def make_ascii(value: Any) -> str:
    """The `!a` of an f-string."""
    if deep_size(value, MAX_BYTES) > MAX_BYTES:
        raise refuse_size("text made by '!a'", MAX_BYTES + 1)
    return bounded(ascii(value), "text made by '!a'")


def make_text(*parts: Any) -> str:
    """An f-string whose parts may be large."""
    return bounded("".join([make_str(part) for part in parts]), "text made by an f-string")


def make_list(items: Any = ()) -> list[Any]:
    """`list(…)`."""
    return list(collected(items, "a list"))


def make_tuple(items: Any = ()) -> tuple[Any, ...]:
    """`tuple(…)`."""
    return tuple(collected(items, "a tuple"))


def make_set(items: Any = ()) -> set[Any]:
    """`set(…)`."""
    return set(check_hashes(listed(items, "a set")))


def make_sorted(items: Any, *, key: Any = None, reverse: Any = False) -> list[Any]:
    """`sorted(…)`."""
    return sorted(collected(items, "a list"), key=key, reverse=reverse)


def make_dict(items: Any = (), **fields: Any) -> dict[Any, Any]:
    """`dict(…)`."""
    if isinstance(items, dict):
        return dict(items, **fields)
    pairs = listed(items, "a dict")
    if len(pairs) > MAX_EQUAL_HASHES:
        pairs = [pair if isinstance(pair, (tuple, list)) else tuple(pair) for pair in pairs]
        check_hashes([pair[0] for pair in pairs if pair])
    return dict(pairs, **fields)


def make_sum(items: Any, start: Any = 0) -> Any:
    """`sum(…)`; lists are joined in linear time."""
    if not isinstance(start, (list, tuple)):
        return sum(items, start)
    result: list[Any] = []
    for item in items:
        if not isinstance(item, type(start)):
            raise TypeError(f"sum() can't add {type(item).__name__} to {type(start).__name__}")
        result.extend(item)
        collected(result, "a list made by sum()")
    return [*start, *result] if isinstance(start, list) else (*start, *result)


def make_round(number: Any, ndigits: Any = None) -> Any:
    """`round(…)`."""
    if ndigits is None:
        return round(number)
    if isinstance(ndigits, int) and abs(ndigits) > MAX_BITS:
        raise LimitError(f"round() to more than {MAX_BITS} digits")
    return round(number, ndigits)


def merge(*parts: dict[Any, Any]) -> dict[Any, Any]:
    """`merge(a, b, …)`: a new object, shallow; later fields win.

    >>> merge({"a": 1, "b": 1}, {"b": 2})
    {'a': 1, 'b': 2}
    """
    result: dict[Any, Any] = {}
    for part in parts:
        if not isinstance(part, dict):
            raise TypeError(f"merge() takes objects, not {type(part).__name__}")
        result.update(part)
    return result


def header(headers: Iterable[tuple[str, bytes | None]], name: str) -> str | None:
    """`header(name)`: the last header of that name as text, or None.

    >>> header([("a", b"1"), ("a", b"2")], "a")
    '2'
    """
    found = None
    for key, value in headers:
        if key == name:
            found = value
    return None if found is None else found.decode("utf-8", "replace")


def codec(encoding: Any, errors: Any) -> tuple[str, str]:
    """Check the name of a codec and its error handler. Raises ValueError for one that the language does not have."""
    plain = encoding.lower().replace("-", "").replace("_", "") if isinstance(encoding, str) else encoding
    if plain not in _CODECS:
        raise ValueError(f"encoding {encoding!r} is not available; try utf-8")
    if errors not in _CODEC_ERRORS:
        raise ValueError(f"error handler {errors!r} is not available")
    return encoding, errors


def decode(data: Any, encoding: Any = "utf-8", errors: Any = "strict") -> str:
    """`data.decode(…)`."""
    if not isinstance(data, bytes):
        raise AttributeError(f"decode() is a method of bytes, not of {type(data).__name__}")
    return bounded(data.decode(*codec(encoding, errors)), "text made by decode()")


def re_match(pattern: str, text: str) -> bool:
    """`re_match(…)`."""
    from streamkit.expressions import regex

    return regex.match(pattern, text)


def re_split(pattern: str, text: str) -> list[str]:
    """`re_split(…)`."""
    from streamkit.expressions import regex

    return regex.split(pattern, text)


HELPERS: dict[str, Any] = {
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
