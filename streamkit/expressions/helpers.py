"""The run-time functions of the language's operators and built-in functions; each checks the language's bounds.

Those with charges have the record's budget as their first argument.

Names begin with `_x_` in generated code. Every helper has a fast path for small numbers and text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from operator import eq, ge, gt, le, lt, ne
from typing import TypeVar

from streamkit.errors import LimitError
from streamkit.expressions import regex
from streamkit.expressions.budget import (
    MAX_BITS,
    MAX_BYTES,
    MAX_EQUAL_HASHES,
    MAX_RANGE,
    SLOT,
    SMALL,
    TEXTS,
    Budget,
    check_bits,
    deep_size,
    size_error,
)
from streamkit.extension import native
from streamkit.record import Key, Value
from streamkit.rounds import LARGE, made

T = TypeVar("T")
Text = TypeVar("Text", str, bytes)

_NO_VALUE = object()
_BIG = 1 << 63
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


def times(a: Value, b: Value) -> Value:
    """`a * b` where only a number is valid, as in sum() or left of a minus."""
    if a.__class__ is float or b.__class__ is float:
        return a * b
    if a.__class__ is int and b.__class__ is int:
        result = a * b
        return result if -_BIG < result < _BIG else check_bits(result)
    if hasattr(a, "__len__") or hasattr(b, "__len__"):
        raise TypeError(f"a number is needed, not {type(a).__name__} * {type(b).__name__}")
    result = a * b
    return check_bits(result) if isinstance(result, int) else result


def power(a: Value, b: Value) -> Value:
    """`a ** b`; a complex result is a ValueError, as the language has no complex numbers."""
    if isinstance(a, int) and isinstance(b, int) and b > 0:
        if (a.bit_length() - 1) * b >= MAX_BITS:
            raise LimitError(f"an integer of over {MAX_BITS} bits made by '**'")
        return check_bits(a**b)
    result = a**b
    if isinstance(result, complex):
        raise ValueError("a negative number can't be raised to a fractional power")
    return result


def shift(a: Value, b: Value) -> Value:
    """`a << b`."""
    if isinstance(a, int) and isinstance(b, int) and a and a.bit_length() + b > MAX_BITS:
        raise LimitError(f"an integer of over {MAX_BITS} bits made by '<<'")
    return a << b


# Compiled on first use: most files never write text with '%'.
_DIRECTIVE = r"%(?:\([^)]*\))?[-+ #0]*(\*|\d*)(?:\.(\*|\d*))?"
_NESTED = r"%\([^)]*\("


def modulo(a: Value, b: Value) -> Value:
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
        raise size_error("text made by '%'", total + argument)
    return bounded(a % b, "text made by '%'")


# -- sizes --


def bounded(value: Text, what: str) -> Text:
    """Return text or bytes unchanged, or raise LimitError where they are too long."""
    if len(value) > LARGE:
        if len(value) > MAX_BYTES:
            raise size_error(what, len(value))
        made(len(value))
    return value


def noun(value: Value) -> str:
    """Return the type of a sequence in words, for messages."""
    if isinstance(value, str):
        return "text"
    return "bytes" if isinstance(value, bytes) else f"a {type(value).__name__}"


def collected(items: Iterable[Value], what: str) -> Iterable[Value]:
    """Return the items in a container that is not too long for a list. Raises LimitError."""
    longest = MAX_BYTES // SLOT
    if not hasattr(items, "__len__"):
        items = list(islice(items, longest + 1))
    if len(items) > longest:  # type: ignore[arg-type]
        raise LimitError(f"{what} has over {longest} elements ({MAX_BYTES} bytes)")
    return items


def listed(items: Iterable[Value], what: str) -> list[Value]:
    """Return the items as a list. Raises LimitError where it is too long."""
    found = collected(items, what)
    return found if isinstance(found, list) else list(found)


# -- built-in functions --


def make_range(*arguments: Value) -> range:
    """`range(…)`."""
    result = range(*arguments)
    try:
        length = len(result)
    except OverflowError:
        length = MAX_RANGE + 1
    if length > MAX_RANGE:
        raise LimitError(f"a range may be at most {MAX_RANGE} long")
    return result


def make_int(value: Value = 0, base: Value = _NO_VALUE) -> int:
    """`int(…)`."""
    if value.__class__ is int and base is _NO_VALUE:
        return value
    if isinstance(value, (str, bytes)) and len(value) > MAX_BITS + 200:
        value = value.strip()
        if len(value) > MAX_BITS + 200:
            raise LimitError(f"an integer of over {MAX_BITS} bits made by int()")
    return check_bits(int(value) if base is _NO_VALUE else int(value, base))


def make_str(value: Value = "", *arguments: Value, **named: Value) -> str:
    """`str(…)`."""
    if value.__class__ in _PLAIN and not arguments and not named:
        return str(value)
    if arguments or named:
        if not isinstance(value, bytes):
            raise TypeError("str() with an encoding takes bytes")
        return decode(value, *arguments, **named)
    if deep_size(value, MAX_BYTES) > MAX_BYTES:
        raise size_error("text made by str()", MAX_BYTES + 1)
    return bounded(str(value), "text made by str()")


_PLAIN = frozenset((str, int, float, bool, type(None)))


def make_repr(value: Value) -> str:
    """The `!r` of an f-string."""
    if deep_size(value, MAX_BYTES) > MAX_BYTES:
        raise size_error("text made by '!r'", MAX_BYTES + 1)
    return bounded(repr(value), "text made by '!r'")


def make_ascii(value: Value) -> str:
    """The `!a` of an f-string."""
    if deep_size(value, MAX_BYTES) > MAX_BYTES:
        raise size_error("text made by '!a'", MAX_BYTES + 1)
    return bounded(ascii(value), "text made by '!a'")


def make_text(*parts: Value) -> str:
    """An f-string whose parts may be large."""
    return bounded("".join([make_str(part) for part in parts]), "text made by an f-string")


def make_list(items: Value = ()) -> list[Value]:
    """`list(…)`."""
    return list(collected(items, "a list"))


def make_tuple(items: Value = ()) -> tuple[Value, ...]:
    """`tuple(…)`."""
    return tuple(collected(items, "a tuple"))


def make_set(items: Value = ()) -> set[Value]:
    """`set(…)`."""
    return set(check_hashes(listed(items, "a set")))


def make_sorted(items: Value, *, key: Value = None, reverse: Value = False) -> list[Value]:
    """`sorted(…)`."""
    return sorted(collected(items, "a list"), key=key, reverse=reverse)


def make_dict(items: Value = (), **fields: Value) -> dict[Key, Value]:
    """`dict(…)`."""
    if isinstance(items, dict):
        return dict(items, **fields)
    pairs = listed(items, "a dict")
    if len(pairs) > MAX_EQUAL_HASHES:
        pairs = [pair if isinstance(pair, (tuple, list)) else tuple(pair) for pair in pairs]
        check_hashes([pair[0] for pair in pairs if pair])
    return dict(pairs, **fields)


def make_sum(items: Value, start: Value = 0) -> Value:
    """`sum(…)`; lists are joined in linear time."""
    if not isinstance(start, (list, tuple)):
        return sum(items, start)
    result: list[Value] = []
    for item in items:
        if not isinstance(item, type(start)):
            raise TypeError(f"sum() can't add {type(item).__name__} to {type(start).__name__}")
        result.extend(item)
        collected(result, "a list made by sum()")
    return [*start, *result] if isinstance(start, list) else (*start, *result)


def make_round(number: Value, ndigits: Value = None) -> Value:
    """`round(…)`."""
    if ndigits is None:
        return round(number)
    if isinstance(ndigits, int) and abs(ndigits) > MAX_BITS:
        raise LimitError(f"round() to more than {MAX_BITS} digits")
    return round(number, ndigits)


def merge_in_python(*parts: dict[Key, Value]) -> dict[Key, Value]:
    """`merge(a, b, …)`: a new object, shallow; later fields win.

    >>> merge_in_python({"a": 1, "b": 1}, {"b": 2})
    {'a': 1, 'b': 2}
    """
    result: dict[Key, Value] = {}
    for part in parts:
        if not isinstance(part, dict):
            raise TypeError(f"merge() takes objects, not {type(part).__name__}")
        result |= part
    return result


merge = native("merge", merge_in_python)
"""The same by the extension `streamkit._native`, where it is in use."""


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


def codec(encoding: Value, errors: Value) -> tuple[str, str]:
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
    return bounded(data.decode(*codec(encoding, errors)), "text made by decode()")


def re_match(pattern: str, text: str) -> bool:
    """`re_match(…)`."""
    return regex.match(pattern, text)


def re_split(pattern: str, text: str) -> list[str]:
    """`re_split(…)`."""
    return regex.split(pattern, text)


HELPERS: dict[str, Callable[..., Value]] = {
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

_SALTED = frozenset((str, bytes, bool, type(None)))
_CHUNK = 4096


def check_hashes(members: list[T], budget: Budget | None = None) -> list[T]:
    """Return the members. Raises LimitError where too many different ones have the same hash.

    >>> check_hashes([2**61 - 1] * 1000) is not None
    True
    """
    if len(members) <= MAX_EQUAL_HASHES:
        if budget is not None:
            for each in members:
                budget.key(each)
        return members
    kinds = set(map(type, members))
    if kinds <= _SALTED:
        return members
    if budget is not None and tuple in kinds:
        for each in members:
            budget.key(each)
    integers: list[Value] = members
    if kinds == {int} and min(integers) > -_PRIME and max(integers) < _PRIME:
        # Small integers are their own hashes; -1 has that of -2.
        return members
    if not all(map(_is_hashable, kinds)):
        # Python's own error names the member that can't be hashed.
        return members
    hashes = Counter(map(hash, members))
    most = max(hashes.values())
    if most > MAX_EQUAL_HASHES:
        suspects = {found for found, count in hashes.items() if count > MAX_EQUAL_HASHES}
        different: dict[int, list[Value]] = {}
        for each in members:
            found = hash(each)
            if found in suspects:
                same = different.setdefault(found, [])
                if not any(other is each or other == each for other in same):
                    same.append(each)
                    if len(same) > MAX_EQUAL_HASHES:
                        raise LimitError(
                            f"more than {MAX_EQUAL_HASHES} keys or members with equal hashes, such as {same[0]!r:.40}"
                            f" and {same[1]!r:.40}"
                        )
    return members


_PRIME = (1 << 61) - 1


def _is_hashable(kind: type) -> bool:
    return kind.__hash__ is not None


# The operators and functions with charges to a budget, their first argument; `_x_k_NAME` in generated code.

_BITS = 8
"""Bits of a long integer that one step works on."""


# -- Operators --


def _long(budget: Budget, *operands: Value) -> None:
    for each in operands:
        if isinstance(each, int) and not -_BIG < each < _BIG:
            budget.spend(each.bit_length() // _BITS)


def charged_multiply(budget: Budget, a: Value, b: Value) -> Value:
    """`a * b`."""
    if a.__class__ is float or b.__class__ is float:
        return a * b
    if a.__class__ is int and b.__class__ is int:
        result = a * b
        return result if -_BIG < result < _BIG else check_bits(result)
    for one, other in ((a, b), (b, a)):
        if one.__class__ not in SMALL and isinstance(other, int) and hasattr(one, "__len__"):
            if (size := budget.size(one) * other) > MAX_BYTES:
                raise size_error(f"{noun(one)} made by '*'", size)
            return budget.item(one * other)
    return times(a, b)


def charged_modulo(budget: Budget, a: Value, b: Value) -> Value:
    """`a % b`."""
    if a.__class__ in SMALL:
        return a % b
    size = budget.size(b)
    budget.spend(1 + len(a) // 4 + size // SLOT)
    if size > MAX_BYTES:
        raise size_error("text made by '%'", size)
    return budget.item(modulo(a, b))


_COMPARE: dict[str, Callable[[Value, Value], Value]] = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


def charged_compare(budget: Budget, sign: str, a: Value, b: Value) -> Value:
    """Compare two values, and charge for the parts that the comparison reads."""
    if a.__class__ not in SMALL and b.__class__ not in SMALL:
        if a.__class__ in TEXTS:
            budget.spend(1 + min(len(a), len(b) if hasattr(b, "__len__") else 0) // 32)
        else:
            budget.spend(1 + min(budget.size(a), budget.size(b)) // SLOT + _pairs(a, b))
    return _COMPARE[sign](a, b)


def _pairs(a: Value, b: Value) -> int:
    return min(len(a), len(b)) if hasattr(a, "__len__") and hasattr(b, "__len__") else 0


def charged_contains(budget: Budget, item: Value, items: Value) -> bool:
    """`item in items`."""
    kind = items.__class__
    if kind in TEXTS:
        budget.spend(1 + len(items) // 8 + (len(item) // 8 if item.__class__ in TEXTS else 0))
    elif kind is range:
        budget.spend(1 + (len(items) if item.__class__ is not int else 0))
    elif isinstance(items, (list, tuple)):
        size = 0 if item.__class__ in SMALL else budget.size(item) // SLOT
        budget.spend(1 + len(items) + (min(budget.size(items) // SLOT, len(items) * size) if size else 0))
    elif isinstance(items, _BY_HASH):
        budget.key(item)
    elif hasattr(items, "__len__"):
        return charged_contains(budget, item, list(items))
    else:
        items = _each(budget, items, item)
    return item in items


_BY_HASH: tuple[type, ...] = (dict, set, frozenset, type({}.keys()), type({}.items()))
"""Types that find members by hash; a view of values visits all."""


def _each(budget: Budget, items: Iterable[Value], item: Value) -> Iterable[Value]:
    size = 0 if item.__class__ in SMALL else budget.size(item) // SLOT
    for each in budget.loop(items):
        if size and each.__class__ not in SMALL:
            budget.spend(min(size, budget.size(each) // SLOT))
        yield each


# -- Functions --


def charged_text(budget: Budget, *parts: Value) -> str:
    """An f-string."""
    return budget.item(bounded("".join([_str(budget, part) for part in parts]), "text made by an f-string"))


def _str(budget: Budget, value: Value, what: str = "str()", write: Callable[[Value], str] = str) -> str:
    if value.__class__ is str and write is str:
        return value
    _long(budget, value)
    size = budget.size(value)
    if size > MAX_BYTES:
        raise size_error(f"text made by {what}", size)
    budget.spend(1 + size // SLOT)
    return bounded(write(value), f"text made by {what}")


def charged_str(budget: Budget, value: Value = "", *arguments: Value, **named: Value) -> str:
    """`str(…)`."""
    if arguments or named:
        return budget.item(make_str(value, *arguments, **named))
    return budget.item(_str(budget, value))


def charged_repr(budget: Budget, value: Value) -> str:
    """The `!r` of an f-string."""
    return budget.item(_str(budget, value, "'!r'", repr))


def charged_ascii(budget: Budget, value: Value) -> str:
    """The `!a` of an f-string."""
    return budget.item(_str(budget, value, "'!a'", ascii))


def charged_int(budget: Budget, *arguments: Value, **named: Value) -> int:
    """`int(…)`."""
    if arguments and arguments[0].__class__ in TEXTS:
        budget.spend(1 + len(arguments[0]) // 2)
    return make_int(*arguments, **named)


def charged_float(budget: Budget, *arguments: Value) -> float:
    """`float(…)`."""
    if arguments and arguments[0].__class__ in TEXTS:
        budget.spend(1 + len(arguments[0]) // 4)
    return float(*arguments)


def charged_round(budget: Budget, number: Value, *arguments: Value, **named: Value) -> Value:
    """`round(…)`."""
    _long(budget, number)
    return make_round(number, *arguments, **named)


def charged_sum(budget: Budget, items: Value, *start: Value, **named: Value) -> Value:
    """`sum(…)`."""
    return budget.item(make_sum(budget.loop(items), *start, **named))


def charged_any_of(budget: Budget, items: Value) -> bool:
    """`any(…)`."""
    return any(budget.loop(items))


def charged_all_of(budget: Budget, items: Value) -> bool:
    """`all(…)`."""
    return all(budget.loop(items))


def charged_sorted(budget: Budget, items: Value, *, key: Value = None, reverse: Value = False) -> list[Value]:
    """`sorted(…)`."""
    members = charged_list(budget, items)
    keys = _keys(budget, members, key)
    rounds = max(len(members), 1).bit_length()
    budget.spend(rounds * (len(members) + sum(map(budget.size, keys)) // SLOT))
    if key is None:
        return sorted(members, reverse=reverse)
    return [members[at] for at in sorted(range(len(members)), key=keys.__getitem__, reverse=reverse)]


def _keys(budget: Budget, items: list[Value], key: Value) -> list[Value]:
    if key is None:
        return items
    found = []
    for item in budget.loop(items):
        found.append(key(item) if key in _CHEAP_KEYS else key(budget.weigh(item)))
    return found


_CHEAP_KEYS: frozenset[Value] = frozenset((len, bool, abs))


def _extreme(
    choose: Callable[..., Value], budget: Budget, *arguments: Value, key: Value = None, **named: Value
) -> Value:
    several = len(arguments) != 1
    items = list(arguments) if several else charged_list(budget, arguments[0])
    if not items:
        return choose(*arguments, **named) if several else choose((), **named)
    keys = _keys(budget, items, key)
    budget.spend(len(items) + sum(map(budget.size, keys)) // SLOT)
    return items[choose(range(len(items)), key=keys.__getitem__)]


def charged_list(budget: Budget, items: Value = ()) -> list[Value]:
    """`list(…)`."""
    return budget.item(list(collected(_bounded(budget, items), "a list")))


def charged_tuple(budget: Budget, items: Value = ()) -> tuple[Value, ...]:
    """`tuple(…)`."""
    return budget.item(tuple(collected(_bounded(budget, items), "a tuple")))


def _bounded(budget: Budget, items: Value) -> Value:
    return items if hasattr(items, "__len__") else budget.loop(items)


def charged_set(budget: Budget, items: Value = ()) -> set[Value]:
    """`set(…)`, and set comprehensions."""
    return budget.item(set(check_hashes(charged_list(budget, items), budget)))


def charged_dict(budget: Budget, items: Value = (), **fields: Value) -> dict[Key, Value]:
    """`dict(…)`."""
    if isinstance(items, dict):
        return budget.item(dict(items, **fields))
    members: Value = [
        tuple(pair) if not isinstance(pair, (tuple, list)) else pair for pair in charged_list(budget, items)
    ]
    check_hashes([pair[0] for pair in members if pair], budget)
    return budget.item(dict(members, **fields))


def charged_merge(budget: Budget, *parts: Value) -> dict[Key, Value]:
    """`charged_merge(…)`."""
    return budget.item(merge(*parts))


def charged_zip(budget: Budget, *items: Value, **named: Value) -> Value:
    """`zip(…)`."""
    return budget.loop(zip(*items, **named))  # noqa: B905


def charged_enumerate(budget: Budget, *arguments: Value, **named: Value) -> Value:
    """`enumerate(…)`."""
    return budget.loop(enumerate(*arguments, **named))


_CALL, _PIECE, _MATCHED = 20, 40, 200
"""Steps of one call of RE2, of a piece of a text that is cut at a plain text, and of one that RE2 finds, in addition to those by length."""


def charged_re_match(budget: Budget, pattern: Value, subject: Value) -> bool:
    """`charged_re_match(…)`."""
    budget.spend(_CALL + _length(subject) * regex.weight(pattern) // 4)
    return re_match(pattern, subject)


def charged_re_split(budget: Budget, pattern: Value, subject: Value) -> list[str]:
    """`charged_re_split(…)`."""
    budget.spend(_CALL + _length(subject) * regex.weight(pattern) // 4)
    found = []
    steps = _PIECE if regex.is_literal(pattern) else _MATCHED
    for piece in regex.pieces(pattern, subject):
        budget.spend(steps)
        found.append(piece)
    return budget.item(found)


def charged_header(budget: Budget, headers: Value, name: Value) -> str | None:
    """`charged_header(…)`."""
    budget.spend(1 + len(headers))
    return budget.item(header(headers, name))


def _length(value: Value) -> int:
    return len(value) if value.__class__ in TEXTS else 0


CHARGED: dict[str, Callable[..., Value]] = {
    "_x_k_mul": charged_multiply,
    "_x_k_mod": charged_modulo,
    "_x_k_compare": charged_compare,
    "_x_k_in": charged_contains,
    "_x_k_text": charged_text,
    "_x_k_repr": charged_repr,
    "_x_k_ascii": charged_ascii,
    "_x_k_str": charged_str,
    "_x_k_int": charged_int,
    "_x_k_float": charged_float,
    "_x_k_round": charged_round,
    "_x_k_sum": charged_sum,
    "_x_k_any": charged_any_of,
    "_x_k_all": charged_all_of,
    "_x_k_sorted": charged_sorted,
    "_x_k_min": partial(_extreme, min),
    "_x_k_max": partial(_extreme, max),
    "_x_k_list": charged_list,
    "_x_k_tuple": charged_tuple,
    "_x_k_set": charged_set,
    "_x_k_dict": charged_dict,
    "_x_k_zip": charged_zip,
    "_x_k_enumerate": charged_enumerate,
    "_x_k_merge": charged_merge,
    "_x_k_header": charged_header,
    "_x_k_re_match": charged_re_match,
    "_x_k_re_split": charged_re_split,
}
