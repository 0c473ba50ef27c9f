"""The step of the file behind each node of a plan, with its lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamkit.plan.model import Plan

MOST_LINES = 60


def node_steps(plan: Plan) -> dict[str, dict[str, object]]:
    """Return the step of each node, by the id that the node has in drawings; the lines are absent where the file is."""
    texts: dict[str, list[str]] = {}
    found: dict[str, dict[str, object]] = {}
    for sub in plan.sub_topologies:
        for name, node in sub.nodes.items():
            origin = node.origin
            if origin is None:
                continue
            place = origin.position
            if place.file not in texts:
                texts[place.file] = _lines(place.file)
            found[f"{sub.id} {name}"] = {
                "pipeline": origin.pipeline,
                "step": origin.step,
                "file": place.file,
                "line": place.line,
                "yaml": "\n".join(block(texts[place.file], place.line)),
            }
    return found


def block(lines: Sequence[str], number: int) -> list[str]:
    """Return the line of a number, and those below that are indented further, without their common indentation.

    >>> block(["steps:", "  - filter:", "      if: a", "  - peek: b"], 2)
    ['- filter:', '    if: a']
    """
    if not 0 < number <= len(lines):
        return []
    indent = _indent(lines[number - 1])
    taken = [lines[number - 1]]
    for line in lines[number : number - 1 + MOST_LINES]:
        if line.strip() and _indent(line) <= indent:
            break
        taken.append(line)
    while not taken[-1].strip():
        taken.pop()
    return [line[indent:].rstrip() for line in taken]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
