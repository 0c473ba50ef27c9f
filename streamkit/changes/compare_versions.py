"""Compares two versions of an application."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from streamkit.changes.finding import Finding, Verdict
from streamkit.changes.forms.form import Form, OnLog
from streamkit.changes.match import match_stores, match_topics
from streamkit.changes.pipelines import compare_names, compare_pipelines
from streamkit.changes.store_changes import Versions, compare_stores
from streamkit.changes.task_changes import compare_tasks
from streamkit.changes.topic_changes import compare_externals, compare_topics


def compare(old: Form, new: Form, on_log: OnLog | None = None, *, offers_migration: bool = True) -> list[Finding]:
    """Return the changes, the worst first; parts that only one of the forms has are not compared.

    on_log: the topics of the old version on its log, for the numbers of records. offers_migration: whether actions name
    `streamkit migrate`.
    """
    # A description has no application: it is that of the other version.
    old = replace(old, application=old.application or new.application)
    new = replace(new, application=new.application or old.application)
    topics = match_topics(old.topics, new.topics)
    versions = Versions(old, new, match_stores(old.stores, new.stores), on_log, offers_migration)
    found = [
        *_application(old, new),
        *compare_stores(versions),
        *compare_topics(versions, topics),
        *compare_externals(old, new),
        *compare_tasks(versions, topics.names),
        *_settings(old, new),
        *compare_pipelines(old, new),
        *compare_names(old, new),
    ]
    return sorted(found, key=lambda each: -each.verdict.rank)


def _application(old: Form, new: Form) -> Iterator[Finding]:
    if old.application is not None and new.application is not None and old.application != new.application:
        text = (
            f"the application is called {new.application}, was {old.application}: offsets, changelogs and state belong to the "
            "old name, and everything starts empty"
        )
        action = f"write `application: {old.application}` to go on with them"
        yield Finding(Verdict.RENAMED, "application", new.application, text, action, new.start, old=old.application)


def _settings(old: Form, new: Form) -> Iterator[Finding]:
    for name, value in new.settings.items():
        before = old.settings.get(name, value)
        if before != value:
            text = f"{name} is {value or 'the default'}, was {before or 'the default'}: state on disk is not found there, and read again from changelogs"
            yield Finding(Verdict.RESTORE, "setting", name, text, "plan for the time of restoring", new.start)
