"""Compares two versions of an application: steps, names, tasks, topics and stores."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Generic, TypeVar

from streamkit.changes.finding import Finding, Verdict
from streamkit.changes.form import (
    ExternalForm,
    Form,
    OnLog,
    Place,
    RowForm,
    StepForm,
    StoreDetails,
    StoreForm,
    SubForm,
    TopicForm,
)
from streamkit.changes.serde_forms import Reads, compare_rows, has_same_layout, reads
from streamkit.errors import Position
from streamkit.state.definitions import KINDS
from streamkit.state.store_offsets import WITH_HEADERS
from streamkit.suggestions import number_of


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
    findings = [
        *_application(old, new),
        *compare_stores(versions),
        *compare_topics(versions, topics),
        *compare_externals(old, new),
        *compare_tasks(versions, topics.names),
        *_settings(old, new),
        *compare_pipelines(old, new),
        *compare_names(old, new),
    ]
    return sorted(findings, key=lambda finding: -finding.verdict.rank)


def _application(old: Form, new: Form) -> Iterator[Finding]:
    if old.application is not None and new.application is not None and old.application != new.application:
        text = (
            f"the application is called {new.application}, was {old.application}: offsets, changelogs and state belong to the "
            "old name, and everything starts empty"
        )
        action = f"write `application: {old.application}` to continue with them"
        yield Finding(Verdict.RENAMED, "application", new.application, text, action, new.start, old=old.application)


def _settings(old: Form, new: Form) -> Iterator[Finding]:
    for name, value in new.settings.items():
        before = old.settings.get(name, value)
        if before != value:
            text = f"{name} is {value or 'the default'}, was {before or 'the default'}: state on disk is not found there, and is restored from changelogs"
            yield Finding(Verdict.RESTORE, "setting", name, text, "allow time for restoring", new.start)


# Compares the steps of pipelines, and the generated names of nodes.


def compare_pipelines(old: Form, new: Form) -> Iterator[Finding]:
    """Yield a finding for each pipeline that is new, removed or has different steps."""
    if old.pipelines is None or new.pipelines is None:
        return
    for name, steps in new.pipelines.items():
        before = old.pipelines.get(name)
        if before is None:
            text = f"pipeline {name} is new"
        else:
            text = _changes(before, steps)
            if not text:
                continue
            text = f"pipeline {name}: {text}"
        yield Finding(Verdict.SAFE, "pipeline", name, text, "", _first(before or (), steps), name)
    for name in old.pipelines:
        if name not in new.pipelines:
            yield Finding(Verdict.SAFE, "pipeline", name, f"pipeline {name} is gone", "", new.start, name, name)


def _changes(old: Sequence[StepForm], new: Sequence[StepForm]) -> str:
    parts = []
    matcher = SequenceMatcher(None, [step[:2] for step in old], [step[:2] for step in new], autojunk=False)
    for tag, begin, end, start, stop in matcher.get_opcodes():
        if tag == "equal":
            continue
        before, after = [step.step for step in old[begin:end]], [step.step for step in new[start:stop]]
        if before == after:
            parts.append(
                f"{', '.join(after)} behaves differently"
                if len(after) == 1
                else f"{', '.join(after)} behave differently"
            )
            continue
        if before:
            parts.append(f"{', '.join(before)} {'is' if len(before) == 1 else 'are'} gone")
        if after:
            parts.append(f"{', '.join(after)} {'is' if len(after) == 1 else 'are'} new")
    return "; ".join(parts)


def _first(old: Sequence[StepForm], new: Sequence[StepForm]) -> Position:
    known = {step[:2] for step in old}
    return next((step.position for step in new if step[:2] not in known), new[0].position)


def compare_names(old: Form, new: Form) -> Iterator[Finding]:
    """Yield a finding if the generated names of nodes change, on which only metrics depend."""
    if not old.has_tasks or not new.has_tasks:
        return
    before = {name for sub in old.sub_topologies for name in sub.nodes}
    after = {name for sub in new.sub_topologies for name in sub.nodes}
    gone = sorted(name for name in before - after if is_generated(name))
    if gone and after - before:
        nodes = "1 node has a different name" if len(gone) == 1 else f"{len(gone)} nodes have different names"
        text = f"generated names change: {nodes} ({', '.join(gone[:2])}{', …' if len(gone) > 2 else ''})"
        yield Finding(Verdict.SAFE, "names", "", f"{text}, also in metrics", "", new.start)


# Compares the tasks of two versions: sub-topologies that move, are new or were removed.

_STOP_ALL = "stop all instances of the old version before the first of the new one starts"


def compare_tasks(versions: Versions, topics: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the changes of sub-topologies; `topics`: the new names of internal topics by the old ones."""
    old, new = versions.old, versions.new
    if not old.has_tasks or not new.has_tasks:
        return
    pairs = _pairs(old, new, versions.matched.names, topics)
    moved = {other.id: one for one, other in pairs}
    for other in new.sub_topologies:
        one = moved.get(other.id)
        if other.is_global:
            continue
        if one is None:
            yield _stop(other, f"sub-topology {other.id} is new", other.place.position)
            continue
        if one.id != other.id:
            yield _moved(versions, one, other)
        elif _renamed(one.sources, topics) != other.sources:
            yield _stop(
                other,
                f"sub-topology {other.id} {_inputs(_renamed(one.sources, topics), other.sources)}",
                other.place.position,
            )
    matched = {one.id for one, _ in pairs}
    for one in old.sub_topologies:
        if one.id not in matched and not one.is_global:
            yield _stop(one, f"sub-topology {one.id} is gone", new.start)
    yield from _moved_stores(versions, {one.id: other.id for one, other in pairs})


def _renamed(names: frozenset[str], new: Mapping[str, str]) -> frozenset[str]:
    return frozenset(new.get(name, name) for name in names)


def _pairs(old: Form, new: Form, stores: Mapping[str, str], topics: Mapping[str, str]) -> list[tuple[SubForm, SubForm]]:
    """Return the matched sub-topologies: those with most stores and topics in common."""
    left = {sub.id: sub for sub in old.sub_topologies if not sub.is_global}
    right = {sub.id: sub for sub in new.sub_topologies if not sub.is_global}
    scores = []
    for one in left.values():
        names = {*_renamed(one.sources, topics), *(stores.get(store, store) for store in one.stores)}
        for other in right.values():
            common = len(names & {*other.sources, *other.stores})
            if common:
                scores.append((common, one.id == other.id, one.id, other.id))
    pairs = []
    for _, _, one_id, other_id in sorted(scores, key=lambda score: (-score[0], not score[1], score[2], score[3])):
        if one_id in left and other_id in right:
            pairs.append((left.pop(one_id), right.pop(other_id)))
    return pairs


def _stop(sub: SubForm, what: str, position: Position) -> Finding:
    message = f"{what}: instances of the old version do not know its tasks"
    if what.endswith("gone"):
        message = f"{what}: instances of the old version still expect its tasks"
    return Finding(Verdict.STOP, "sub-topology", str(sub.id), message, _STOP_ALL, position, sub.place.pipeline)


def _moved(versions: Versions, one: SubForm, other: SubForm) -> Finding:
    kept = [name for name in other.stores if name in one.stores and _has_state(versions, name)]
    text = f"sub-topology {other.id} was {one.id}: its tasks are called {other.id}_… instead of {one.id}_…"
    verdict, action = Verdict.STOP, _STOP_ALL
    if kept:
        text += f"; {_listed(kept)} {'is' if len(kept) == 1 else 'are'} read again from the changelog{'' if len(kept) == 1 else 's'}"
        verdict, action = Verdict.RESTORE, f"{_STOP_ALL}, and allow time for restoring"
    place = other.place
    return Finding(verdict, "sub-topology", str(other.id), text, action, place.position, place.pipeline, str(one.id))


def _has_state(versions: Versions, store: str) -> bool:
    details = versions.new.stores[store].details
    return details is None or details.logged or details.source_topic is not None


def _moved_stores(versions: Versions, new_ids: Mapping[int, int]) -> Iterator[Finding]:
    """Yield the stores of equal names that move to another sub-topology."""
    for one, other in versions.matched.kept:
        if other.is_global or one.sub_topology is None or new_ids.get(one.sub_topology) == other.sub_topology:
            continue
        text = (
            f"store {other.name} moves from sub-topology {one.sub_topology} to {other.sub_topology}: it is read again from "
            "its changelog"
        )
        action = f"{_STOP_ALL}, and allow time for restoring"
        yield Finding(Verdict.RESTORE, "store", other.name, text, action, other.place.position, other.place.pipeline)


def _inputs(old: frozenset[str], new: frozenset[str]) -> str:
    more, less = sorted(new - old), sorted(old - new)
    parts = []
    if more:
        parts.append(f"reads {_listed(more)} too" if not less else f"reads {_listed(more)}")
    if less:
        parts.append(f"no longer {_listed(less)}" if more else f"no longer reads {_listed(less)}")
    return " and ".join(parts)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# Compares the internal and external topics of two versions.


def compare_topics(versions: Versions, matched: Matched[TopicForm]) -> Iterator[Finding]:
    """Yield the changes of internal topics."""
    for one, other in matched.kept:
        yield from _kept(versions.old, versions.new, one, other, versions.on_log)
    for one, other in matched.renamed:
        yield _left(versions, one, other, _keep(versions, one, other))
    for topic in matched.gone:
        yield _left(versions, topic, None, "")


def _keep(versions: Versions, old: TopicForm, new: TopicForm) -> str:
    """Return the action that keeps a topic: often the name of the store, from which the name of the topic follows."""
    base = old.name.removesuffix("-repartition")
    for one, other in versions.matched.renamed:
        if one.name == base and other.place == new.place:
            return f"or keep it: the old name of store {other.name} does that too"
    return f"or keep it: {keep_topic(new, old.name)}"


def _finding(verdict: Verdict, topic: TopicForm, message: str, action: str) -> Finding:
    place = topic.place
    return Finding(verdict, "topic", topic.name, message, action, place.position, place.pipeline)


def _drain(old: Form) -> str:
    if old.externals is None:
        return "stop the producers of its inputs, and the old version when its group has no lag left"
    return (
        f"stop all instances, and let the old version read all that is left: `streamkit run {old.label} --until-idle`"
    )


def _unread(old: Form, topic: str, on_log: OnLog | None) -> int | None:
    return None if on_log is None else on_log.unread.get(old.log_name(topic))


def _kept(old: Form, new: Form, one: TopicForm, other: TopicForm, on_log: OnLog | None) -> Iterator[Finding]:
    name = new.log_name(other.name)
    was, now = (form.counts.get(other.name, topic.partitions) for form, topic in ((old, one), (new, other)))
    if was is not None and now is not None and was != now:
        yield _finding(
            Verdict.INCOMPATIBLE,
            other,
            f"topic {name} has {number_of(was, 'partition')}, and the new version needs {now}: the state behind it is partitioned by {was}",
            f"keep {was}, or reset the application with `streamkit reset-offsets`, which deletes its internal topics",
        )
    unread = _unread(old, other.name, on_log)
    if unread == 0:
        return
    for side, before, after in (("key", one.key, other.key), ("value", one.value, other.value)):
        answer, why = reads(before, after)
        if answer is not Reads.YES:
            verdict = Verdict.INCOMPATIBLE if answer is Reads.NO else Verdict.UNKNOWN
            records = "records" if unread is None else number_of(unread, "record")
            yield _finding(
                verdict, other, f"topic {name}: the {side} {why}; {records} in it may be unread", _drain(old)
            )
    if None not in (one.value_kind, other.value_kind) and one.value_kind != other.value_kind:
        text = f"topic {name} held records of another form ({one.value_kind}, now {other.value_kind})"
        yield _finding(Verdict.INCOMPATIBLE, other, text, _drain(old))


def _left(versions: Versions, topic: TopicForm, instead: TopicForm | None, keep: str) -> Finding:
    old = versions.old
    unread = _unread(old, topic.name, versions.on_log)
    name = old.log_name(topic.name)
    successor = instead.place if instead is not None else None
    now = instead.name if instead is not None else topic.name
    gone = f"topic {now} takes the place of {name}" if instead is not None else f"topic {name} is gone"
    verdict, text, action = Verdict.SAFE, f"{gone}: no record in the old one is unread", f"delete {name}"
    if unread != 0 or (versions.on_log is not None and versions.on_log.members):
        # Instances that run may write more records.
        verdict, action = Verdict.LEFT_BEHIND, "; ".join(filter(None, (_drain(old), keep)))
        records = (
            "unread records" if unread is None else "1 unread record" if unread == 1 else f"{unread} unread records"
        )
        text = f"{gone}: {records} in the old one would never be processed"
    position = successor.position if successor is not None else versions.new.start
    return Finding(verdict, "topic", now, text, action, position, successor.pipeline if successor else "", topic.name)


# -- External topics ----------------------------------------------------------------------------------------------------


def compare_externals(old: Form, new: Form) -> Iterator[Finding]:
    """Yield the changes of the topics of the file."""
    for name, topic in (new.externals or {}).items():
        before = (old.externals or {}).get(name)
        if before is None:
            continue
        if before.read and topic.read:
            yield from _partitions(new, before, topic)
        for side, was, now in (("key", before.key, topic.key), ("value", before.value, topic.value)):
            if was == now or None in (was, now):
                continue
            why = reads(was, now)[1]
            if why and topic.read:
                text, todo = f"topic {name}: the {side} {why}", "make sure that its records are in the new form"
            elif why and before.written and topic.written:
                text, todo = f"topic {name}: the {side} {why}", "tell the owners of its consumers"
            else:
                continue
            yield Finding(Verdict.UNKNOWN, "topic", name, text, todo, _position(new, name))


def _position(form: Form, topic: str) -> Position:
    for sub in form.sub_topologies:
        if topic in sub.sources:
            return sub.place.position
    return form.start


def _partitions(new: Form, before: ExternalForm, topic: ExternalForm) -> Iterator[Finding]:
    was, now = before.partitions, topic.partitions
    if was is None or now is None or was == now:
        return
    bound = [store.name for store in new.stores.values() if topic.name in store.roots and not store.is_global]
    bound += [internal.name for internal in new.topics.values() if topic.name in internal.roots]
    text = f"topic {topic.name} had {number_of(was, 'partition')}, has {now}"
    if bound:
        text += f", by which {', '.join(bound[:3])}{' and others' if len(bound) > 3 else ''} are partitioned"
        todo = (
            "keep the number, or copy the topic to a new one and reset the application with `streamkit reset-offsets`"
        )
        yield Finding(Verdict.INCOMPATIBLE, "topic", topic.name, text, todo, _position(new, topic.name))
    else:
        todo = "stop all instances before the topic changes, and start the new version afterwards"
        yield Finding(Verdict.STOP, "topic", topic.name, text, todo, _position(new, topic.name))


# Compares the stores of two versions.

AFRESH = "to include past records, reset the application with `streamkit reset-offsets`"
_AGAIN = f"give it another name, so that it starts empty; {AFRESH}"
_PLAIN = ("string", "bytes", "boolean", "short", "integer", "long", "float", "double", "uuid", "void")
Text = tuple[Verdict, str, str]
"""A verdict, the message, and the action for the user."""


@dataclass(frozen=True)
class Versions:
    """Two versions, their matched stores, and the topics on the log, if they are known.

    offers_migration: whether actions name `streamkit migrate`.
    """

    old: Form
    new: Form
    matched: Matched[StoreForm]
    on_log: OnLog | None
    offers_migration: bool = True

    def shown_records(self, store: str) -> str:
        """Return the number of records in an old changelog as text; empty if it is not known."""
        return "" if self.on_log is None else _records(self.on_log.records.get(self.old.changelog(store)))


def _records(count: int | None) -> str:
    return "" if count is None else f" ({count} record{'' if count == 1 else 's'})"


def compare_stores(versions: Versions) -> Iterator[Finding]:
    """Yield the changes of stores, without changes of their tasks."""
    for old, new in versions.matched.kept:
        if not new.is_global:
            yield from _kept_store(versions, old, new)
    for old, new in versions.matched.renamed:
        yield _renamed_store(versions, old, new)
    for store in versions.matched.added:
        yield _added(store)
    for store in versions.matched.gone:
        yield _gone(versions, store)


def _store_finding(store: StoreForm, text: Text, old: str | None = None) -> Finding:
    verdict, message, action = text
    place = store.place
    return Finding(
        verdict, "store", store.name, f"store {store.name}{message}", action, place.position, place.pipeline, old
    )


# -- Stores that keep their names ---------------------------------------------------------------------------------------


def _kept_store(versions: Versions, old: StoreForm, new: StoreForm) -> Iterator[Finding]:
    texts: list[Text] = []
    if old.rows is not None and new.rows is not None:
        for verdict, why in compare_rows(old.rows, new.rows):
            converts = has_same_layout(old.rows, new.rows) and KINDS[old.rows.kind].implementation_class().converts
            action = _todo(verdict)
            if verdict is Verdict.INCOMPATIBLE and converts and old.details is not None and old.details.logged:
                action += _migration(versions, "or convert")
            texts.append((verdict, why, action))
    # State that is misread, or restored in any case, needs no further findings.
    settled = any(verdict in (Verdict.INCOMPATIBLE, Verdict.RESTORE) for verdict, _, _ in texts)
    if old.details is not None and new.details is not None:
        texts += _details(versions.new, new, old.details, new.details, settled)
    texts += _count(versions, new)
    texts += _config(versions, old, new)
    yield from (_store_finding(new, (verdict, f": {message}", action)) for verdict, message, action in texts)


def _todo(verdict: Verdict) -> str:
    if verdict is Verdict.INCOMPATIBLE:
        return _AGAIN
    if verdict is Verdict.UNKNOWN:
        return "check whether the new serde reads what the old one wrote (for schemas of a registry: validate --online)"
    return (
        "stop all instances, and start the new version; see that the changelog's min.compaction.lag.ms fits the history"
    )


def _details(form: Form, store: StoreForm, old: StoreDetails, new: StoreDetails, settled: bool) -> Iterator[Text]:
    changelog = form.changelog(store.name)
    if old.source_topic != new.source_topic:
        yield _source_topic(old, new, changelog)
    elif old.logged != new.logged:
        yield _logging(new, changelog)
    elif not settled and (old.persistent != new.persistent or _lies_otherwise(old.layout, new.layout)):
        yield _layout(old, new)
    if old.ttl != new.ttl:
        yield (Verdict.SAFE, _ttl(old.ttl, new.ttl), "")
    if not settled:
        yield from _times(old, new, changelog)
        if old.rule != new.rule and old.rule and new.rule:
            yield _rule(store)


def _source_topic(old: StoreDetails, new: StoreDetails, changelog: str) -> Text:
    if new.source_topic is not None:
        return (
            Verdict.RESTORE,
            f"it is read again from its source topic {new.source_topic}, which is its changelog now",
            f"see that {new.source_topic} is compacted or keeps all records; {changelog} is no longer used",
        )
    return (
        Verdict.RENAMED,
        f"it was restored from its source topic {old.source_topic} and gets the changelog {changelog}, which is empty",
        f"set the committed offsets of {old.source_topic} back to its beginning while no instance runs",
    )


def _logging(new: StoreDetails, changelog: str) -> Text:
    if new.logged:
        return (
            Verdict.RENAMED,
            f"it gets the changelog {changelog}, which is empty: state on disk that has no changelog is not taken over",
            AFRESH,
        )
    return (
        Verdict.RENAMED,
        f"it no longer has a changelog: {changelog} is not read, and a lost disk loses the state",
        f"keep `logging: true`, or delete the state of the store on each machine; {AFRESH}",
    )


def _lies_otherwise(old: str, new: str) -> bool:
    """Return whether rows on disk are restored; a start adds headers to a layout in place (Store.adopt)."""
    return new not in (old, old + WITH_HEADERS)


def _layout(old: StoreDetails, new: StoreDetails) -> Text:
    if old.persistent != new.persistent:
        where = "on disk" if new.persistent else "in memory"
        return (
            Verdict.RESTORE,
            f"it is {where} now: it is restored from its changelog",
            "allow time for restoring",
        )
    return (
        Verdict.RESTORE,
        f"its layout on disk changes (was {old.layout}, is {new.layout}): it is restored from its changelog",
        "allow time for restoring",
    )


def _ttl(old: int | None, new: int | None) -> str:
    """Return the message about a time to live (ms) that is new, changed or removed."""
    if new is None:
        return (
            f"it no longer has a ttl (was {old} ms): no row is deleted from now on, and deleted rows do not come back"
        )
    was = "it has a ttl now, of" if old is None else f"its ttl was {old} ms, is"
    when = (
        "the start deletes those that are due by then" if old is None or new < old else "rows stay longer from now on"
    )
    return f"{was} {new} ms: rows without a write for that long are deleted, from its changelog and downstream; {when}"


def _times(old: StoreDetails, new: StoreDetails, changelog: str) -> Iterator[Text]:
    """Yield the changes of windows and retention after which the rows are still readable."""
    for name in ("advance", "gap", "grace"):
        was, now = old.windows.get(name), new.windows.get(name)
        if None not in (was, now) and was != now:
            yield (Verdict.SAFE, f"its {name} was {was} ms, is {now} ms{_meaning(name)}", "")
    for noun, was, now, setting in (
        ("retention", old.retention, new.retention, "retention.ms"),
        ("history", old.history, new.history, "min.compaction.lag.ms"),
    ):
        if was is None or now is None or was == now:
            continue
        if now > was:
            todo = (
                f"raise {setting} of {changelog} by {now - was} ms: the settings of a topic that exists are not changed"
            )
            yield (Verdict.RESTORE, f"its {noun} was {was} ms, is {now} ms", todo)
        else:
            yield (Verdict.SAFE, f"its {noun} was {was} ms, is {now} ms: older rows are deleted", "")


def _meaning(name: str) -> str:
    if name == "advance":
        return ": windows that are open now lack earlier records, or get no more"
    return ": sessions from now on" if name == "gap" else ": it applies to windows that close from now on"


def _rule(store: StoreForm) -> Text:
    text = "other expressions compute its rows, and continue with those of the old version"
    if store.rows is not None and store.rows.value in _PLAIN:
        return (Verdict.SAFE, text, "")
    return (
        Verdict.UNKNOWN,
        text,
        f"make sure that the new expressions can read the old values, otherwise {_AGAIN}",
    )


def _count(versions: Versions, store: StoreForm) -> Iterator[Text]:
    name = f"{store.name}-changelog"
    was, now = versions.old.counts.get(name), versions.new.counts.get(name)
    if was is not None and now is not None and was != now:
        yield (
            Verdict.INCOMPATIBLE,
            f"it needs {number_of(now, 'partition')}, and its changelog {versions.new.changelog(store.name)} has {was}: keys would be in "
            "other tasks than their rows",
            "keep the number of partitions, or reset the application with `streamkit reset-offsets`, which deletes it",
        )


def _config(versions: Versions, old: StoreForm, store: StoreForm) -> Iterator[Text]:
    """Yield the settings of the changelog on the log that do not fit the store."""
    topic = versions.new.changelog(store.name)
    wanted = versions.new.configs.get(f"{store.name}-changelog")
    existing = None if versions.on_log is None else versions.on_log.configs.get(topic)
    if not wanted or not existing:
        return
    policies = [settings.get("cleanup.policy", "").replace(" ", "") for settings in (existing, wanted)]
    if old.rows is None and policies[0] and set(policies[0].split(",")) != set(policies[1].split(",")):
        yield (
            Verdict.UNKNOWN,
            f"its changelog {topic} has the cleanup.policy {policies[0]}, a store of this kind has {policies[1]}: it may hold "
            "rows of another kind",
            "find out which version wrote it",
        )
    kept, needed = (int(settings.get("retention.ms", -1)) for settings in (existing, wanted))
    if "delete" in policies[0] and 0 <= kept < needed:
        yield (
            Verdict.RESTORE,
            f"its changelog {topic} keeps rows for {kept} ms, and the store for {needed} ms: a restored store lacks rows",
            f"set retention.ms of the topic to {needed}",
        )


# -- Stores that are renamed, new or removed --------------------------------------------------------------------------------------------


def _renamed_store(versions: Versions, old: StoreForm, new: StoreForm) -> Finding:
    was = f" (was {old.name})"
    if new.is_global or _from_source(old, new):
        text = f"{was} is read again from its topic"
        return _store_finding(new, (Verdict.RESTORE if not new.is_global else Verdict.SAFE, text, ""), old.name)
    changelog = versions.new.changelog(new.name)
    moved = 0 if versions.on_log is None else versions.on_log.records.get(changelog, 0)
    if moved:
        text = f"{was} has rows in its own changelog {changelog}{_records(moved)}"
        return _store_finding(new, (Verdict.SAFE, text, ""), old.name)
    kind = KINDS.get(new.rows.kind) if new.rows is not None else None
    lost = f"; {kind.lost}" if kind is not None and kind.lost else ""
    text = f"{was} starts empty: its rows stay in {versions.old.changelog(old.name)}{versions.shown_records(old.name)}{lost}"
    action = keep_store(versions.new, new, old.name)
    action += _migration(versions, "or move")
    return _store_finding(new, (Verdict.RENAMED, text, action), old.name)


def _migration(versions: Versions, what: str) -> str:
    """Return the hint that `streamkit migrate` can replace an action; migrate takes the files of both versions."""
    if not versions.offers_migration or versions.old.externals is None:
        return ""
    return f"; {what} its rows: `streamkit migrate {versions.old.label} {versions.new.label}`"


def _from_source(old: StoreForm, new: StoreForm) -> bool:
    """Return whether both versions restore the store from the same source topic."""
    sources = [form.details.source_topic if form.details is not None else None for form in (old, new)]
    return sources[0] is not None and sources[0] == sources[1]


def _added(store: StoreForm) -> Finding:
    if store.is_global or (store.details is not None and store.details.source_topic is not None):
        return _store_finding(store, (Verdict.SAFE, " is new, and is read from its topic at the start", ""))
    return _store_finding(
        store, (Verdict.SAFE, " is new and starts empty: it knows only what is processed from now on", AFRESH)
    )


def _gone(versions: Versions, store: StoreForm) -> Finding:
    name, position = store.name, versions.new.start
    if store.is_global:
        return Finding(Verdict.SAFE, "store", name, f"global store {name} is gone", "", position, old=name)
    maybe = [added.name for added in versions.matched.added if not added.is_global]
    changelog = f"{versions.old.changelog(name)}{versions.shown_records(name)}"
    if not versions.old.has_tasks and maybe:
        text = f"no store has the changelog {changelog}; it may be that of {' or '.join(maybe)}, which is new"
        todo = f"if it is, call that store {name}; otherwise delete the topic"
        return Finding(Verdict.UNKNOWN, "store", name, text, todo, position, old=name)
    text = f"store {name} is gone: its changelog {changelog} is no longer used"
    todo = "delete the topic once you are sure not to go back to the old version"
    return Finding(Verdict.SAFE, "store", name, text, todo, position, old=name)


# Suggests options that keep the present name of a store or a topic.

_ENDINGS = {
    "join_window": (
        ("-outer-this-join-store", "store"),
        ("-outer-other-join-store", "store"),
        ("-this-join-store", "store"),
        ("-other-join-store", "store"),
    ),
    "outer_join": (("-left-shared-join-store", "store"), ("-outer-shared-join-store", "store")),
    "suppress": (("-store", "name"),),
    "subscription": (("-subscription-store", "name"),),
    "join_grace": (("-Buffer", "name"),),
}
"""Suffixes of store names that a step derives from an option, and that option, by kind of store."""
_TOPIC_ENDINGS = (
    ("-subscription-registration-topic", "name"),
    ("-subscription-response-topic", "name"),
    ("-left-repartition", "name"),
    ("-right-repartition", "name"),
)
_SECTION = ("process", "process_values", "global_store", "read_only_store")
"""Steps whose stores have their names in the section `stores`."""
_GROUPED = ("count", "reduce", "aggregate")
_GENERATED = (
    "no option gives it this generated name: keep as many steps before it as there were, for example by putting new "
    "pipelines at the end of the file"
)


def keep_store(new: Form, store: StoreForm, name: str) -> str:
    """Return the option that gives a store of the new version the name `name`."""
    kind = store.rows.kind if store.rows is not None else ""
    step = store.place.step
    if not step:
        return f"give it the name {name} (Materialized.as), and run diff again"
    if step in _SECTION:
        return f"call it `{name}` in the section `stores`, and where steps name it"
    if kind in _ENDINGS:
        for ending, option in _ENDINGS[kind]:
            if name.endswith(ending):
                return _write(store.place, f"{option}: {name.removesuffix(ending)}")
        if kind != "join_window":
            return _GENERATED
        return _write(store.place, f"{_side(new, store)}: {{name: {name}}}")
    return _write(store.place, f"store: {name}")


def keep_topic(topic: TopicForm, name: str) -> str:
    """Return the option that gives an internal topic of the new version the name `name`."""
    step = topic.place.step
    for ending, option in _TOPIC_ENDINGS:
        if name.endswith(ending) and step.endswith("join"):
            return _write(topic.place, f"{option}: {name.removesuffix(ending)}")
    base = name.removesuffix("-repartition")
    if (
        not step
        or base == name
        or (step.endswith("join") and topic.name.endswith(("-left-repartition", "-right-repartition")))
    ):
        return _GENERATED
    if step in _GROUPED:
        return f"write `name: {base}` in the group_by or group_by_key before {_shown(topic.place)}"
    return _write(topic.place, f"name: {base}")


def _write(place: Place, option: str) -> str:
    if place.step in ("table", "global_table"):
        return f"write `{option}` beside `{place.step}:` in line {place.position.line}"
    return f"write `{option}` in the step {_shown(place)}"


def _shown(place: Place) -> str:
    return f"{place.pipeline}.{place.step} (line {place.position.line})"


def _side(new: Form, store: StoreForm) -> str:
    """Return the option that names a join's own store; a name that is not generated belongs to the left side first."""
    if re.search(r"THIS-|-this-", store.name):
        return "this_store"
    if re.search(r"OTHER-|-other-", store.name):
        return "other_store"
    same = [other.name for other in new.stores.values() if other.place == store.place]
    return "this_store" if same.index(store.name) == 0 else "other_store"


# Matches the stores and topics of two versions: by equal names, and by likely renames.

StoreOrTopic = TypeVar("StoreOrTopic", StoreForm, TopicForm)
_INDEX = re.compile(r"\d{10}")


@dataclass(frozen=True)
class Matched(Generic[StoreOrTopic]):
    """The stores, or the topics, of two versions, matched."""

    kept: tuple[tuple[StoreOrTopic, StoreOrTopic], ...]
    """Of the same name: old and new."""
    renamed: tuple[tuple[StoreOrTopic, StoreOrTopic], ...]
    """Likely the same under another name: old and new."""
    gone: tuple[StoreOrTopic, ...]
    added: tuple[StoreOrTopic, ...]

    @property
    def names(self) -> dict[str, str]:
        """Return the new name of each old one."""
        return {old.name: new.name for old, new in (*self.kept, *self.renamed)}


def match_stores(old: Mapping[str, StoreForm], new: Mapping[str, StoreForm]) -> Matched[StoreForm]:
    """Return the stores of two versions, matched by the names of their changelogs."""
    return _match(old, new, _stores_alike)


def match_topics(old: Mapping[str, TopicForm], new: Mapping[str, TopicForm]) -> Matched[TopicForm]:
    """Return the internal topics of two versions, matched."""
    return _match(old, new, _topics_alike)


def _match(
    old: Mapping[str, StoreOrTopic],
    new: Mapping[str, StoreOrTopic],
    alike: Callable[[StoreOrTopic, StoreOrTopic], float | None],
) -> Matched[StoreOrTopic]:
    gone = {name: form for name, form in old.items() if name not in new}
    added = {name: form for name, form in new.items() if name not in old}
    scores = [
        (score, one, other) for one in gone for other in added if (score := alike(gone[one], added[other])) is not None
    ]
    renamed = []
    # Sorting is stable: among equal scores the order of the versions decides, which is that of generated names too.
    for _, one, other in sorted(scores, key=lambda score: -score[0]):
        if one in gone and other in added:
            renamed.append((gone.pop(one), added.pop(other)))
    kept = tuple((form, new[name]) for name, form in old.items() if name in new)
    return Matched(kept, tuple(renamed), tuple(gone.values()), tuple(added.values()))


def is_generated(name: str) -> bool:
    """Return whether a name has an index of Kafka Streams, and so depends on the steps before it."""
    return _INDEX.search(name) is not None


def _role(name: str) -> str:
    # A side of a stream-stream join has another prefix if it is an outer side.
    return re.sub("KSTREAM-OUTER(THIS|OTHER)-", r"KSTREAM-JOIN\1-", _INDEX.sub("#", name))


def _stores_alike(old: StoreForm, new: StoreForm) -> float | None:
    """Return the likelihood that two stores are the same one; None if the new one can't use the rows of the old one."""
    if old.is_global != new.is_global or not _rows_fit(old.rows, new.rows):
        return None
    return _alike(old, new)


def _topics_alike(old: TopicForm, new: TopicForm) -> float | None:
    if None not in (old.value_kind, new.value_kind) and old.value_kind != new.value_kind:
        return None
    return _alike(old, new)


def _alike(old: StoreOrTopic, new: StoreOrTopic) -> float | None:
    generated = is_generated(old.name), is_generated(new.name)
    if all(generated) and _role(old.name) != _role(new.name):
        return None
    if not old.roots or not new.roots:
        # A log has names only, and names that users give are not comparable.
        return 1.0 if all(generated) else None
    common = len(old.roots & new.roots) / len(old.roots | new.roots)
    if not common:
        return None
    same_pipeline = bool(old.place.pipeline) and old.place.pipeline == new.place.pipeline
    same_step = same_pipeline and old.place.step == new.place.step
    return 2 * common + 3 * same_pipeline + same_step + all(generated)


def _rows_fit(old: RowForm | None, new: RowForm | None) -> bool:
    if old is None or new is None:
        return True
    return all(verdict is not Verdict.INCOMPATIBLE for verdict, _ in compare_rows(old, new))
