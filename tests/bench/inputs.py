"""The inputs of the benchmark, each made from a seed and written once.

Now and then stands a marker, a record whose key is `@000000`: where it arrives tells how far a program is.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Iterator

MARK, MARKS = "@", 60
START_MS = 1_700_000_000_000
KEYS, WORDS, WORDS_A_LINE = 10_000, 5_000, 5
WINDOW_KEYS, LATE_SHARE, LATEST_MS = 1_000, 0.03, 120_000
TABLE_KEYS = 100_000

Record = tuple[str, str, int]
"""(key, value, timestamp in ms)."""
Make = Callable[[int], Iterator[Record]]


def mark(number: int) -> str:
    """The key of the marker that stands after so many records."""
    return f"{MARK}{number:07d}"


def _marked(count: int, each: Callable[[int], Record], value: str | None = None) -> Iterator[Record]:
    """Records by number, and a marker as every sixtieth part; the last record is one."""
    step = count // MARKS
    for number in range(1, count + 1):
        if number % step == 0:
            yield mark(number), value or mark(number), START_MS + number
        else:
            yield each(number)


def _vocabulary(rng: random.Random) -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return ["".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(WORDS)]


def lines(count: int) -> Iterator[Record]:
    """Lines of five words by 10,000 keys."""
    rng = random.Random(1)
    words = _vocabulary(rng)

    def line(number: int) -> Record:
        return f"key-{rng.randrange(KEYS)}", " ".join(rng.choices(words, k=WORDS_A_LINE)), START_MS + number

    return _marked(count, line)


def requests(count: int) -> Iterator[Record]:
    """JSON objects of five fields."""
    rng = random.Random(2)

    def request(number: int) -> Record:
        user, took = rng.randrange(KEYS), rng.randrange(1_500)
        body = {
            "user": f"user-{user}",
            "path": f"/page/{took % 97}",
            "took": took,
            "ok": took % 3 > 0,
            "tags": ["a", "b"],
        }
        return f"user-{user}", json.dumps(body, separators=(",", ":")), START_MS + number

    return _marked(count, request, '{"took":9999}')


def events(count: int) -> Iterator[Record]:
    """One event a millisecond by 1,000 keys, some of them up to two minutes late."""
    rng = random.Random(3)

    def event(number: int) -> Record:
        late = rng.randrange(LATEST_MS) if rng.random() < LATE_SHARE else 0
        return f"key-{rng.randrange(WINDOW_KEYS)}", "event", START_MS + number - late

    return _marked(count, event)


def users(count: int) -> Iterator[Record]:
    """A table of 100,000 keys, older than every other record."""
    return ((f"user-{number}", f"name-{number}", START_MS - TABLE_KEYS + number) for number in range(TABLE_KEYS))


def visits(count: int) -> Iterator[Record]:
    """Records whose keys are those of the table."""
    rng = random.Random(4)
    return _marked(count, lambda number: (f"user-{rng.randrange(TABLE_KEYS)}", f"visit-{number}", START_MS + number))


def left(count: int) -> Iterator[Record]:
    """One side of a join: a record a millisecond by 10,000 keys."""
    rng = random.Random(5)
    return _marked(count, lambda number: (f"key-{rng.randrange(KEYS)}", f"left-{number}", START_MS + number))


def right(count: int) -> Iterator[Record]:
    """The other side of the join."""
    rng = random.Random(6)
    return ((f"key-{rng.randrange(KEYS)}", f"right-{number}", START_MS + number) for number in range(1, count + 1))


def distinct(count: int) -> Iterator[Record]:
    """A key of its own for every record, in random order."""
    numbers = list(range(count + 1))
    random.Random(7).shuffle(numbers)
    return _marked(count, lambda number: (f"key-{numbers[number]}", "once", START_MS + number))


_ONE = struct.pack(">q", 1)
_WINDOW_MS = 60_000
# None of these may expire while they are restored.
_WINDOWS = 2


def changelog(store: str, count: int) -> Iterator[tuple[bytes, bytes, int]]:
    """The records of a changelog: a count by key, or by key and window."""
    numbers = list(range(count))
    random.Random(7).shuffle(numbers)
    for place, number in enumerate(numbers):
        key = b"key-%d" % number
        if store == "tumbling":
            key += struct.pack(">qi", START_MS - START_MS % _WINDOW_MS + number % _WINDOWS * _WINDOW_MS, 0)
        yield key, _ONE, START_MS + place


MAKE: dict[str, Make] = {
    each.__name__: each for each in (lines, requests, events, users, visits, left, right, distinct)
}
