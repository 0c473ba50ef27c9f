"""Ways to show a Plan: Kafka's own text, JSON, Mermaid and DOT."""

from __future__ import annotations

from collections.abc import Callable

from streamkit.plan.describe.document import describe_document, describe_dot, describe_json, describe_mermaid
from streamkit.plan.describe.text import describe_text
from streamkit.plan.model import Plan

FORMATS: dict[str, Callable[[Plan], str]] = {
    "text": describe_text,
    "json": describe_json,
    "mermaid": describe_mermaid,
    "dot": describe_dot,
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
