"""Rows as aligned text, the same on a terminal and in a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta


def time_cell(time_ms: int | None) -> str | None:
    """Return a time as text, in UTC.

    >>> time_cell(1_700_000_000_123)
    '2023-11-14 22:13:20Z'
    """
    return None if time_ms is None else f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%d %H:%M:%SZ}"


def count(number: int | None) -> str:
    """Return a number with separators; ? if it is unknown."""
    return "?" if number is None else f"{number:,}"


def eta(seconds: float | None) -> str:
    """Return the time that is left; ? if it is unknown."""
    return "?" if seconds is None else f"{timedelta(seconds=round(seconds))} left"


def is_coloured() -> bool:
    """Return whether stdout is a terminal that takes colours (NO_COLOR: none)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def red(text: str, colour: bool) -> str:
    """Return a text in red, line by line, or unchanged."""
    return "\n".join(f"\x1b[31m{line}\x1b[0m" for line in text.split("\n")) if colour else text


def table(head: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[int] = ()) -> str:
    """Return rows below their head, in columns; `numbers` are the columns that are aligned to the right.

    >>> print(table(("TOPIC", "N"), [("a", 12), ("bcd", None)], numbers=[1]))
    TOPIC   N
    a      12
    bcd     -
    """
    lines = [list(head), *(["-" if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = set(numbers)
    return "\n".join(
        "  ".join(
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
