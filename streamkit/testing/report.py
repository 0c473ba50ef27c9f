"""What is not as expected, as lines for a person: what was expected, what came, and where they differ."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unicodedata import normalize

from streamkit.testing.compare import Pair, differences, is_missing
from streamkit.testing.flow import flow
from streamkit.testing.model import Expectation
from streamkit.testing.run import Failure

CONTEXT = 2
"""Records that match, shown before and after those that don't."""
LONGEST = 300
NEAR = 10
"""Characters shown before and after the first that differs."""
SAME, EXPECTED, CAME, DETAIL = "same", "expected", "came", "detail"


@dataclass(frozen=True)
class Line:
    """A line below a failure's head; kind: SAME, EXPECTED, CAME or DETAIL."""

    kind: str
    text: str


def head(failure: Failure) -> str:
    """Return the line `FILE:LINE:COL: what is wrong`."""
    return f"{failure.position}: {failure.what}"


def body(failure: Failure) -> Iterator[Line]:
    """Yield the lines below the head."""
    if failure.expectation is not None:
        yield from _records(failure.expectation, failure.pairs)
    elif failure.described is not None:
        wanted, came = failure.described.text.strip().splitlines(), failure.actual.strip().splitlines()
        for line in list(difflib.unified_diff(wanted, came, lineterm="", n=CONTEXT))[2:]:
            yield Line({"-": EXPECTED, "+": CAME}.get(line[:1], SAME), line)
    elif failure.plain is not None and isinstance(failure.plain.value, str):
        yield Line(EXPECTED, f"- {failure.plain.value}")
        if failure.actual is not None:
            yield Line(CAME, f"+ {failure.actual}")
    elif isinstance(failure.actual, dict):
        yield Line(CAME, f"+ {_short(_fields(failure.actual))}")


def text(failure: Failure) -> str:
    """Return a failure as plain text."""
    return "\n".join([head(failure), *(line.text for line in body(failure))])


def _records(expectation: Expectation, pairs: tuple[Pair, ...]) -> Iterator[Line]:
    wrong = [number for number, pair in enumerate(pairs) if not pair.equal]
    shown = {near for number in wrong for near in range(number - CONTEXT, number + CONTEXT + 1)}
    hidden = 0
    for number, pair in enumerate(pairs):
        if number not in shown:
            hidden += 1
            continue
        if hidden:
            yield Line(SAME, f"  … {hidden} as expected")
            hidden = 0
        yield from _pair(expectation, pair)
    if hidden:
        yield Line(SAME, f"  … {hidden} as expected")


def _pair(expectation: Expectation, pair: Pair) -> Iterator[Line]:
    if pair.equal and pair.expected is not None:
        yield Line(SAME, f"  {_short(pair.expected.fields)}")
        return
    if pair.expected is not None:
        yield Line(EXPECTED, f"- {_short(pair.expected.fields)}   (line {pair.expected.position.line})")
    if pair.actual is not None:
        wanted = pair.expected.fields if pair.expected is not None else {}
        yield Line(CAME, f"+ {_short(_fields(pair.actual, wanted))}")
    if pair.expected is not None and pair.actual is not None:
        for path, wanted, came in differences(expectation, pair.expected, pair.actual):
            yield Line(DETAIL, f"    {path}: {_change(wanted, came)}")


def _change(wanted: Any, came: Any) -> str:
    if is_missing(came):
        return f"expected {_short(wanted)}, is not there"
    if is_missing(wanted):
        return f"is there, not expected: {_short(came)}"
    shown, other = _short(wanted), _short(came)
    texts = isinstance(wanted, str) and isinstance(came, str)
    if texts and (shown == other or normalize("NFKC", wanted) == normalize("NFKC", came)):
        return _difference_in_text(wanted, came)
    return f"expected {shown}, came {other}"


def _difference_in_text(wanted: str, came: str) -> str:
    """Show where two texts differ that look the same: letters in another normal form, or beyond what is shown."""
    both = zip(wanted, came, strict=False)
    first = next((at for at, (one, other) in enumerate(both) if one != other), min(len(wanted), len(came)))
    start = max(0, first - NEAR)
    shown, other = (ascii(text[start : first + NEAR]) for text in (wanted, came))
    return f"expected {shown}, came {other}, at character {first + 1}"


def _fields(record: Any, wanted: Any = ()) -> dict[str, Any]:
    """Return what is shown of a record: key and value, and what else the expectation names."""
    names = [name for name in ("key", "value", "timestamp", "headers") if name in ("key", "value") or name in wanted]
    return {name: record[name] for name in names if record.get(name) is not None}


def _short(value: Any) -> str:
    shown = flow(value)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"
