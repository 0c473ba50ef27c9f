"""Finding what a plan has by the names that the file gives it."""

from __future__ import annotations

from difflib import get_close_matches

from streamkit.errors import UsageError
from streamkit.plan.model import ExternalTopic, Plan


def find_topic(plan: Plan, name: str) -> ExternalTopic:
    """Return the topic of an entry's name. Raises UsageError with the nearest name."""
    entries = {topic.entry: topic for topic in plan.external_topics.values()}
    if name in entries:
        return entries[name]
    near = get_close_matches(name, entries, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(entries)) or 'none'}"
    raise UsageError(f"{plan.file} has no topic {name!r}; {hint}")
