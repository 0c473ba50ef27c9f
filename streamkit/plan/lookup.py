"""Finding what a plan has by the names that the file gives it."""

from __future__ import annotations

from streamkit.errors import UsageError
from streamkit.plan.model import ExternalTopic, Plan
from streamkit.suggestions import did_you_mean, listed


def find_topic(plan: Plan, name: str) -> ExternalTopic:
    """Return the topic of an entry's name. Raises UsageError with the nearest name."""
    entries = {topic.entry: topic for topic in plan.external_topics.values()}
    if name in entries:
        return entries[name]
    hint = did_you_mean(name, entries, f"it has {listed(sorted(entries))}")
    raise UsageError(f"{plan.file} has no topic {name!r}{hint}")
