"""Word count on two partitions and two threads, its input, and what a plain count of it gives."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.broker.support import App, Log, Raw, application

LINES = 100_000
WORDS_A_LINE = 4
TEXT = """\
defaults: {key: string, value: json}
topics:
  lines: {topic: "{a}lines", value: string, partitions: 2}
  counts: {topic: "{a}counts", key: string, value: long, partitions: 2}
pipelines:
  words:
    stream: lines
    steps:
      - flat_map_values: {values: value.lower().split(), value_serde: string}
      - group_by: {key: value, key_serde: string}
      - count: counts
      - to_stream
    to: counts
"""


def word_count(folder: Path, log: Log, **config: object) -> App:
    """A word count whose topics exist."""
    app = application(folder, log, "wc", TEXT, num_stream_threads=2, **config)
    log.create(app.topic("lines"), 2)
    log.create(app.topic("counts"), 2)
    return app


@cache
def lines(count: int = LINES, seed: int = 1) -> tuple[str, ...]:
    draw = random.Random(seed)
    words = [f"w{draw.getrandbits(20):x}" for _ in range(3000)]
    return tuple(" ".join(draw.choices(words, k=WORDS_A_LINE)) for _ in range(count))


def feed(app: App, texts: Iterable[str], first: int = 0) -> None:
    """Write lines, of which the first one has the number `first`."""
    topic = app.topic("lines")
    app.log.write((topic, None, text.encode(), 1000 + n, None, n % 2) for n, text in enumerate(texts, first))


@cache
def truth_of(count: int = LINES, seed: int = 1) -> Counter[str]:
    return truth(lines(count, seed))


def truth(texts: Iterable[str]) -> Counter[str]:
    return Counter(word for text in texts for word in text.split())


def latest(records: Iterable[Raw]) -> dict[str, int]:
    """The last count of each word."""
    found: dict[str, int] = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            found.pop(record.key.decode(), None)
        else:
            (found[record.key.decode()],) = struct.unpack(">q", record.value)
    return found
