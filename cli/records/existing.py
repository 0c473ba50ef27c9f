"""An existing topic, for commands that create nothing."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING

from streamkit.errors import TopicError
from streamkit_cli.guard import print_message

if TYPE_CHECKING:
    from streamkit.plan.model import Plan
    from streamkit.transport.log_interface import TopicInfo, Transport

_PAUSE_SECONDS = 0.2


def wait_for_topic(transport: Transport, plan: Plan, name: str, stopped: threading.Event | None) -> TopicInfo | None:
    """Return a topic, when it exists; None where it doesn't, or `stopped` is set before.

    stopped None: do not wait. Raises TopicError for one that will not be created by what the file declares.
    """
    from streamkit.runtime.operations.opening import address

    is_reported = False
    while (place := transport.missing()) is not None:
        if stopped is None:
            raise TopicError(f"there is no log in {place} yet; a command that writes creates it")
        if not is_reported:
            print_message(f"there is no log in {place} yet: waiting")
            is_reported = True
        if stopped.wait(_PAUSE_SECONDS):
            return None
    with closing(transport.admin()) as admin:
        while name not in (found := admin.topics([name])):
            where = f"topic {name} does not exist at {address(plan)}"
            declared = plan.external_topics.get(name)
            if declared is not None and not declared.partitions and not address(plan).startswith("embedded"):
                raise TopicError(f"{where}; it is created where `partitions` is declared")
            if stopped is None:
                if declared is None:
                    raise TopicError(f"{where}; the application creates it when it runs")
                print_message(f"{where} yet")
                return None
            if not is_reported:
                print_message(f"{where} yet: waiting")
                is_reported = True
            if stopped.wait(_PAUSE_SECONDS):
                return None
        return found[name]
