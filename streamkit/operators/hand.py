"""The current record while code is written: which variables hold its parts, decoded or as bytes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from streamkit.code import TRUE, Code, is_none, is_not_none, symbol
from streamkit.serdes.base import Serde


@dataclass
class Slot:
    """One part of a record (key, value or old value).

    `var` names the variable of the decoded value, `raw` that of its bytes under `serde`; at least one is set.
    `wire`: the variable of the bytes that `var` was decoded from, and their serde.
    `never_none`: known not to be None here. `requested` and `raw_used` tell the first
    pass whether anyone asked for the decoded value, or for the bytes. `shown`: what a failure reports where `var` is not set.
    """

    var: Code | None = None
    raw: Code | None = None
    serde: Serde | None = None
    never_none: bool = False
    wire: tuple[Code, Serde] | None = None
    requested: list[bool] = field(default_factory=lambda: [False])
    raw_used: list[bool] = field(default_factory=lambda: [False])
    shown: Code | None = None

    def copy(self) -> Slot:
        """Return a copy that learns for itself; the note of requests is shared."""
        return replace(self)

    def is_none(self) -> Code:
        """Return the test whether this part is absent; it needs no decoding."""
        return is_none(self._either())

    def is_not_none(self) -> Code:
        """Return the test whether this part is there; it needs no decoding."""
        return is_not_none(self._either())

    def _either(self) -> Code:
        variable = self.raw or self.var
        assert variable is not None
        return variable


@dataclass
class Hand:
    """A record: key, value, timestamp and context; tables add the old value and whether the value is the latest."""

    key: Slot
    value: Slot
    time: Code
    context: Code
    old: Slot | None = None
    latest: Code = TRUE

    def copy(self) -> Hand:
        """Return a copy for a branch of the code, where it may learn without the others."""
        old = self.old.copy() if self.old is not None else None
        return replace(self, key=self.key.copy(), value=self.value.copy(), old=old)

    @property
    def is_table(self) -> bool:
        """Whether this is a table's change."""
        return self.old is not None


def record_of_parameters(table: bool = False) -> Hand:
    """Return the record that the parameters of a function hold: (k, v, t, c), for tables (k, v, old, t, c, latest)."""
    hand = Hand(Slot(symbol("k")), Slot(symbol("v")), symbol("t"), symbol("c"))
    return replace(hand, old=Slot(symbol("old")), latest=symbol("latest")) if table else hand
