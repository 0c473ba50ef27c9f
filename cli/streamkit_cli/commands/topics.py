"""`streamkit topics`: the topics of a topology on its log."""

from __future__ import annotations

import json
from contextlib import closing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit_cli.loading import load_plan, opened
from streamkit_cli.options import EnvFile, File, Format, Settings, Shown
from streamkit_cli.tables import table

if TYPE_CHECKING:
    from streamkit.plan.model import ExternalTopic, Plan
    from streamkit.serdes.plain import Json
    from streamkit.transport.log_interface import TopicInfo


class Action(StrEnum):
    """What is done with the topics."""

    create = "create"
    list = "list"


Do = Annotated[
    Action,
    typer.Argument(metavar="create|list", help="Create missing topics, or show the existing ones.", show_default=False),
]


def topics(
    action: Do, file: File, form: Shown = Format.text, settings: Settings = None, env_file: EnvFile = None
) -> None:
    """Create or list the topics of a topology, including internal ones.

    `create` does what `run` does at its start: it creates topics for which the file gives `partitions`, and checks
    existing topics without changing them.

    Examples:
        streamkit topics list orders.yaml
        streamkit topics create orders.yaml --set bootstrap.servers=localhost:9092
    """
    from streamkit.runtime.local.internal_topics import prepare_topics

    plan = load_plan(file, settings, env_file)
    with opened(plan, creates=action is Action.create) as transport:
        if action is Action.create:
            prepare_topics(plan, transport)
        with closing(transport.admin()) as admin:
            existing = admin.topics()
    rows = _rows(plan, existing)
    if form is Format.json:
        print(json.dumps(rows, indent=2))
    else:
        print(table(("TOPIC", "KIND", "PARTITIONS", "DECLARED"), [tuple(row.values()) for row in rows], numbers=(2, 3)))


def _kind(topic: ExternalTopic, letters: set[str]) -> str:
    uses = [word for word, used in (("input", topic.read), ("output", topic.written)) if used]
    if topic.name in letters:
        uses.append("dead letters")
    return ", ".join(uses) or "unused"


def _rows(plan: Plan, existing: dict[str, TopicInfo]) -> list[dict[str, Json]]:
    """Return the topics of a plan; partitions None: the topic does not exist; declared None: the file does not declare it."""
    from streamkit.runtime.execution.dead_letters import dead_letter_topics

    letters = set(dead_letter_topics(plan))
    topics = [(topic.name, _kind(topic, letters), topic.partitions) for topic in plan.external_topics.values()]
    topics += [(plan.internal_name(name), topic.kind, topic.partitions) for name, topic in plan.internal_topics.items()]
    known = {name for name, _, _ in topics}
    changelogs = {plan.changelog_name(store): None for store in plan.stores}
    topics += [(name, "changelog", None) for name in changelogs if name is not None and name not in known]
    return [
        {
            "topic": name,
            "kind": kind,
            "partitions": existing[name].partitions if name in existing else None,
            "declared": declared,
        }
        for name, kind, declared in topics
    ]
