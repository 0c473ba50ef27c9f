"""A processor node of the frozen Plan, which is what a Processor is given when it writes its code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamkit.graph.node import OnError, StepRef
from streamkit.serdes.serde import Serde

if TYPE_CHECKING:
    from streamkit.operators.core.operator import Processor


@dataclass(frozen=True)
class ProcessorNode:
    """Does the work of `processor` (operators.core.operator.Processor)."""

    name: str
    processor: Processor
    parents: tuple[str, ...]
    children: tuple[str, ...]
    """In the order of writing, which is the order of forwarding."""
    stores: tuple[str, ...]
    origin: StepRef | None = None
    on_error: OnError | None = None
    """OnError of the step (its dead-letter topic by physical name), or None: the application's handler."""
    key_serde: Serde | None = None
    """The serde of the keys that the node forwards; None where merged streams disagree and nothing needs one."""
    value_serde: Serde | None = None
