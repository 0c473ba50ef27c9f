"""Limits of the size of values, checked before a value is encoded.

A value may be far larger encoded than in memory, since its parts may be shared: thirty steps of `[x, x]` are thirty
small lists and a text of gigabytes. The functions of this module visit each shared part once.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import chain
from typing import TypeVar

from streamkit.errors import SerdeError
from streamkit.extension import native
from streamkit.record import Operand, Value
from streamkit.rounds import LARGE, count_bytes

MAX_BYTES = 16 * 1024 * 1024
"""Bytes that an encoded key or value may have, unless `max.request.size` is set. Before it is encoded, each list and object
in it counts PART."""
PART = 64
"""Bytes that a list or an object counts: about its memory when it is decoded again."""
MAX_DEPTH = 500
"""Levels of lists and objects within each other: half of Jackson's limit (StreamReadConstraints), so that functions that
compare or print a value by a call for each level stay within Python's recursion limit."""

Bytes = TypeVar("Bytes", bytes, bytearray)

SMALL = 1 << 18
_CONTAINER, _ITEM = 1 << 10, 1 << 5
"""Bytes of SMALL that a container counts, and each of its items beside its text."""
_MANY = 16
"""Parts from which checking all of them at once is faster."""
_KNOWN_FROM = 256
"""Bytes from which a container's size is kept for its next occurrence."""


class _Limit(threading.local):
    written = MAX_BYTES
    counted = MAX_BYTES


_LIMIT = _Limit()


def limit(max_request_size: int | None) -> None:
    """Set how many bytes a key or a value that the present thread writes may have; None: MAX_BYTES."""
    _LIMIT.written = max_request_size or MAX_BYTES
    # Parts of a value of small parts only, such as `[1],[2]`, count about sixteen times their encoded bytes.
    _LIMIT.counted = max(MAX_BYTES, 16 * (max_request_size or 0))


def too_large(size: int, most: int) -> SerdeError:
    """Return the error of a value that has at least `size` bytes encoded, and may have `most`."""
    return SerdeError(
        f"the value is too large to be written: {size:,} bytes or more, of which each list and object counts {PART}; "
        f"at most {most:,} are allowed (max.request.size raises it)"
    )


def too_deep() -> SerdeError:
    """Return the error of a value with too many levels, such as one that holds itself."""
    return SerdeError(f"the value is nested more than {MAX_DEPTH:,} levels deep, or holds itself")


def check_value(value: Value) -> None:
    """Raise SerdeError if plain data is too large to be encoded, or too deep; shared parts count each time."""
    try:
        if unused(value) >= 0:
            return
    except (TypeError, RecursionError):
        pass
    least_size(value)


def unused_in_python(value: Operand, room: int = SMALL) -> int:
    """Return how many bytes of `room` a small value leaves; below 0 for a large one, and if orjson does not write as Java.

    The latter is one with a float which Java writes with an exponent or in quotes, or with anything else than lists, objects,
    text and numbers. Raises TypeError, RecursionError.
    """
    kind = value.__class__
    if kind is dict:
        if len(value) > _MANY:
            value, room = _rest(value.values(), room - len("".join(value)))
        else:
            for name in value:
                room -= len(name)
            value = value.values()
    elif kind is list or kind is tuple:
        if len(value) > _MANY:
            value, room = _rest(value, room)
    else:
        return _scalar(value, room)
    room -= _CONTAINER + _ITEM * len(value)
    for item in value:
        kind = item.__class__
        if kind is str:
            room -= len(item)
        elif kind is int or kind is bool or item is None:
            continue
        elif kind is float:
            # NaN fails every comparison.
            if not (0.001 <= item < 10_000_000 or item == 0 or -10_000_000 < item <= -0.001):
                return -1
        elif room < 0:
            return room
        else:
            room = unused_in_python(item, room)
    return room


unused = native("unused", unused_in_python)
"""The same by the extension `streamkit._native`, in an eighth of the time, if it is in use."""


def _rest(parts: Collection[Value], room: int) -> tuple[Collection[Value], int]:
    """Return the parts that must be checked one by one, which are all or none, and the room that the others leave."""
    plain = _plain(parts) if room >= 0 else -1
    return (parts, room) if plain < 0 else ((), room - plain - _ITEM * len(parts))


def _scalar(value: Operand, room: int) -> int:
    kind = value.__class__
    if kind is str:
        return room - len(value)
    return room if kind is int or kind is bool or value is None else -1


def check_size(data: Bytes, most: int | None = None) -> Bytes:
    """Return encoded data; large data counts for the thread's round. Raises SerdeError beyond `most` bytes, or the thread's limit."""
    most = most or _LIMIT.written
    if len(data) > most:
        raise SerdeError(
            f"the value is too large to be written: {len(data):,} bytes; at most {most:,} are allowed (max.request.size)"
        )
    if len(data) > LARGE:
        count_bytes(len(data))
    return data


def least_size(value: Value, most: int | None = None, deepest: int = MAX_DEPTH) -> tuple[int, bool]:
    """Return about how many bytes plain data has as JSON text, and whether orjson can't write it as Java does.

    Shared parts count each time, and are visited once. Raises SerdeError beyond `most` bytes, by default
    the thread's limit, and `deepest` levels.

    >>> least_size(["ab", [1, 1e9]])
    (140, True)
    """
    most = most or _LIMIT.counted
    odd = False
    sizes: dict[int, int] = {}
    outer: list[tuple[Iterator[Operand], int, Operand]] = []
    total, start, owner = 0, 0, None
    items: Iterator[Operand] = iter((value,))
    while True:
        for item in items:
            kind = item.__class__
            if kind is str:
                total += len(item) + 2
                continue
            if kind is int:
                # The number of digits, or slightly less.
                total += 1 + item.bit_length() * 3 // 10
                continue
            if kind is float:
                total += 3
                # NaN fails every comparison.
                odd = odd or not (item == 0 or 0.001 <= item < 10_000_000 or -10_000_000 < item <= -0.001)
                continue
            if kind is bool or item is None:
                total += 4
                continue
            size = sizes.get(id(item))
            if size is not None:
                total += size
                continue
            if (kind is list or kind is dict) and not item:
                total += PART
                continue
            parts, own = _parts(item)
            if len(outer) >= deepest and own:
                raise too_deep()
            if (kind is list or kind is dict) and len(item) > _MANY:
                names, values = (_plain(item), _plain(item.values())) if kind is dict else (0, _plain(item))
                if names >= 0 and values >= 0:
                    sizes[id(item)] = own + names + values
                    total += own + names + values
                    continue
            outer.append((items, start, owner))
            items, start, owner = iter(parts), total, item
            total += own
            break
        else:
            if total - start >= _KNOWN_FROM:
                sizes[id(owner)] = total - start
            if total > most:
                raise too_large(total, most)
            if not outer:
                return total, odd
            items, start, owner = outer.pop()
        if total > most:
            raise too_large(total, most)


def _plain(parts: Iterable[Operand]) -> int:
    """Return the size of parts that are all text, or all integers of 64 bits; -1 for parts of several types.

    Checking all of them at once takes a tenth of the time of checking each.
    """
    try:
        return len("".join(parts)) if next(iter(parts)).__class__ is str else len(array("q", parts))
    except (TypeError, OverflowError):
        return -1


def _parts(item: Value) -> tuple[Iterable[Value], int]:
    """Return the parts of a container, and the bytes of its brackets and separators."""
    if isinstance(item, dict):
        return chain(dict.keys(item), dict.values(item)), PART + 2 * len(item)
    if isinstance(item, (list, tuple, set, frozenset)):
        return item, PART + len(item)
    if isinstance(item, (str, bytes)):
        return (), len(item)
    # orjson writes the parts of these types too.
    if isinstance(item, Enum):
        return (item.value,), 0
    if is_dataclass(item) and not isinstance(item, type):
        return [getattr(item, field.name, None) for field in fields(item)], PART
    return (), 0
