"""Draws input records: few keys, times out of order, nulls, bursts and equal times."""

from __future__ import annotations

import base64
import json

from tests.fuzz.forms import ANY, BOOLEAN, BYTES, DOUBLE, FLOAT, INTEGER, JSON, LONG, SHORT, STRING, UUID, VOID
from tests.fuzz.kinds import (
    ANYTHING,
    FRACTIONS,
    IDS,
)

UNDECODABLE = {
    **dict.fromkeys((LONG, INTEGER, SHORT, DOUBLE, FLOAT), b"abc"),
    BOOLEAN: b"\x07",
    JSON: b'{"n": 1',
    ANY: b"[1,",
    UUID: b"no-uuid",
    VOID: b"0",
    STRING: b"a\xff\xfeb",
}
"""Bytes that the serde of a type refuses; text is never refused, what is malformed there is replaced."""
WORDS = ["a", "b", "c", "ab", "bc", "abc", "Kite", "x y", ""]


def draw(draft) -> list[dict]:
    """The input lines for every topic that the drawn pipelines read and do not write."""
    rng = draft.rng
    topics = [name for name, role in draft.roles.items() if role not in ("out", "through")]
    lines: list[dict] = []
    now = rng.choice([0, 0, 1_000_000, 1_704_067_200_000])
    pace = rng.choice([0, 1, 2, 5])
    for _ in range(rng.choice([8, 20, 30, 40, 60])):
        if rng.random() < 0.03:
            lines.append({"advance_wall_clock": rng.choice(["5s", "1ms", "40s"])})
            continue
        now += rng.choice([0, 0, 1, draft.scale * pace, draft.scale * pace, rng.randint(0, draft.scale * 3 + 1)])
        if rng.random() < 0.04:
            now += draft.scale * rng.choice([10, 30, 100])
        time = now
        if rng.random() < 0.2:
            time = max(0, now - rng.randint(0, draft.scale * rng.choice([1, 5, 15])))
        lines.append(record(draft, rng.choice(topics), time))
    return lines


def record(draft, topic: str, time: int) -> dict:
    rng = draft.rng
    key, value = draft.types[topic]
    table = draft.roles[topic] in ("table", "global")
    line: dict = {
        "topic": draft.topics[topic].get("topic", topic),
        "key": None if rng.random() < 0.04 else drawn_key(rng, key),
        "value": None if rng.random() < (0.15 if table else 0.05) else drawn_value(rng, value),
    }
    if rng.random() > 0.01:
        line["timestamp"] = time
    side, kind = rng.choice([("key", key), ("value", value)])
    if draft.undecodable and kind in UNDECODABLE and rng.random() < 0.15:
        line["raw"] = {side: UNDECODABLE[kind].hex()}
    if rng.random() < 0.08:
        line["headers"] = [["h", rng.choice(["1", "two"])]] * rng.choice([1, 1, 2])
    return line


def drawn_key(rng, kind: str):
    if kind == STRING:
        return rng.choice(["a", "b", "c", "d"][: rng.choice([2, 3, 4])])
    if kind in (LONG, INTEGER, SHORT):
        return rng.randint(0, 3)
    return drawn_value(rng, kind)


def drawn_value(rng, kind: str):
    if kind in (LONG, INTEGER, SHORT):
        return rng.randint(-3, 12)
    if kind == BOOLEAN:
        return rng.random() < 0.5
    if kind in (DOUBLE, FLOAT):
        return float(rng.choice(FRACTIONS))
    if kind == UUID:
        return rng.choice(IDS)
    if kind == BYTES:
        return {"base64": base64.b64encode(rng.choice(WORDS).encode()).decode()}
    if kind == VOID:
        return None
    if kind == ANY:
        return json.loads(rng.choice(ANYTHING).lower())
    word = rng.choice(WORDS)
    return {"n": rng.randint(0, 9), "s": word[:2]} if kind == JSON else word
