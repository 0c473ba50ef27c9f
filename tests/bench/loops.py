"""Plain Python loops over bytes that mean what the topologies mean: what the engine is measured against.

Each takes batches in order and a list for (topic, key, value) rows; state is in dictionaries, and nothing is logged.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from typing import Any

import orjson

from streamkit.record import RecordBatch

Batches = list[RecordBatch]
WINDOW_MS, GRACE_MS, WITHIN_MS, GAP_MS = 60_000, 30_000, 10_000, 1_000


def stateless(batches: Batches, out: list[Any]) -> None:
    for batch in batches:
        for key, data in zip(batch.keys, batch.values, strict=True):
            value = data.decode()
            if value[0] < "n":
                out.append(("out", key, value.upper().encode()))


def count(batches: Batches, out: list[Any]) -> None:
    counts: dict[str, int] = {}
    for batch in batches:
        for data in batch.keys:
            key = data.decode()
            counts[key] = counts.get(key, 0) + 1
            if key[0] == "@":
                out.append(("progress", data, data))
    out.extend(("out", key.encode(), value.to_bytes(8, "big")) for key, value in counts.items())


def add_field(batches: Batches, out: list[Any]) -> None:
    for batch in batches:
        for key, data in zip(batch.keys, batch.values, strict=True):
            value = orjson.loads(data)
            if value["took"] >= 200:
                out.append(("out", key, orjson.dumps({**value, "slow": value["took"] > 1_000})))


def tumbling(batches: Batches, out: list[Any]) -> None:
    counts: dict[tuple[str, int], int] = {}
    latest = 0
    for batch in batches:
        for data, at in zip(batch.keys, batch.timestamps, strict=True):
            key, latest = data.decode(), max(latest, at)
            start = at // WINDOW_MS * WINDOW_MS
            if start + WINDOW_MS > latest - GRACE_MS:
                counts[key, start] = counts.get((key, start), 0) + 1
    out.extend(
        ("out", key.encode() + start.to_bytes(8, "big"), value.to_bytes(8, "big"))
        for (key, start), value in counts.items()
    )


def sliding(batches: Batches, out: list[Any]) -> None:
    """A record's window is what came in the time before it; late ones are dropped for simplicity."""
    times: dict[str, list[int]] = defaultdict(list)
    latest = 0
    for batch in batches:
        for data, at in zip(batch.keys, batch.timestamps, strict=True):
            key, latest = data.decode(), max(latest, at)
            if at < latest - GRACE_MS:
                continue
            mine = times[key]
            mine.insert(bisect_right(mine, at), at)
            found = bisect_right(mine, at) - bisect_left(mine, at - GAP_MS)
            out.append(("out", data + at.to_bytes(8, "big"), found.to_bytes(8, "big")))


def session(batches: Batches, out: list[Any]) -> None:
    sessions: dict[str, list[list[int]]] = defaultdict(list)
    latest = 0
    for batch in batches:
        for data, at in zip(batch.keys, batch.timestamps, strict=True):
            key, latest = data.decode(), max(latest, at)
            if at < latest - GRACE_MS - GAP_MS:
                continue
            mine, merged = sessions[key], [at, at, 1]
            for each in [each for each in mine if each[0] - GAP_MS <= at <= each[1] + GAP_MS]:
                merged = [min(merged[0], each[0]), max(merged[1], each[1]), merged[2] + each[2]]
                mine.remove(each)
            mine.append(merged)
    for key, mine in sessions.items():
        for start, end, number in mine:
            out.append(
                ("out", key.encode() + end.to_bytes(8, "big") + start.to_bytes(8, "big"), number.to_bytes(8, "big"))
            )


def table(batches: Batches, out: list[Any]) -> None:
    rows: dict[str, str] = {}
    for batch in batches:
        for key, data in zip(batch.keys, batch.values, strict=True):
            if batch.topic == "two":
                rows[key.decode()] = data.decode()
            elif (right := rows.get(key.decode())) is not None:
                out.append(("out", key, f"{data.decode()} {right}".encode()))


def streams(batches: Batches, out: list[Any]) -> None:
    sides: dict[str, dict[str, tuple[list[int], list[str]]]] = {"one": {}, "two": {}}
    for topic, data, value, at in sorted(
        (
            (batch.topic, key, value, at)
            for batch in batches
            for key, value, at in zip(batch.keys, batch.values, batch.timestamps, strict=True)
        ),
        key=lambda record: (record[3], record[0]),
    ):
        key, text = data.decode(), value.decode()
        times, values = sides[topic].setdefault(key, ([], []))
        times.append(at)
        values.append(text)
        others, found = sides["two" if topic == "one" else "one"].get(key, ([], []))
        for other in found[bisect_left(others, at - WITHIN_MS) : bisect_right(others, at + WITHIN_MS)]:
            out.append(("out", data, (f"{text} {other}" if topic == "one" else f"{other} {text}").encode()))
