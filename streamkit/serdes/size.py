"""How large a value may be when it is written, found before anything is written.

A value may be far larger than what it takes in memory, since its parts may be shared: thirty steps of `[x, x]` hold
thirty small lists and a text of gigabytes. What stands here looks at each shared part once.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import chain
from typing import Any, TypeVar

from streamkit.errors import SerdeError
from streamkit.rounds import LARGE, made

MAX_BYTES = 16 * 1024 * 1024
"""Bytes that a key or a value may have when it is written, unless `max.request.size` names a size. Before it is written
each list and object in it counts PART."""
PART = 64
"""Bytes that a list or an object counts: about what it takes in memory when it is read again."""
MAX_DEPTH = 500
"""Levels of lists and objects within each other: half of what Jackson reads (StreamReadConstraints), so that comparing and
printing a value, a call for each level, stay within Python's own limit."""

Bytes = TypeVar("Bytes", bytes, bytearray)

SMALL = 1 << 18
_CONTAINER, _ITEM = 1 << 10, 1 << 5
"""What a container, and each of its items beside its text, count of SMALL."""
_MANY = 16
"""Parts from which it pays to look at all of them at once."""
_KNOWN_FROM = 256
"""Bytes from which a container's size is kept for the next time that it is met."""


class _Limit(threading.local):
    written = MAX_BYTES
    counted = MAX_BYTES


_LIMIT = _Limit()


def limit(max_request_size: int | None) -> None:
    """Set how many bytes a key or a value that the present thread writes may have; None: MAX_BYTES."""
    _LIMIT.written = max_request_size or MAX_BYTES
    # The parts of a text with small ones only, such as `[1],[2]`, count some sixteen times what they take in it.
    _LIMIT.counted = max(MAX_BYTES, 16 * (max_request_size or 0))


def too_large(size: int, most: int) -> SerdeError:
    """Return the error of what has at least so many bytes when it is written, and may have `most`."""
    return SerdeError(
        f"the value is too large to be written: {size:,} bytes or more, of which each list and object counts {PART}; "
        f"at most {most:,} are allowed (max.request.size raises it)"
    )


def too_deep() -> SerdeError:
    """Return the error of a value with too many levels, such as one that holds itself."""
    return SerdeError(f"the value is nested more than {MAX_DEPTH:,} levels deep, or holds itself")


def check_value(value: Any) -> None:
    """Raise SerdeError where plain data is too large to be written, or too deep, shared parts counted each time."""
    try:
        if unused(value) >= 0:
            return
    except (TypeError, RecursionError):
        pass
    least_size(value)


def unused(value: Any, room: int = SMALL) -> int:
    """Return how many bytes a small value leaves of some; below 0 for a large one, and for one that JSON writes with care.

    That is one with a float which Java writes with an exponent or in quotes, or with anything else than lists, objects,
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
            # Not-a-number fails every comparison.
            if not (0.001 <= item < 10_000_000 or item == 0 or -10_000_000 < item <= -0.001):
                return -1
        elif room < 0:
            return room
        else:
            room = unused(item, room)
    return room


def _rest(parts: Any, room: int) -> tuple[Any, int]:
    """Return the parts that have to be looked at one by one, which are all or none, and the room beside the others."""
    plain = _plain(parts) if room >= 0 else -1
    return (parts, room) if plain < 0 else ((), room - plain - _ITEM * len(parts))


def _scalar(value: Any, room: int) -> int:
    kind = value.__class__
    if kind is str:
        return room - len(value)
    return room if kind is int or kind is bool or value is None else -1


def check_size(data: Bytes, most: int | None = None) -> Bytes:
    """Return what was written, noted where it is large. Raises SerdeError beyond `most` bytes, or the thread's limit."""
    most = most or _LIMIT.written
    if len(data) > most:
        raise SerdeError(
            f"the value is too large to be written: {len(data):,} bytes; at most {most:,} are allowed (max.request.size)"
        )
    if len(data) > LARGE:
        made(len(data))
    return data


def least_size(value: Any, most: int | None = None, deepest: int = MAX_DEPTH) -> tuple[int, bool]:
    """Return about how many bytes plain data has when it is written as text, and whether JSON writes it with care.

    Shared parts are counted each time, and gone through once. Raises SerdeError beyond `most` bytes, by default
    the thread's limit, and `deepest` levels.

    >>> least_size(["ab", [1, 1e9]])
    (140, True)
    """
    most = most or _LIMIT.counted
    odd = False
    sizes: dict[int, int] = {}
    outer: list[tuple[Iterator[Any], int, Any]] = []
    total, start, owner = 0, 0, None
    items: Iterator[Any] = iter((value,))
    while True:
        for item in items:
            kind = item.__class__
            if kind is str:
                total += len(item) + 2
                continue
            if kind is int:
                # As many digits, or some fewer.
                total += 1 + item.bit_length() * 3 // 10
                continue
            if kind is float:
                total += 3
                # Not-a-number fails every comparison.
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


def _plain(parts: Iterable[Any]) -> int:
    """Return the size of parts that are text alone, or integers of 64 bits alone; -1 where they are of several kinds.

    The look at all of them at once costs a tenth of one at each of them.
    """
    try:
        return len("".join(parts)) if next(iter(parts)).__class__ is str else len(array("q", parts))
    except (TypeError, OverflowError):
        return -1


def _parts(item: Any) -> tuple[Iterable[Any], int]:
    """Return what stands within a part, and the bytes of the marks around and between."""
    if isinstance(item, dict):
        return chain(dict.keys(item), dict.values(item)), PART + 2 * len(item)
    if isinstance(item, (list, tuple, set, frozenset)):
        return item, PART + len(item)
    if isinstance(item, (str, bytes)):
        return (), len(item)
    # What else the JSON library takes apart by itself.
    if isinstance(item, Enum):
        return (item.value,), 0
    if is_dataclass(item) and not isinstance(item, type):
        return [getattr(item, each.name, None) for each in fields(item)], PART
    return (), 0
