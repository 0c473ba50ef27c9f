"""Compares the internal and external topics of two versions."""

from __future__ import annotations

from collections.abc import Iterator

from streamkit.changes.finding import Finding, Verdict
from streamkit.changes.forms.form import ExternalForm, Form, OnLog, TopicForm
from streamkit.changes.forms.serde_forms import Reads, reads
from streamkit.changes.keep import keep_topic
from streamkit.changes.match import Matched
from streamkit.changes.store_changes import Versions
from streamkit.errors import Position


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
