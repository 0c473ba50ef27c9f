"""The drawing of a topology beside its text (`streamkit/graph`)."""

from __future__ import annotations

from dataclasses import dataclass

from lsprotocol import types as lsp

from streamkit.editor.project import Project
from streamkit.editor.texts import Text
from streamkit.errors import Position, StreamkitError
from streamkit.plan.describe import describe
from streamkit.plan.describe.drawing.page import block
from streamkit.plan.model import Plan, SinkNode
from streamkit.suggestions import number_of

Data = dict[str, object]
"""An object of the protocol's JSON."""


@dataclass(frozen=True)
class PlacedNode:
    """A node of a plan with the place of its step. id: as in the drawing."""

    id: str
    name: str
    step: str
    pipeline: str
    position: Position


def placed_nodes(plan: Plan) -> list[PlacedNode]:
    """Return the nodes of a plan that come from a step of a file."""
    return [
        PlacedNode(f"{sub.id} {name}", name, node.origin.step, node.origin.pipeline, node.origin.position)
        for sub in plan.sub_topologies
        for name, node in sub.nodes.items()
        if node.origin is not None
    ]


def graph(project: Project, uri: str) -> Data:
    """Return the drawing of the last valid version of a file, with the places of its nodes."""
    valid, latest = project.valid(uri), project.analysis(uri)
    if valid is None or valid.plan is None:
        message = _mistakes(project, uri) or "the file is no topology"
        return {
            "svg": None, "mermaid": "", "dot": "", "nodes": [], "edges": [], "message": message, "version": None,
        }  # fmt: skip
    plan = valid.plan
    is_old = latest is not None and latest.plan is None and latest.kind == valid.kind
    note = f"{_mistakes(project, uri)}; the drawing is that of its last valid version" if is_old else None
    nodes = []
    for node in placed_nodes(plan):
        text = _text(project, node.position.file)
        place = {"uri": project.uri(node.position.file), "range": _block(text, node.position)}
        nodes.append({"id": node.id, "name": node.name, "step": node.step, "pipeline": node.pipeline, **place})
    edges = [
        {"from": f"{sub.id} {name}", "to": f"{sub.id} {child}"}
        for sub in plan.sub_topologies
        for name, node in sub.nodes.items()
        if not isinstance(node, SinkNode)
        for child in node.children
    ]
    forms = {form: describe(plan, form) for form in ("svg", "mermaid", "dot")}
    return {**forms, "nodes": nodes, "edges": edges, "message": note, "version": valid.text.version}


def _mistakes(project: Project, uri: str) -> str:
    latest = project.analysis(uri)
    count = sum(mark.severity == "error" for mark in latest.marks) if latest is not None else 0
    return f"the file has {number_of(count, 'mistake')}" if count else ""


def _text(project: Project, file: str) -> Text:
    try:
        return project.texts.get(file, project.encoding)
    except StreamkitError:
        return Text(file, "", None, project.encoding)


def _block(text: Text, position: Position) -> Data:
    """Return the range of the lines of a step."""
    count = max(1, len(block(text.all_lines, position.line)))
    last = position.line - 2 + count
    start, end = text.position(position.line - 1, position.column - 1), text.position(last, len(text.line(last)))
    return range_data(lsp.Range(start, max(start, end)))


def range_data(span: lsp.Range) -> Data:
    """Return a range as JSON."""
    return {
        "start": {"line": span.start.line, "character": span.start.character},
        "end": {"line": span.end.line, "character": span.end.character},
    }
