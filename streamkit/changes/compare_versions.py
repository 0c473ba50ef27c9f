"""Compares two versions of an application."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from streamkit.changes.finding import Finding, Verdict
from streamkit.changes.forms.form import ExternalForm, Form, OnLog, StepForm, SubForm, TopicForm
from streamkit.changes.forms.serde_forms import Reads, reads
from streamkit.changes.keep import keep_topic
from streamkit.changes.match import Matched, is_generated, match_stores, match_topics
from streamkit.changes.store_changes import Versions, compare_stores
from streamkit.errors import Position


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


# Compares the steps of pipelines, and the generated names of nodes.


def compare_pipelines(old: Form, new: Form) -> Iterator[Finding]:
    """Yield a finding for each pipeline that is new, gone or has other steps."""
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
    matcher = SequenceMatcher(None, [each[:2] for each in old], [each[:2] for each in new], autojunk=False)
    for tag, begin, end, start, stop in matcher.get_opcodes():
        if tag == "equal":
            continue
        before, after = [each.step for each in old[begin:end]], [each.step for each in new[start:stop]]
        if before == after:
            parts.append(
                f"{', '.join(after)} does something else"
                if len(after) == 1
                else f"{', '.join(after)} do something else"
            )
            continue
        if before:
            parts.append(f"{', '.join(before)} {'is' if len(before) == 1 else 'are'} gone")
        if after:
            parts.append(f"{', '.join(after)} {'is' if len(after) == 1 else 'are'} new")
    return "; ".join(parts)


def _first(old: Sequence[StepForm], new: Sequence[StepForm]) -> Position:
    known = {each[:2] for each in old}
    return next((each.position for each in new if each[:2] not in known), new[0].position)


def compare_names(old: Form, new: Form) -> Iterator[Finding]:
    """Yield a finding where the generated names of nodes change, on which only metrics depend."""
    if not old.has_tasks or not new.has_tasks:
        return
    before = {name for each in old.sub_topologies for name in each.nodes}
    after = {name for each in new.sub_topologies for name in each.nodes}
    gone = sorted(name for name in before - after if is_generated(name))
    if gone and after - before:
        nodes = "1 node is" if len(gone) == 1 else f"{len(gone)} nodes are"
        text = (
            f"generated names change: {nodes} called otherwise ({', '.join(gone[:2])}{', …' if len(gone) > 2 else ''})"
        )
        yield Finding(Verdict.SAFE, "names", "", f"{text}, and so are their metrics", "", new.start)


# Compares the tasks of two versions: sub-topologies that move, are new or are gone.

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
            yield from _moved(versions, one, other)
        elif _renamed(one.sources, topics) != other.sources:
            yield _stop(
                other,
                f"sub-topology {other.id} {_inputs(_renamed(one.sources, topics), other.sources)}",
                other.place.position,
            )
    found = {one.id for one, _ in pairs}
    for one in old.sub_topologies:
        if one.id not in found and not one.is_global:
            yield _stop(one, f"sub-topology {one.id} is gone", new.start)
    yield from _moved_stores(versions, {one.id: other.id for one, other in pairs})


def _renamed(names: frozenset[str], new: Mapping[str, str]) -> frozenset[str]:
    return frozenset(new.get(name, name) for name in names)


def _pairs(old: Form, new: Form, stores: Mapping[str, str], topics: Mapping[str, str]) -> list[tuple[SubForm, SubForm]]:
    """Return the matched sub-topologies: those with most stores and topics in common."""
    left = {each.id: each for each in old.sub_topologies if not each.is_global}
    right = {each.id: each for each in new.sub_topologies if not each.is_global}
    scores = []
    for one in left.values():
        things = {*_renamed(one.sources, topics), *(stores.get(store, store) for store in one.stores)}
        for other in right.values():
            common = len(things & {*other.sources, *other.stores})
            if common:
                scores.append((common, one.id == other.id, one.id, other.id))
    found = []
    for _, _, one_id, other_id in sorted(scores, key=lambda each: (-each[0], not each[1], each[2], each[3])):
        if one_id in left and other_id in right:
            found.append((left.pop(one_id), right.pop(other_id)))
    return found


def _stop(sub: SubForm, what: str, position: Position) -> Finding:
    message = f"{what}: instances of the old version do not know its tasks"
    if what.endswith("gone"):
        message = f"{what}: instances of the old version still expect its tasks"
    return Finding(Verdict.STOP, "sub-topology", str(sub.id), message, _STOP_ALL, position, sub.place.pipeline)


def _moved(versions: Versions, one: SubForm, other: SubForm) -> Iterator[Finding]:
    kept = [name for name in other.stores if name in one.stores and _has_state(versions, name)]
    text = f"sub-topology {other.id} was {one.id}: its tasks are called {other.id}_… instead of {one.id}_…"
    if not kept:
        yield Finding(
            Verdict.STOP,
            "sub-topology",
            str(other.id),
            text,
            _STOP_ALL,
            other.place.position,
            other.place.pipeline,
            str(one.id),
        )
        return
    text += f"; {_listed(kept)} {'is' if len(kept) == 1 else 'are'} read again from the changelog{'' if len(kept) == 1 else 's'}"
    action = f"{_STOP_ALL}, and plan for the time of restoring"
    yield Finding(
        Verdict.RESTORE,
        "sub-topology",
        str(other.id),
        text,
        action,
        other.place.position,
        other.place.pipeline,
        str(one.id),
    )


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
        action = f"{_STOP_ALL}, and plan for the time of restoring"
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
            f"topic {name} has {was} partitions, and the new version needs {now}: the state behind it is partitioned by {was}",
            f"keep {was}, or set the application back with `streamkit reset-offsets`, which deletes its internal topics",
        )
    unread = _unread(old, other.name, on_log)
    if unread == 0:
        return
    for side, before, after in (("key", one.key, other.key), ("value", one.value, other.value)):
        answer, why = reads(before, after)
        if answer is not Reads.YES:
            verdict = Verdict.INCOMPATIBLE if answer is Reads.NO else Verdict.UNKNOWN
            records = "records" if unread is None else f"{unread} records"
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
    place = instead.place if instead is not None else None
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
    position = place.position if place is not None else versions.new.start
    return Finding(verdict, "topic", now, text, action, position, place.pipeline if place else "", topic.name)


# -- External topics ----------------------------------------------------------------------------------------------------


def compare_externals(old: Form, new: Form) -> Iterator[Finding]:
    """Yield the changes of the topics of the file."""
    for name, topic in (new.externals or {}).items():
        before = (old.externals or {}).get(name)
        if before is None:
            continue
        if before.read and topic.read:
            yield from _partitions(old, new, before, topic)
        for side, was, now in (("key", before.key, topic.key), ("value", before.value, topic.value)):
            if was == now or None in (was, now):
                continue
            why = reads(was, now)[1]
            if why and topic.read:
                text, todo = f"topic {name}: the {side} {why}", "see that the records on it are in the new form"
            elif why and before.written and topic.written:
                text, todo = f"topic {name}: the {side} {why}", "tell those who read it"
            else:
                continue
            yield Finding(Verdict.UNKNOWN, "topic", name, text, todo, _position(new, name))


def _position(form: Form, topic: str) -> Position:
    for each in form.sub_topologies:
        if topic in each.sources:
            return each.place.position
    return form.start


def _partitions(old: Form, new: Form, before: ExternalForm, topic: ExternalForm) -> Iterator[Finding]:
    was, now = before.partitions, topic.partitions
    if was is None or now is None or was == now:
        return
    bound = [each.name for each in new.stores.values() if topic.name in each.roots and not each.is_global]
    bound += [each.name for each in new.topics.values() if topic.name in each.roots]
    text = f"topic {topic.name} had {was} partitions, has {now}"
    if bound:
        text += f", by which {', '.join(bound[:3])}{' and others' if len(bound) > 3 else ''} are partitioned"
        todo = "keep the number, or copy the topic to a new one and set the application back with `streamkit reset-offsets`"
        yield Finding(Verdict.INCOMPATIBLE, "topic", topic.name, text, todo, _position(new, topic.name))
    else:
        todo = "stop all instances before the topic changes, and start the new version after"
        yield Finding(Verdict.STOP, "topic", topic.name, text, todo, _position(new, topic.name))
