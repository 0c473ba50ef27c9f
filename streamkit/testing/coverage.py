"""The steps and branches of a topology that no test reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from streamkit.errors import Position
from streamkit.graph.physical_topology import StepRef
from streamkit.operators.codegen.code_writer import ProcessorNode
from streamkit.operators.steps.stateless.branch import Branch
from streamkit.operators.steps.stateless.filter import Filter
from streamkit.plan.model import Plan, PlanNode, SourceNode


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
    """Return the coverage of a plan's steps, from the counts of records by node."""
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


def _one_sided(node: PlanNode, nodes: Mapping[str, PlanNode], reached: Counter[str]) -> Iterator[Gap]:
    """Yield the gap of a filter that passed all records or none, and those of branches without a record."""
    if not isinstance(node, ProcessorNode) or node.origin is None:
        return
    processor, origin = node.processor, node.origin
    where = f"pipeline {origin.pipeline}: {origin.step}"
    if isinstance(processor, Filter):
        # A child with other parents counts their records too.
        passed = [reached[child] for child in node.children if _parents(nodes[child]) == 1]
        if passed and not passed[0]:
            yield Gap(origin.position, f"{where} let no record pass")
        elif passed and passed[0] == reached[node.name]:
            yield Gap(origin.position, f"{where} kept no record back")
    elif isinstance(processor, Branch):
        for target in (*processor.targets, *([processor.default] if processor.default else ())):
            if not reached[target]:
                name = target.removeprefix(node.name)
                yield Gap(origin.position, f"{where}: no record took the branch {name!r}")


def _parents(node: PlanNode) -> int:
    return 0 if isinstance(node, SourceNode) else len(node.parents)
