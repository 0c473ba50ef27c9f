"""Ways to show a Plan: Kafka's own text, JSON, Mermaid, DOT, and a drawing as SVG or HTML."""

from __future__ import annotations

from collections.abc import Callable

from streamkit.plan.describe.text import describe_document, describe_dot, describe_json, describe_mermaid, describe_text
from streamkit.plan.model import Plan


def _svg(plan: Plan) -> str:
    # Only a drawing needs these modules.
    from streamkit.plan.describe.drawing.picture import describe_svg

    return describe_svg(plan)


def _html(plan: Plan) -> str:
    from streamkit.plan.describe.drawing.page import describe_html

    return describe_html(plan)


FORMATS: dict[str, Callable[[Plan], str]] = {
    "text": describe_text,
    "json": describe_json,
    "mermaid": describe_mermaid,
    "dot": describe_dot,
    "svg": _svg,
    "html": _html,
}
"""Writers by the name of their format."""


def describe(plan: Plan, form: str = "text") -> str:
    """Return a Plan in one of FORMATS; `text` is Java's own. Raises KeyError for another form."""
    return FORMATS[form](plan)


__all__ = [
    "FORMATS",
    "describe",
    "describe_document",
    "describe_dot",
    "describe_json",
    "describe_mermaid",
    "describe_text",
]
