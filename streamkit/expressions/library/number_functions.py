"""Rounding and writing numbers."""

from __future__ import annotations

from decimal import (
    ROUND_CEILING,
    ROUND_DOWN,
    ROUND_FLOOR,
    ROUND_HALF_DOWN,
    ROUND_HALF_EVEN,
    ROUND_HALF_UP,
    ROUND_UP,
    Context,
    Decimal,
)

from streamkit.expressions.analysis.types import NUMBER, TEXT
from streamkit.expressions.library.function_entry import LibraryFunction, one_of_words
from streamkit.record import Value

_MODES = {
    "half_even": ROUND_HALF_EVEN,
    "half_up": ROUND_HALF_UP,
    "half_down": ROUND_HALF_DOWN,
    "up": ROUND_UP,
    "down": ROUND_DOWN,
    "ceiling": ROUND_CEILING,
    "floor": ROUND_FLOOR,
}
_MOST = 100
"""Decimals at most."""
# Integers of 4,096 bits have 1,234 digits.
_CONTEXT = Context(prec=2000)


def _rounded(number: Value, decimals: Value, mode: Value, name: str) -> Decimal:
    _DECIMALS(decimals)
    _MODE(mode)
    if type(number) not in (int, float):
        raise TypeError(f"{name}() takes a number, not {type(number).__name__}")
    exact = Decimal(repr(number))
    if not exact.is_finite():
        raise ValueError(f"{name}() takes finite numbers, not {number}")
    return exact.quantize(Decimal(1).scaleb(-decimals), _MODES[mode], _CONTEXT)


def round_to(number: Value, decimals: Value = 0, mode: Value = "half_even") -> int | float:
    """Return a number rounded to so many decimals by a mode; a whole number stays one."""
    found = _rounded(number, decimals, mode, "round_to")
    return int(found) if type(number) is int else float(found)


def format_number(number: Value, decimals: Value = 0, group: Value = "", mode: Value = "half_even") -> str:
    """Return a number as text with so many decimals and `group` between thousands."""
    _GROUP(group)
    if decimals.__class__ is int and decimals < 0:
        raise ValueError("format_number() takes 0 or more decimals")
    shown = f"{_rounded(number, decimals, mode, 'format_number'):,f}"
    return shown.replace(",", group)


def _check_decimals(value: Value) -> None:
    if type(value) is not int or not -_MOST <= value <= _MOST:
        raise ValueError(f"decimals are a whole number from -{_MOST} to {_MOST}")


def _check_group(value: Value) -> None:
    if not isinstance(value, str) or len(value) > 1:
        raise ValueError("what stands between thousands is one character, or empty text")


_DECIMALS, _GROUP, _MODE = _check_decimals, _check_group, one_of_words(*_MODES)

ENTRIES = (
    LibraryFunction(
        "round_to",
        ("number", "decimals", "mode"),
        round_to,
        "The number rounded to so many decimals, 0 where absent; to tens, hundreds, … with negative ones. The mode is "
        "`half_even` (as `round`), `half_up`, `half_down`, `up`, `down`, `ceiling` or `floor`. It works on the decimal digits "
        "that a number shows, so that 2.675 rounds half up to 2.68. Whole numbers stay whole.",
        (
            ("round_to(2.675, 2, 'half_up')", "2.68"),
            ("round_to(1250, -2)", "1200"),
            ("round_to(-1.5, 0, 'down')", "-1.0"),
        ),
        optional=2,
        kind="number",
        type=NUMBER,
        work=4.0,
        checks={1: _DECIMALS, 2: _MODE},
    ),
    LibraryFunction(
        "format_number",
        ("number", "decimals", "group", "mode"),
        format_number,
        "The number as text with so many decimals, `group` between thousands, rounded by `mode`.",
        (("format_number(1234567.891, 2, ',')", "'1,234,567.89'"), ("format_number(5, 2)", "'5.00'")),
        optional=3,
        kind="str",
        type=TEXT,
        # The digits of the largest integer with a mark between thousands, and the decimals.
        constant=2_000.0,
        work=4.0,
        checks={1: _DECIMALS, 2: _GROUP, 3: _MODE},
    ),
)
