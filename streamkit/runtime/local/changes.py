"""What a start checks of the state that an earlier version of the application has left."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import closing

from streamkit.changes.marks import check_marks
from streamkit.changes.of_log import own_names, records_of, unknown_changelogs
from streamkit.errors import TransportError
from streamkit.plan.model import Plan
from streamkit.runtime.local.setup import TopicsOnLog
from streamkit.runtime.local.topics import prepare
from streamkit.transport.base import Admin, Transport

log = logging.getLogger(__name__)


def checked_topics(plan: Plan, transport: Transport, force: bool) -> TopicsOnLog:
    """Return what `prepare` does, after a look at changelogs; with `force` none is refused.

    Raises IncompatibleStateError before anything is created, and what `prepare` raises.
    """
    # Imports go on while the brokers answer; `membership` waits for them.
    threading.Thread(target=transport.prepare_membership, daemon=True).start()
    with closing(transport.admin()) as admin:
        existing = admin.partition_counts()
        ids = admin.topic_ids(sorted(own_names(plan) & existing.keys()))
        if not force:
            check_marks(plan, ids)
        topics = prepare(plan, admin, existing, ids, create_written=transport.creates_written_topics)
        try:
            _warn(plan, existing, admin, transport)
        except TransportError as error:
            log.info("%s; changelogs that no store has are not looked for", error)
    return topics


def _warn(plan: Plan, existing: Mapping[str, int], admin: Admin, transport: Transport) -> None:
    """Log the changelogs of the application that no store has and that have records: a renamed store starts empty."""
    counts = unknown_changelogs(plan, existing, admin, transport)
    held = {name: records for name, records in records_of(transport, counts).items() if records} if counts else {}
    if held:
        shown = ", ".join(f"{name} ({records} records)" for name, records in sorted(held.items()))
        log.warning(
            "no store of %s has the changelog %s; `streamkit diff --running` says more", plan.application, shown
        )
