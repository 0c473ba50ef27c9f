"""The visits of nodes by a record and by all that it causes, as a tree."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamkit.metrics import DropReason
from streamkit.operators.core.operator import ProcessorNode
from streamkit.plan.model import PlanNode, SinkNode
from streamkit.serdes.plain import Json

BATCH, COMMIT, TIMER, EXPIRY = "batch", "commit", "timer", "expiry"
"""The causes of a forwarding outside of a visit: a step that works on batches, an entry that leaves a cache, a timer, a row
whose `ttl` ended."""


@dataclass(frozen=True)
class Passed:
    """A record between two nodes, in JSON form; `old`: the old value of a table's row; `timestamp` in ms."""

    key: Json
    value: Json
    old: Json
    timestamp: int


@dataclass(frozen=True)
class RowChange:
    """A row of a store before and after a visit; None: absent. `same`: it was only read."""

    store: str
    key: Json
    before: Json
    after: Json

    @property
    def same(self) -> bool:
        """Whether the visit left the row as it was."""
        return bool(self.before == self.after)


@dataclass
class Visit:
    """What a node makes of a record. node None: a record that does not decode; record None: no record reached it."""

    node: PlanNode | None
    record: Passed | None
    cause: str | None = None
    """BATCH, COMMIT, TIMER or EXPIRY where the node forwards on its own."""
    out: list[Passed] = field(default_factory=list)
    rows: list[RowChange] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """Stores with too many rows to compare."""
    dropped: str | None = None
    """The reason for which the node itself counted a record as dropped (metrics.DropReason)."""
    failure: str | None = None
    dead_letter: str | None = None
    """The topic that the failed record was written to."""
    cached: bool = False
    """Whether a row changed whose store has a cache, which forwards it at the commit."""
    visits: list[Visit] = field(default_factory=list)

    @property
    def result(self) -> str:
        """`failed`, `dropped`, `written`, `forwarded`, `held` (for the end of the batch), `stored` (only rows changed), or
        `ended` where no node follows.
        """
        if self.failure is not None:
            return "failed"
        if isinstance(self.node, SinkNode):
            return "dropped" if self.dropped else "written"
        if self.out:
            return "forwarded"
        if self.dropped:
            return "dropped"
        if not isinstance(self.node, ProcessorNode) or not self.node.children:
            return "ended"
        if getattr(self.node.processor, "holds_records", False):
            return "held"
        return "stored" if any(not row.same for row in self.rows) else "dropped"

    @property
    def reason(self) -> str | None:
        """Why the record goes no further; None where it does."""
        if self.failure is not None:
            return self.failure
        if self.result == "held":
            return "the step works on batches, and forwards its results at the end of one"
        if self.result not in ("dropped", "stored") or not isinstance(self.node, ProcessorNode):
            return None
        if self.cached and not getattr(self.node.processor, "on_close", False):
            return "the change is in the cache of the store until the commit"
        if self.dropped == DropReason.NULL and self.record is not None:
            return "its key is null" if self.record.key is None else "its value is null"
        return self.dropped or self.node.processor.why_nothing()
