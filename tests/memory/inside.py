"""Runs the command `streamkit` and writes, at each SIGUSR1, what its process holds as a line of JSON.

python -m tests.memory.inside FILE [--diff] [--collect] run TOPOLOGY …
"""

from __future__ import annotations

import ctypes
import gc
import json
import signal
import sys
import threading
import tracemalloc
from collections import Counter, _count_elements  # type: ignore[attr-defined]
from collections.abc import Iterator
from itertools import chain, compress, islice, repeat, tee
from pathlib import Path
from typing import Any

from streamkit.state.engines.overlay import OverlayMap

TYPES = 25
"""How many types of objects are listed, the most frequent first."""


class _MallInfo(ctypes.Structure):
    """struct mallinfo2, of which only those figures are named that are read."""

    _fields_ = [
        ("arena", ctypes.c_size_t),
        ("not_read", ctypes.c_size_t * 3),
        ("mapped", ctypes.c_size_t),
        ("not_read_either", ctypes.c_size_t * 2),
        ("used", ctypes.c_size_t),
        ("free", ctypes.c_size_t),
        ("top", ctypes.c_size_t),
    ]


def c_library() -> dict[str, int]:
    """Return what the C library's allocator has in use, and free but not given back, in kB (glibc; else nothing)."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return {}
    mallinfo.restype = _MallInfo
    found = mallinfo()
    return {"used": (found.used + found.mapped) >> 10, "free": found.free >> 10}


def _objects() -> Iterator[Any]:
    """Give the objects that Python's collector knows, for one call of a function in C.

    Other threads build tuples meanwhile, and can't finish one that a list here refers to: no bytecode may run between.
    """
    return chain.from_iterable(islice(iter(gc.get_objects, None), 1))


def types() -> Counter[type]:
    """Return how many objects there are of each type."""
    found: dict[type, int] = {}
    _count_elements(found, map(type, _objects()))
    return Counter(found)


def instances(module: str) -> list[Any]:
    """Return the objects whose types are of this package."""
    wanted = tuple(each for each in types() if str(each.__module__).startswith(module))
    # All of it runs in C. A union of types has no method for this in Python 3.11.
    objects, again = tee(_objects())
    return list(compress(objects, map(isinstance, again, repeat(wanted))))


def held() -> dict[str, int]:
    """Return how many rows the state package's containers hold in memory: maps, overlays, caches, rows by key, buffers."""
    found: Counter[str] = Counter()
    for each in instances("streamkit.state"):
        kind = type(each)
        for attribute in (
            "_data",
            "_pending",
            "entries",
            "dirty",
            "_keys",
            "_touched",
            "_entries",
            "_queue",
            "_suffixes",
            "_eldest",
        ):
            size = _size(getattr(each, attribute, None))
            if size:
                found[f"{kind.__name__}.{attribute}"] += size
        count = getattr(each, "_bytes", None)
        if isinstance(count, int):
            found[f"{kind.__name__}._bytes"] += count
    return dict(found)


def engines() -> int:
    """Return what the engines of stores hold in write buffers and block caches, in kB; they are filled over hours."""
    total = 0
    for each in instances("streamkit.state"):
        if not isinstance(each, OverlayMap) or each._closed:
            continue
        database = each._db
        if hasattr(database, "get_property"):
            total += int(database.get_property(b"leveldb.approximate-memory-usage") or 0)
        else:
            for name in ("rocksdb.cur-size-all-mem-tables", "rocksdb.block-cache-usage"):
                total += database.property_int_value(name) or 0
    return total >> 10


def _size(container: Any) -> int:
    return len(container) if hasattr(container, "__len__") else 0


def snapshot(collect: bool) -> dict[str, Any]:
    """Return objects by type, Python's memory blocks, threads, and the C library's figures."""
    before = types().total()
    garbage = gc.collect() if collect else None
    return {
        "blocks": sys.getallocatedblocks(),
        "objects": before,
        "garbage": garbage,
        "types": {each.__name__: count for each, count in types().most_common(TYPES)},
        "held": held(),
        "threads": threading.active_count(),
        "malloc": c_library(),
        "engines": engines(),
    }


def watch(file: Path, collect: bool, traced: bool) -> None:
    """Write a line into the file at each SIGUSR1, from a thread of its own."""
    asked = threading.Semaphore(0)
    signal.signal(signal.SIGUSR1, lambda *_: asked.release())

    def write() -> None:
        while True:
            asked.acquire()
            line = snapshot(collect)
            if traced:
                top = tracemalloc.take_snapshot().statistics("traceback")[:40]
                line["traced"] = [
                    (each.size >> 10, each.count, [str(frame) for frame in each.traceback]) for each in top
                ]
            with file.open("a") as out:
                out.write(json.dumps(line) + "\n")

    threading.Thread(target=write, name="watch", daemon=True).start()


def main() -> None:
    """Watch, and run the command."""
    file, *arguments = sys.argv[1:]
    options = {each for each in arguments if each in ("--collect", "--traced")}
    arguments = [each for each in arguments if each not in options]
    if "--traced" in options:
        tracemalloc.start(4)
    watch(Path(file), "--collect" in options, "--traced" in options)
    sys.argv[1:] = arguments
    from streamkit_cli.main import main as command

    command()


if __name__ == "__main__":
    main()
