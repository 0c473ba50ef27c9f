"""Checks at the start, of the state of an earlier version of the application."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import closing

from streamkit.changes.forms.of_log import records_of, unknown_changelogs
from streamkit.changes.marks import check_marks
from streamkit.errors import TransportError
from streamkit.plan.lookup import internal_topics_on_log
from streamkit.plan.model import Plan
from streamkit.runtime.local.instance.internal_topics import prepare
from streamkit.runtime.local.topics_on_log import TopicsOnLog
from streamkit.runtime.operations.migration.migration_journal import check_migrated, read_entries
from streamkit.transport.log_interface import Admin, Transport

log = logging.getLogger(__name__)


def checked_topics(plan: Plan, transport: Transport, force: bool) -> TopicsOnLog:
    """Check changelogs and return the topics of `prepare`; with `force` no changelog is rejected, nor an incomplete migration.

    Raises IncompatibleStateError before anything is created, and what `prepare` raises.
    """
    # The imports run while brokers respond; `membership` waits for them.
    threading.Thread(target=transport.prepare_membership, daemon=True).start()
    with closing(transport.admin()) as admin:
        existing = admin.partition_counts()
        ids = admin.topic_ids(sorted(existing.keys() & internal_topics_on_log(plan).values()))
        migrated = read_entries(plan.application, existing, transport)
        if not force:
            check_marks(plan, ids)
            check_migrated(plan, migrated)
        topics = prepare(plan, admin, existing, ids, create_written=transport.creates_written_topics)
        try:
            copied = {entry.source for entry in migrated.values() if entry.done}
            _warn(plan, {name: count for name, count in existing.items() if name not in copied}, admin, transport)
        except TransportError as error:
            log.info("%s; changelogs that no store has are not looked for", error)
    return topics


def _warn(plan: Plan, existing: Mapping[str, int], admin: Admin, transport: Transport) -> None:
    """Log the changelogs of the application that no store has and that have records: a renamed store starts empty."""
    counts = unknown_changelogs(plan, existing, admin, transport)
    with_records = (
        {name: records for name, records in records_of(transport, counts).items() if records} if counts else {}
    )
    if with_records:
        shown = ", ".join(f"{name} ({records} records)" for name, records in sorted(with_records.items()))
        log.warning(
            "no store of %s has the changelog %s; `streamkit diff --running` says more", plan.application, shown
        )
