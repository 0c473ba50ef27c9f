"""Decides which changelogs a migration copies, and how."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass

from streamkit.changes.compare_versions import match_stores
from streamkit.changes.finding import Verdict
from streamkit.changes.form import Form, RowForm, StoreForm
from streamkit.changes.of_plan import rows_of
from streamkit.changes.serde_forms import compare_rows
from streamkit.errors import MigrationError, UsageError
from streamkit.plan.model import Plan, SinkNode
from streamkit.runtime.operations.record_copy import Copy, Replacement, RowConversion, conversion_of, staging_topic
from streamkit.suggestions import did_you_mean
from streamkit.transport.log_interface import NewTopic


@dataclass(frozen=True)
class Version:
    """A version of the application: its plan, and its form with the partition counts on the log."""

    plan: Plan
    form: Form


@dataclass(frozen=True)
class StoreMove:
    """A store whose changelog changes. copy None: it can't be copied, for the reason `refused`."""

    old: str
    new: str
    source: str
    target: str
    copy: Copy | Replacement | None
    refused: str = ""


def matched_stores(old: Form, new: Form, renames: Mapping[str, str]) -> dict[str, str]:
    """Return the new names of stores by the old ones: those given in `renames`, then those that `diff` matches.

    renames: an empty new name means that the store is not kept. A step keeps its store even if both its name and its serde
    change. Raises UsageError.
    """
    given = {name: other for name, other in renames.items() if other}
    for name, form, what in (
        *((each, old, "old") for each in renames),
        *((each, new, "new") for each in given.values()),
    ):
        if name not in form.stores:
            hint = did_you_mean(name, form.stores, "")
            raise UsageError(f"--store {name}: the {what} version has no store {name!r}{hint}")
    if len(set(given.values())) < len(given):
        raise UsageError("--store: two stores can't become one")
    left = {name: store for name, store in old.stores.items() if name not in renames}
    right = {name: store for name, store in new.stores.items() if name not in given.values()}
    matched = match_stores(left, right)
    found = {**given, **matched.names}
    added = {each.name: each for each in matched.added}
    for gone in matched.gone:
        other = next((each for each in added.values() if _same_step(gone, each)), None)
        if other is not None:
            found[gone.name] = added.pop(other.name).name
    return found


def _same_step(old: StoreForm, new: StoreForm) -> bool:
    kinds = [(each.rows.kind, each.rows.window_size) if each.rows is not None else None for each in (old, new)]
    is_same = bool(old.place.step) and old.place[:2] == new.place[:2] and old.is_global == new.is_global
    return is_same and kinds[0] == kinds[1]


def store_moves(
    old: Version,
    new: Version,
    names: Mapping[str, str],
    existing: Mapping[str, int],
    targets: Mapping[str, NewTopic],
    has_run: Callable[[], bool],
) -> Iterator[StoreMove]:
    """Yield the stores whose changelog has another name, other rows or other partitions.

    names: new names of stores by the old ones; existing: partition counts on the log; targets: the changelogs of the new
    version by their names; has_run: returns whether the group of the old version has committed offsets.
    """
    old_rows, new_rows = rows_of(old.plan), rows_of(new.plan)
    for one, other in names.items():
        target = targets.get(new.plan.changelog_name(other) or "")
        if target is None or old.form.stores[one].is_global:
            continue  # a global store, or one of a source topic: the start reads its topic
        before, after = old.plan.stores[one], new.plan.stores[other]
        source = old.plan.changelog_name(one)
        if source is None:
            yield StoreMove(one, other, "", target.name, None, "it had no changelog, so that no log has its rows")
            continue
        staging = staging_topic(target.name)
        is_staged = source == target.name and staging in existing
        if source not in existing and not is_staged:
            # A target exists if the rows were moved before, or the new version has run.
            if source != target.name and target.name not in existing and has_run():
                yield StoreMove(one, other, source, target.name, None, _absent(source, old, one))
            continue
        moves = is_staged or existing[source] != target.partitions
        form = json.dumps({"rows": asdict(new_rows[other]), "partitions": target.partitions}, sort_keys=True)
        try:
            conversion = conversion_of(before, after, old_rows[one], new_rows[other])
            if moves or conversion.key is not None:
                _check_routing(new.plan, other, conversion)
        except MigrationError as error:
            yield StoreMove(one, other, source, target.name, None, str(error))
            continue
        if source != target.name:
            group = old.plan.application if before.source_topic is not None else None
            yield StoreMove(
                one, other, source, target.name, Copy(source, target, conversion, form, old_rows[one], group)
            )
        elif moves or _is_misread(old_rows[one], new_rows[other]):
            yield StoreMove(
                one, other, source, target.name, Replacement(source, target, conversion, form, old_rows[one])
            )


def _absent(source: str, old: Version, store: str) -> str:
    return (
        f"{source} is not on the log, and group {old.plan.application} has committed offsets: the OLD to give is the version "
        f"that ran last; if the topic was deleted, `--store {store}=` lets the store start empty"
    )


def _is_misread(old: RowForm, new: RowForm) -> bool:
    """Return whether the new version would misread the rows; serdes that can't be compared are left to the user."""
    return any(verdict is Verdict.INCOMPATIBLE for verdict, _ in compare_rows(old, new))


def _check_routing(plan: Plan, store: str, conversion: RowConversion) -> None:
    """Raise MigrationError if the rows of a store can't be assigned to other partitions by their keys."""
    if conversion.routing is None:
        raise MigrationError("its rows contain partitions, so that they can't change theirs")
    sources = {topic for sub in plan.sub_topologies if store in sub.stores for topic in sub.source_topics}
    for node in (node for sub in plan.sub_topologies for node in sub.nodes.values()):
        if isinstance(node, SinkNode) and node.topic in sources and node.partition is not None:
            raise MigrationError(
                f"an expression gives the partitions of {plan.internal_name(node.topic or '')}, not the key"
            )
