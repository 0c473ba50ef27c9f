"""Compares the tasks of two versions: sub-topologies that move, are new or are gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streamkit.changes.finding import Finding, Verdict
from streamkit.changes.forms.form import Form, SubForm
from streamkit.changes.store_changes import Versions
from streamkit.errors import Position

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
