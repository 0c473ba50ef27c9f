"""Finds the topics of a plan by their names in the file or on the log."""

from __future__ import annotations

import re

from streamkit.errors import UsageError
from streamkit.plan.model import ExternalTopic, Plan, SourceNode, SubTopology
from streamkit.suggestions import did_you_mean, listed


def find_topic(plan: Plan, name: str) -> ExternalTopic:
    """Return the topic of an entry's name. Raises UsageError with the nearest name."""
    entries = {topic.entry: topic for topic in plan.external_topics.values()}
    if name in entries:
        return entries[name]
    hint = did_you_mean(name, entries, f"it has {listed(sorted(entries))}")
    raise UsageError(f"{plan.file} has no topic {name!r}{hint}")


def source_node(plan: Plan, sub: SubTopology, topic: str) -> str:
    """Return the name of the node that reads a topic, by its name on the log; an empty text if none does."""
    for name, node in sub.nodes.items():
        if isinstance(node, SourceNode):
            if any(plan.internal_name(each) == topic for each in node.topics):
                return name
            if node.pattern is not None and re.fullmatch(node.pattern, topic):
                return name
    return ""


def internal_topics_on_log(plan: Plan) -> dict[str, str]:
    """Return the application's internal topics and changelogs: the name on the log by the name without prefix.

    A source topic that is a changelog too is none of them.
    """
    found = {topic: plan.internal_name(topic) for topic in plan.internal_topics}
    for store, definition in plan.stores.items():
        changelog = plan.changelog_name(store) if definition.source_topic is None else None
        if changelog is not None:
            found[f"{store}-changelog"] = changelog
    return found


def find_readable(plan: Plan, name: str) -> str:
    """Return the name on the log of a topic of the file or of an internal one of the application.

    Internal topics may be named with the application's prefix or, as `describe` has them, without. Raises UsageError with
    the nearest name.
    """
    entries = {topic.entry: topic.name for topic in plan.external_topics.values()}
    internal = internal_topics_on_log(plan)
    on_log = [*entries.values(), *internal.values()]
    known = {**dict(zip(on_log, on_log, strict=True)), **internal, **entries}
    if name in known:
        return known[name]
    names = [*sorted(entries), *sorted(internal)]
    raise UsageError(f"{plan.file} has no topic {name!r}{did_you_mean(name, names, f'it has {listed(names)}')}")
