"""Kinds of flows; types of keys and values, their serdes, and the constants that stand for absent ones."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fuzz.forms import (
    ANY,
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INTEGER,
    JSON,
    LIST,
    LONG,
    SHORT,
    STRING,
    UUID,
    VOID,
)

STREAM, TABLE, GLOBAL, GROUPED, GROUPED_TABLE = "stream", "table", "global", "grouped", "grouped_table"

OTHERS = (DOUBLE, ANY, INTEGER, BOOLEAN, SHORT, FLOAT, UUID, BYTES)
SCALARS = (STRING,) * 4 + (LONG,) * 4 + OTHERS
"""Types of keys, the frequent ones more than once."""
VALUES = (STRING,) * 4 + (LONG,) * 5 + (JSON,) * 3 + OTHERS

FAMILY = {SHORT: INTEGER, FLOAT: DOUBLE, UUID: STRING, BYTES: STRING, VOID: LONG}
"""What a present value of a type is to expressions, where that has another name: bytes are decoded first."""
IDS = tuple(f"12345678-9abc-4ef0-8000-00000000000{number}" for number in range(4))

EMPTY = {
    LONG: "0",
    INTEGER: "0",
    STRING: '"z"',
    JSON: '{"n": 1, "s": "j"}',
    LIST: "[]",
    DOUBLE: "0.5",
    BOOLEAN: "False",
    ANY: '"none"',
    SHORT: "0",
    FLOAT: "0.5",
    UUID: f'"{IDS[3]}"',
    BYTES: '"z".encode()',
    VOID: "7",
}
ANYTHING = (
    "True",
    "1",
    "1.0",
    "0",
    "-0.0",
    "0.0",
    "False",
    '"1"',
    '{"a": 1, "b": 2}',
    '{"b": 2, "a": 1}',
    "[1]",
    "[True]",
    '""',
)
FRACTIONS = ("0.0", "-0.0", "1.0", "1.5", "-2.0")


@dataclass(frozen=True)
class Windowed:
    """The type of a windowed key; `size` is None for sessions."""

    inner: str
    size: int | None


Type = str | Windowed


def serde(kind: Type):
    """The serde of a type as the file writes it."""
    if isinstance(kind, Windowed):
        if kind.size is None:
            return {"session_windowed": serde(kind.inner)}
        return {"windowed": serde(kind.inner), "size": f"{kind.size}ms"}
    return JSON if kind in (LIST, ANY) else kind


def windowed(kind: Type) -> bool:
    return isinstance(kind, Windowed)
