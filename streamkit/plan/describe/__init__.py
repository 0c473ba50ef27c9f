"""Ways to show a Plan: Kafka's own text, JSON, Mermaid and DOT."""

from __future__ import annotations

from streamkit.plan.describe.text import describe_text

__all__ = ["describe_text"]
