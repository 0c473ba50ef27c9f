"""The current record while code is written: the variables of its parts, decoded or as bytes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from streamkit.code import TRUE, Code, is_none, is_not_none, symbol
from streamkit.serdes.serde import Serde


@dataclass
class Slot:
    """One part of a record (key, value or old value).

    `var` is the variable of the decoded value, `raw` that of its bytes under `serde`; at least one is set.
    `source_bytes`: the variable of the bytes that `var` was decoded from, and their serde.
    `unchecked`: whether `raw` has the bytes of a source as they came, which may not be those that Java writes again.
    `never_none`: whether the part is known not to be None here. `var_used` and `raw_used` note in the first pass
    whether any node uses the decoded value, or the bytes. `shown`: what a failure reports where `var` is not set.
    """

    var: Code | None = None
    raw: Code | None = None
    serde: Serde | None = None
    never_none: bool = False
    source_bytes: tuple[Code, Serde] | None = None
    unchecked: bool = False
    var_used: list[bool] = field(default_factory=lambda: [False])
    raw_used: list[bool] = field(default_factory=lambda: [False])
    shown: Code | None = None

    def copy(self) -> Slot:
        """Return a copy with variables of its own; the notes of the first pass are shared."""
        return replace(self)

    def is_none(self) -> Code:
        """Return the test that this part is absent; it needs no decoding."""
        return is_none(self._variable())

    def is_not_none(self) -> Code:
        """Return the test that this part is present; it needs no decoding."""
        return is_not_none(self._variable())

    def _variable(self) -> Code:
        found = self.raw or self.var
        assert found is not None
        return found


@dataclass
class RecordVariables:
    """The variables of a record: key, value, timestamp and context.

    For tables also the old value, and whether the value is the latest.
    """

    key: Slot
    value: Slot
    time: Code
    context: Code
    old: Slot | None = None
    latest: Code = TRUE

    def copy(self) -> RecordVariables:
        """Return a copy for one branch of the code, whose variables the other branches do not have."""
        old = self.old.copy() if self.old is not None else None
        return replace(self, key=self.key.copy(), value=self.value.copy(), old=old)

    @property
    def is_table(self) -> bool:
        """Whether this is a table's change."""
        return self.old is not None


def record_of_parameters(table: bool = False) -> RecordVariables:
    """Return the record of a function's parameters: (k, v, t, c), for tables (k, v, old, t, c, latest)."""
    record = RecordVariables(Slot(symbol("k")), Slot(symbol("v")), symbol("t"), symbol("c"))
    return replace(record, old=Slot(symbol("old")), latest=symbol("latest")) if table else record
