"""Which steps and branches of a topology no test reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streamkit.errors import Position
from streamkit.operators.branch import Branch
from streamkit.operators.filter import Filter
from streamkit.plan.model import Plan, StepRef


@dataclass(frozen=True)
class Gap:
    """Something that no record reached."""

    position: Position
    text: str

    def __str__(self) -> str:
        return f"{self.position}: {self.text}"


@dataclass(frozen=True)
class Coverage:
    """The steps of a topology that make nodes, of which `reached` had a record; gaps in file order."""

    steps: int
    reached: int
    gaps: tuple[Gap, ...]

    @property
    def percent(self) -> float:
        """Steps that were reached, of all."""
        return 100.0 * self.reached / self.steps if self.steps else 100.0


def coverage(plan: Plan, reached: Counter[str]) -> Coverage:
    """Return what the counts of records by node say of a plan's steps."""
    counts: Counter[StepRef] = Counter()
    gaps = []
    for sub in plan.sub_topologies:
        for node in sub.nodes.values():
            if node.origin is not None:
                counts[node.origin] += reached[node.name]
        gaps += [
            gap for node in sub.nodes.values() if reached[node.name] for gap in _one_sided(node, sub.nodes, reached)
        ]
    for step, count in counts.items():
        if not count:
            gaps.append(Gap(step.position, f"pipeline {step.pipeline}: {step.step} was never reached"))
    unique = sorted(dict.fromkeys(gaps), key=lambda gap: (gap.position.line, gap.position.column, gap.text))
    return Coverage(len(counts), sum(count > 0 for count in counts.values()), tuple(unique))


def _one_sided(node: Any, nodes: Mapping[str, Any], reached: Counter[str]) -> Iterator[Gap]:
    """Yield what a node that decides has always, or never, decided."""
    work, origin = getattr(node, "processor", None), getattr(node, "origin", None)
    if origin is None:
        return
    where = f"pipeline {origin.pipeline}: {origin.step}"
    if isinstance(work, Filter):
        # A child with other parents counts their records too.
        passed = [reached[child] for child in node.children if len(nodes[child].parents) == 1]
        if passed and not passed[0]:
            yield Gap(origin.position, f"{where} let no record pass")
        elif passed and passed[0] == reached[node.name]:
            yield Gap(origin.position, f"{where} kept no record back")
    elif isinstance(work, Branch):
        for target in (*work.targets, *([work.default] if work.default else ())):
            if not reached[target]:
                name = target.removeprefix(node.name)
                yield Gap(origin.position, f"{where}: no record took the branch {name!r}")
