"""The log that a topology names, opened for one command, and its topics."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamkit.errors import TopicError
from streamkit_cli.guard import print_message

if TYPE_CHECKING:
    from streamkit.plan.model import ExternalTopic, Plan
    from streamkit.transport.log_interface import TopicInfo, Transport

SILENCE_S = 2.0
"""Seconds after which a log that does not answer is reported."""


@contextmanager
def opened(plan: Plan, *, creates: bool = True) -> Iterator[Transport]:
    """Open the log that `bootstrap.servers` names, and close it at the end. creates False: write nothing, not even a directory."""
    from streamkit.runtime.operations.opening import open_log

    if creates:
        announce(plan)
    transport = open_log(plan, creates=creates)
    try:
        with silence_noticed(plan):
            yield transport
    finally:
        transport.close()


@contextmanager
def silence_noticed(plan: Plan) -> Iterator[None]:
    """Print after 2 s what was tried, if no broker answers; the clients wait longer before they give up.

    `run` logs this itself (runtime.local.client.StartRetries).
    """
    from streamkit.runtime.operations.opening import address

    if address(plan).startswith("embedded"):
        yield
        return
    ended = threading.Event()
    threading.Thread(target=_notice_silence, args=(plan, ended), name="silence", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _notice_silence(plan: Plan, ended: threading.Event) -> None:
    from streamkit.runtime.operations.opening import address, silence_of

    if ended.wait(SILENCE_S):
        return
    tried = silence_of(plan)
    if tried is not None and not ended.is_set():
        print_message(f"no answer from {address(plan)} yet; tried {tried}")


def announce(plan: Plan) -> None:
    """Print once where the embedded log is kept, unless the user has chosen the place."""
    from streamkit.runtime.operations.opening import address

    config = plan.config
    place = config.state_dir
    if address(plan) == "embedded" and config.origin("state.dir") == "default" and not os.path.exists(place):
        print_message(f"the log and the state are kept in {place} (state.dir)")


def existing_topic(transport: Transport, plan: Plan, topic: ExternalTopic) -> TopicInfo:
    """Return a topic as it exists, created where it is missing and declared. Raises TopicError for a missing one.

    The embedded log has no administrator who could make a topic beforehand, so there one partition is the default.
    """
    from streamkit.runtime.operations.opening import address
    from streamkit.transport.log_interface import NewTopic

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
