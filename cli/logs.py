"""The log that a topology names, opened for one command, and its topics."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamkit.errors import TopicError

from .guard import say

if TYPE_CHECKING:
    from streamkit.plan.model import ExternalTopic, Plan
    from streamkit.transport.base import TopicInfo, Transport


@contextmanager
def opened(plan: Plan) -> Iterator[Transport]:
    """Open the log that `bootstrap.servers` names, and close it at the end."""
    from streamkit.runtime.opening import open_log

    _announce(plan)
    transport = open_log(plan)
    try:
        yield transport
    finally:
        transport.close()


def _announce(plan: Plan) -> None:
    """Print once where the embedded log is kept, unless the user has chosen the place."""
    from streamkit.runtime.opening import address

    config = plan.config
    place = config["state.dir"]
    if address(plan) == "embedded" and config.origin("state.dir") == "default" and not os.path.exists(place):
        say(f"the log and the state are kept in {place} (state.dir)")


def existing_topic(transport: Transport, plan: Plan, topic: ExternalTopic) -> TopicInfo:
    """Return a topic as it exists, created where it is missing and declared. Raises TopicError for a missing one.

    The embedded log has no administrator who could make a topic beforehand, so there one partition is the default.
    """
    from streamkit.runtime.opening import address
    from streamkit.transport.base import NewTopic

    partitions = topic.partitions or (1 if address(plan).startswith("embedded") else None)
    admin = transport.admin()
    try:
        found = admin.topics([topic.name])
        if topic.name not in found and partitions:
            new = NewTopic(topic.name, partitions, topic.config, topic.replication_factor or -1)
            admin.create_topics([new])
            found = admin.topics([topic.name])
    finally:
        admin.close()
    if topic.name not in found:
        raise TopicError(
            f"topic {topic.name} does not exist at {address(plan)}; it is created where `partitions` is declared"
        )
    return found[topic.name]
