"""Whether a version reads the rows that another one has left in a changelog."""

from __future__ import annotations

from streamkit.changes.finding import Verdict
from streamkit.changes.form import RowForm
from streamkit.changes.serdes import Reads, reads

_WORDS = {
    "key_value": "rows by key",
    "versioned": "versions by key",
    "window": "windows",
    "session": "sessions",
    "join_window": "the records of one side of a join",
    "outer_join": "the unmatched records of a join",
    "suppress": "updates that are held back",
    "join_grace": "records that wait for a table",
    "subscription": "subscriptions of a foreign-key join",
}


def compare_rows(old: RowForm, new: RowForm) -> list[tuple[Verdict, str]]:
    """Return what differs in the reading of rows, with a verdict each: incompatible, unknown or restore."""
    if old.kind != new.kind:
        if (old.kind, new.kind) == ("key_value", "versioned"):
            return [
                *_sides(old, new),
                (Verdict.RESTORE, "it becomes versioned: its rows are the versions that its changelog still has"),
            ]
        return [
            (Verdict.INCOMPATIBLE, f"it held {_WORDS.get(old.kind, old.kind)}, holds {_WORDS.get(new.kind, new.kind)}")
        ]
    found = _sides(old, new)
    if None not in (old.window_size, new.window_size) and old.window_size != new.window_size:
        text = (
            f"its windows were of {old.window_size} ms, are of {new.window_size} ms: rows hold only the start of their "
            "window, so that old windows would be read with the new size and counted on"
        )
        found.append((Verdict.INCOMPATIBLE, text))
    return found


def _sides(old: RowForm, new: RowForm) -> list[tuple[Verdict, str]]:
    found = []
    for side, one, other in (
        ("key", old.key, new.key),
        ("value", old.value, new.value),
        ("right value", old.right, new.right),
    ):
        answer, why = reads(one, other)
        if answer is Reads.NO:
            found.append((Verdict.INCOMPATIBLE, f"the {side} {why}"))
        elif answer is Reads.UNKNOWN:
            found.append((Verdict.UNKNOWN, f"the {side} {why}"))
    return found
