"""What every mistake of meaning is checked with."""

from __future__ import annotations

from pathlib import Path

from tests.plan.support import HEAD, problems_of

STORES = (
    "stores: {kv: {type: key_value}, ww: {type: window, window_size: 1m, retention: 1h}, "
    "cc: {type: key_value, config: {segment.ms: 5}}, tt: {type: key_value, ttl: 1h}}"
)


def assert_is_found(case: tuple[str, str], folder: Path) -> None:
    """Check pipelines that have one mistake; `case` has them, and a part of its message."""
    pipelines, expected = case
    found = problems_of(folder, pipelines, HEAD.replace("pipelines:", f"{STORES}\npipelines:"))
    assert len(found) == 1, found
    assert expected in found[0], f"{expected!r} is not in {found[0]!r}"
