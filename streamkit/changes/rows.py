"""Compares the rows of a changelog between two versions."""

from __future__ import annotations

from streamkit.changes.finding import Verdict
from streamkit.changes.forms.form import RowForm
from streamkit.changes.forms.serde_forms import Reads, reads
from streamkit.state.definitions import KINDS

CONVERTIBLE = ("key_value", "versioned", "window", "session", "join_window")
"""Kinds of stores whose values are those of the serde and nothing else, so that a migration can give them other serdes."""


def has_same_layout(old: RowForm, new: RowForm) -> bool:
    """Return whether rows of one form are rows of the other one, but for their serdes."""
    same = old.kind == new.kind and old.window_size == new.window_size
    return same or (old.kind, new.kind) == ("key_value", "versioned")


def compare_rows(old: RowForm, new: RowForm) -> list[tuple[Verdict, str]]:
    """Return the differences between rows, each with a verdict: incompatible, unknown or restore."""
    if old.kind != new.kind:
        if (old.kind, new.kind) == ("key_value", "versioned"):
            return [
                *_sides(old, new),
                (Verdict.RESTORE, "it becomes versioned: its rows are the versions that its changelog still has"),
            ]
        return [(Verdict.INCOMPATIBLE, f"it held {_shown(old.kind)}, holds {_shown(new.kind)}")]
    found = _sides(old, new)
    if None not in (old.window_size, new.window_size) and old.window_size != new.window_size:
        text = (
            f"its windows were of {old.window_size} ms, are of {new.window_size} ms: rows hold only the start of their "
            "window, so that old windows would be read with the new size and counted on"
        )
        found.append((Verdict.INCOMPATIBLE, text))
    return found


def _shown(kind: str) -> str:
    # The marks of a later version may have a kind that this one does not have.
    return KINDS[kind].rows if kind in KINDS else kind


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
