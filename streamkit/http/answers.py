"""The shapes of answers: the parts that commands and other instances read, which are checked first.

Another service may answer at an address, and so may another version of streamkit. A shape is a type or a union of types, a list
with the shape of its elements, a dict with the shapes of the keys that are read, or a function that returns the shape of an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, cast

from streamkit.serdes.plain import Json

Shape: TypeAlias = "type | list[Shape] | dict[str, Shape] | Callable[[Json], Shape]"

_COUNT = cast("type", int | None)
_TEXT = cast("type", str | None)
_NUMBER = cast("type", int | float)
_INPUT: dict[str, Shape] = {
    "topic": str, "partition": int, "task": str, "member": _TEXT, "state": str, "committed": _COUNT, "end": _COUNT, "lag": _COUNT,
}  # fmt: skip
_DROP: dict[str, Shape] = {
    "task": _TEXT,
    "reason": str,
    "dropped": int,
    "dead_letters": int,
    "message": str,
    "at_ms": _NUMBER,
}
_TASK: Shape = {
    "id": str, "kind": str, "processed": int, "rate": _NUMBER, "inputs": [{"lag": _COUNT}], "stores": [str],
}  # fmt: skip
_PART: Shape = {
    "task": str, "rows": _COUNT, "bytes": _COUNT, "offset": _COUNT, "end": _COUNT, "committed_ms": cast("type", int | float | None),
}  # fmt: skip
_RESTORING: Shape = {
    "task": str, "store": str, "restored": int, "total": int, "rate": _NUMBER, "eta_seconds": cast("type", int | float | None),
}  # fmt: skip

INSTANCE: Shape = {
    "application": str,
    "address": str,
    "process": str,
    "state": str,
    "shown_state": str,
    "error": _TEXT,
    "own_lag": _COUNT,
    "rate": _NUMBER,
    "uptime_seconds": _NUMBER,
    "threads": [{"name": str, "state": str, "error": _TEXT, "tasks": [_TASK]}],
    "stores": [{"name": str, "parts": [_PART]}],
    "restoring": [_RESTORING],
    "inputs": [_INPUT],
    "drops": [_DROP],
}
"""`/status?scope=local`."""
_GONE: Shape = {"address": str, "state": str, "error": str}


def _instance(answer: Json) -> Shape:
    return INSTANCE if isinstance(answer, dict) and "threads" in answer else _GONE


STATUS: Shape = {
    "application": str,
    "condition": str,
    "level": str,
    "problems": [{"condition": str, "level": str, "text": str}],
    "lag": _COUNT,
    "rate": _NUMBER,
    "inputs": [{**_INPUT, "owner": _TEXT}],
    "drops": [{**_DROP, "instance": str}],
    "instances": [_instance],
}
"""`/status`."""
HISTORY: Shape = {"address": str, "points": [{"time": int}], "events": [{"time": int, "text": str}]}
"""`/history?scope=local`."""
STORES: Shape = {"stores": [{"name": str, "queries": [str]}]}
"""`/stores`."""
ROW: Shape = {"key": object, "value": object}
"""`/stores/NAME/get`."""
ROWS: Shape = {"rows": [dict], "next": _TEXT}
"""A page of rows, at the other paths of a store."""
PARTITIONS: Shape = {
    "rows": [{"cursor": str, "partition": int}], "next": _TEXT, "partitions": [int], "stale_partitions": [int],
}  # fmt: skip
"""A page of rows of one instance (`scope=local`)."""


def misfit(answer: Json, shape: Shape, path: str = "") -> str | None:
    """Return the path of the first part of an answer that is missing or has the wrong type; None if the answer fits its shape.

    >>> misfit({"rows": [{"key": 1}, {}]}, {"rows": [{"key": object}]})
    'rows.key'
    """
    if isinstance(shape, dict):
        if not isinstance(answer, dict):
            return path
        for key, inner in shape.items():
            below = f"{path}.{key}" if path else key
            missing = misfit(answer[key], inner, below) if key in answer else below
            if missing is not None:
                return missing
        return None
    if isinstance(shape, list):
        if not isinstance(answer, list):
            return path
        return next((missing for each in answer if (missing := misfit(each, shape[0], path)) is not None), None)
    if isinstance(shape, _instance.__class__):
        return misfit(answer, shape(answer), path)
    return None if isinstance(answer, cast("type", shape)) else path
