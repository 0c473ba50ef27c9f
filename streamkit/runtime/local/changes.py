"""What a start checks of the state that an earlier version of the application has left."""

from __future__ import annotations

import logging
from contextlib import closing

from streamkit.changes.marks import check_marks
from streamkit.changes.of_log import own_names, records_of, unknown_changelogs
from streamkit.errors import TransportError
from streamkit.plan.model import Plan
from streamkit.runtime.local.setup import TopicsOnLog
from streamkit.runtime.local.topics import prepare_topics
from streamkit.transport.base import Transport

log = logging.getLogger(__name__)


def checked_topics(plan: Plan, transport: Transport, force: bool) -> TopicsOnLog:
    """Return what prepare_topics does, after a look at changelogs; with `force` none is refused.

    Raises IncompatibleStateError before anything is created, and what prepare_topics raises.
    """
    if not force:
        with closing(transport.admin()) as admin:
            check_marks(plan, admin.topic_ids(sorted(own_names(plan))))
    topics = prepare_topics(plan, transport)
    try:
        _warn(plan, transport)
    except TransportError as error:
        log.info("%s; changelogs that no store has are not looked for", error)
    return topics


def _warn(plan: Plan, transport: Transport) -> None:
    """Log the changelogs of the application that no store has and that have records: a renamed store starts empty."""
    counts = unknown_changelogs(plan, transport)
    held = {name: records for name, records in records_of(transport, counts).items() if records} if counts else {}
    if held:
        shown = ", ".join(f"{name} ({records} records)" for name, records in sorted(held.items()))
        log.warning(
            "no store of %s has the changelog %s; `streamkit diff --running` says more", plan.application, shown
        )
