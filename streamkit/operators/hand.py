"""The record in hand while code is written: which variables hold its parts, decoded or as bytes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from streamkit.serdes.base import Serde


@dataclass
class Slot:
    """One part of a record (key, value or old value).

    `var` names the variable of the decoded value, `raw` that of its bytes under `serde`; at least one is set.
    `wire`: the variable of the bytes that `var` was decoded from, and their serde.
    `never_none`: known not to be None here. `requested` and `raw_used` tell the first
    pass whether anyone asked for the decoded value, or for the bytes.
    """

    var: str | None = None
    raw: str | None = None
    serde: Serde | None = None
    never_none: bool = False
    wire: tuple[str, Serde] | None = None
    requested: list[bool] = field(default_factory=lambda: [False])
    raw_used: list[bool] = field(default_factory=lambda: [False])

    def copy(self) -> Slot:
        """Return a copy that learns for itself; the note of requests is shared."""
        return replace(self)

    def test_var(self) -> str:
        """Return a variable that is None exactly when this part is absent."""
        name = self.raw or self.var
        assert name is not None
        return name


@dataclass
class Hand:
    """A record: key, value, timestamp and context; tables add the old value and whether the value is the latest."""

    key: Slot
    value: Slot
    time: str
    context: str
    old: Slot | None = None
    latest: str = "True"

    def copy(self) -> Hand:
        """Return a copy for a branch of the code, where it may learn without the others."""
        old = self.old.copy() if self.old is not None else None
        return replace(self, key=self.key.copy(), value=self.value.copy(), old=old)

    @property
    def is_table(self) -> bool:
        """Whether this is a table's change."""
        return self.old is not None


def variable(name: str, **known: Any) -> Slot:
    """Return a slot for a decoded value held by a variable."""
    return Slot(var=name, **known)
