"""Moves the state of an application from one version to the next, while no instance runs."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from streamkit.changes.compare_versions import compare, match_stores, match_topics
from streamkit.changes.finding import Finding, Verdict
from streamkit.changes.form import Form, OnLog, RowForm, StoreForm
from streamkit.changes.of_log import read_log
from streamkit.changes.of_plan import form_of, rows_of
from streamkit.changes.serde_forms import Reads, compare_rows, reads
from streamkit.errors import ActiveGroupError, FencedError, MigrationError, UsageError
from streamkit.plan.model import Plan, SinkNode
from streamkit.plan.partitions import Layout, lay_out, source_topics
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.execution import metadata
from streamkit.runtime.local.client import Application
from streamkit.runtime.operations.migration_journal import OFFSETS, Entry, Journal
from streamkit.runtime.operations.opening import address
from streamkit.runtime.operations.record_copy import (
    Copy,
    LogAccess,
    Replacement,
    RowConversion,
    conversion_of,
    staging_topic,
)
from streamkit.runtime.operations.reset import locked_state
from streamkit.state.directory import directories_of, stored, translated
from streamkit.state.engines.open_maps import ENGINES
from streamkit.suggestions import did_you_mean, number_of
from streamkit.transport.log_interface import Admin, CommittedOffset, NewTopic, Transport


class State(StrEnum):
    """The state of a step."""

    TO_DO = "to do"
    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True)
class Step:
    """One step. count: the number of records, offsets or directories, None if nothing is counted; reason: why it is refused."""

    kind: str
    """drain, delete, copy, offsets or directories."""
    subject: str
    """The store or the topic; for offsets the group, for directories the path of the application's directory."""
    text: str
    count: int | None
    state: State = State.TO_DO
    reason: str = ""


@dataclass(frozen=True)
class Migration:
    """The steps of a migration, in order. members: the active ones by group; left: findings that the user must handle."""

    application: str
    steps: tuple[Step, ...]
    members: Mapping[str, tuple[str, ...]]
    left: tuple[Finding, ...]

    @property
    def is_possible(self) -> bool:
        """Whether no step is refused."""
        return all(step.state is not State.REFUSED for step in self.steps)

    @property
    def is_done(self) -> bool:
        """Whether no step is left."""
        return all(step.state is State.DONE for step in self.steps)


class Migrator:
    """The migration of a log from one version of an application to the next.

    Both plans name the same log. renames: the stores to match, new names by old ones. Raises UsageError.
    """

    def __init__(self, old: Plan, new: Plan, transport: Transport, renames: Mapping[str, str]):
        _check_one_log(old, new)
        self.old, self.new = old, new
        self._transport, self._renames = transport, renames

    def prepare(self) -> Migration:
        """Return the steps and their counts without changing anything.

        Rows that change are converted, to find rows that can't be. Raises UsageError, InvalidTopologyError, TransportError,
        StateError.
        """
        with closing(self._transport.admin()) as admin:
            log = LogAccess(self._transport, admin, Journal(self.new, self._transport, admin))
            comparison = _Comparison(self.old, self.new, log, self._renames)
            steps = [*comparison.drains(), *comparison.copies(), *comparison.offsets(), *self._directories()]
            return Migration(self.new.application, tuple(steps), self._members(admin), tuple(comparison.left(steps)))

    def execute(self) -> None:
        """Execute all steps that are not done.

        It may be repeated after a failure or a crash at any point. Raises ActiveGroupError, MigrationError if a step is
        refused, StateLockedError if a process on this machine uses the state directory, TransportError, StateError, and the
        errors of the old version while it drains topics.
        """
        self._check(self.prepare())
        self._drain()
        with ExitStack() as stack:
            for directory in {*self._directories_of(self.old), *self._directories_of(self.new)}:
                stack.enter_context(locked_state(directory))
            admin = stack.enter_context(closing(self._transport.admin()))
            log = LogAccess(self._transport, admin, Journal(self.new, self._transport, admin))
            comparison = _Comparison(self.old, self.new, log, self._renames)
            unread = [topic for topic, count in comparison.unread().items() if count]
            if unread:
                raise MigrationError(
                    f"{', '.join(unread)} has unread records: stop all instances and producers, and repeat"
                )
            copies = [change.copy for change in comparison.moves if change.copy is not None]
            moves: list[Copy | Replacement | OffsetMove] = [*copies, comparison.offset_move]
            todo = [change for change in moves if not change.is_done(log)]
            for change in todo:
                change.begin(log)
            admin.delete_topics(comparison.recreated())
            for change in todo:
                try:
                    change.run(log)
                except FencedError:
                    # Of a member that has joined meanwhile.
                    _check_members(self._members(admin))
                    raise
            _check_members(self._members(admin))
            if self._has_one_directory():
                for directory in self._directories_of(self.new):
                    move(directory, find_moves(self.new, directory))

    def _check(self, migration: Migration) -> None:
        _check_members(migration.members)
        refused = [step for step in migration.steps if step.state is State.REFUSED]
        if refused:
            raise MigrationError("; ".join(f"{step.kind} {step.subject}: {step.reason}" for step in refused))

    def _members(self, admin: Admin) -> dict[str, tuple[str, ...]]:
        """Return the active members of both groups; groups without members are omitted."""
        members_of = {
            group: tuple(admin.group_members(group)) for group in (self.old.application, self.new.application)
        }
        return {group: members for group, members in members_of.items() if members}

    def _drain(self) -> None:
        """Run the old version until it has read every repartition topic that the new one does not read."""
        with closing(self._transport.admin()) as admin:
            log = LogAccess(self._transport, admin, Journal(self.new, self._transport, admin))
            unread = _Comparison(self.old, self.new, log, self._renames).unread()
        if any(unread.values()):
            self.run_old()

    def run_old(self) -> None:
        """Run the old version until it is idle. Raises its errors."""
        Application(self.old, self._transport).run(until_idle=True, stop=threading.Event())

    @staticmethod
    def _directories_of(plan: Plan) -> list[Path]:
        return directories_of(plan.config.state_dir, plan.application)

    def _has_one_directory(self) -> bool:
        return self._directories_of(self.old) == self._directories_of(self.new)

    def _directories(self) -> Iterator[Step]:
        for directory in self._directories_of(self.new) if self._has_one_directory() else ():
            moves = find_moves(self.new, directory)
            if moves:
                names = ", ".join(f"{name} to {target}" for name, target in moves.items())
                yield Step("directories", str(directory), f"rename {names}: their state is not restored", len(moves))


def shown_members(groups: Mapping[str, Sequence[str]]) -> str:
    """Return groups and their active members as text."""
    return "; ".join(
        f"group {group} is active with {number_of(len(members), 'member')} ({', '.join(members)})"
        for group, members in groups.items()
    )


def _check_members(groups: Mapping[str, Sequence[str]]) -> None:
    if groups:
        raise ActiveGroupError(f"{shown_members(groups)}; stop all instances")


def _check_one_log(old: Plan, new: Plan) -> None:
    places = [(address(plan), plan.config.state_dir if address(plan) == "embedded" else "") for plan in (old, new)]
    if places[0] != places[1]:
        shown = [" in ".join(filter(None, place)) for place in places]
        raise UsageError(
            f"both versions must use the same log: {old.file} names {shown[0]}, {new.file} names {shown[1]}"
        )


class _Comparison:
    """Both versions compared with the log."""

    def __init__(self, old: Plan, new: Plan, log: LogAccess, renames: Mapping[str, str]):
        self._on_log: OnLog
        self._on_log, _, self._existing = read_log(old, log.transport)
        declared = {t.name: t.partitions for p in (old, new) for t in p.external_topics.values() if t.partitions}
        counts = {**declared, **self._existing}
        self.old = Version(old, form_of(old, old.file, counts))
        self.new = Version(new, form_of(new, new.file, counts))
        self._log = log
        self._layout: Layout = lay_out(new, counts)
        self._names = matched_stores(self.old.form, self.new.form, renames)
        targets = {topic.name: topic for topic in self._layout.changelogs}
        self._topics = match_topics(self.old.form.topics, self.new.form.topics)
        resized = self._resized_answers()
        self.moves = list(store_moves(self.old, self.new, self._names, self._existing, targets, resized, self._has_run))

    def _resized_answers(self) -> set[str]:
        """Return the new names of the stores whose subscriptions are answered in other partitions than before."""
        wanted = {topic.name: topic.partitions for topic in self._layout.repartitions}
        return {
            other
            for one, other in self._names.items()
            if [self._existing.get(topic) for topic in _answers(self.old.plan, one)]
            != [wanted.get(topic) for topic in _answers(self.new.plan, other)]
        }

    def _has_run(self) -> bool:
        """Return whether the group of the old version has committed offsets."""
        inputs = self.offset_move.inputs
        places = [TopicPartition(topic, number) for topic, count in inputs.items() for number in range(count)]
        with closing(self._log.transport.consumer(self.old.plan.application)) as consumer:
            return bool(consumer.committed(places))

    # -- Repartition topics ---------------------------------------------------------------------------------------------

    def unread(self) -> dict[str, int]:
        """Return the number of unread records of each topic that the new version reads differently or not at all."""
        names = [self.old.form.log_name(topic.name) for topic in self._topics.gone]
        names += [self.old.form.log_name(one.name) for one, _ in self._topics.renamed]
        for one, other in self._topics.kept:
            is_other = one.value_kind != other.value_kind or any(
                reads(*pair)[0] is not Reads.YES for pair in ((one.key, other.key), (one.value, other.value))
            )
            if is_other or self.old.plan.application != self.new.plan.application:
                names.append(self.old.form.log_name(one.name))
        return {name: self._on_log.unread[name] for name in (*names, *self.recreated()) if name in self._on_log.unread}

    def recreated(self) -> list[str]:
        """Return the existing repartition topics whose number of partitions must change."""
        return [
            topic.name
            for topic in self._layout.repartitions
            if self._existing.get(topic.name, topic.partitions) != topic.partitions
        ]

    def drains(self) -> Iterator[Step]:
        """Yield the steps of repartition topics."""
        for name, count in self.unread().items():
            if count:
                text = f"let {self.old.plan.file} read what is left in {name}, until it is idle"
                yield Step("drain", name, text, count)
        for topic in self._layout.repartitions:
            if topic.name in self.recreated():
                text = f"delete {topic.name}: it has {number_of(self._existing[topic.name], 'partition')}, and needs {topic.partitions}"
                yield Step("delete", topic.name, text, None)

    # -- Changelogs and offsets -----------------------------------------------------------------------------------------

    def copies(self) -> Iterator[Step]:
        """Yield the steps of changelogs."""
        for store_move in self.moves:
            if store_move.copy is None:
                yield Step("copy", store_move.new, "copy its changelog", None, State.REFUSED, store_move.refused)
                continue
            text = self._text(store_move.source, store_move.copy)
            try:
                if store_move.copy.is_done(self._log):
                    yield Step("copy", store_move.new, text, None, State.DONE)
                    continue
                store_move.copy.check(self._log)
                yield Step("copy", store_move.new, text, store_move.copy.count(self._log))
            except MigrationError as error:
                yield Step("copy", store_move.new, text, None, State.REFUSED, str(error))

    def _text(self, source: str, copy: Copy | Replacement) -> str:
        target = copy.target
        old = self._existing.get(source, target.partitions)
        where = "over itself" if isinstance(copy, Replacement) else f"to {target.name}"
        changes = []
        if not copy.conversion.copies_bytes:
            changes.append("rows get the new serdes")
        if old != target.partitions:
            changes.append(f"{old} partitions become {target.partitions}")
        return f"copy {source} {where}{': ' if changes else ''}{', '.join(changes)}"

    @property
    def offset_move(self) -> OffsetMove:
        """The move of committed offsets."""
        old, new = self.old.plan, self.new.plan
        read = {
            topic: self._existing[topic]
            for sub in old.sub_topologies
            if not sub.is_global
            for topic in source_topics(old, sub, self._existing)
            if topic in self._existing
        }
        internal = old.internal_names
        wanted: dict[str, NewTopic] = {topic.name: topic for topic in self._layout.repartitions}
        topics = {
            self.old.form.log_name(before): wanted[self.new.form.log_name(after)]
            for before, after in self._topics.names.items()
            if self.old.form.log_name(before) != self.new.form.log_name(after)
        }
        return OffsetMove(
            old.application,
            new.application,
            {name: count for name, count in read.items() if name not in internal},
            {name: count for name, count in read.items() if name in internal},
            topics,
            {one: other for one, other in self._names.items() if one != other},
        )

    def offsets(self) -> Iterator[Step]:
        """Yield the step of committed offsets."""
        group = self.new.plan.application
        move = self.offset_move
        try:
            if move.is_done(self._log):
                return
            pending = move.pending(self._log)
        except MigrationError as error:
            yield Step("offsets", group, "commit the offsets of the old version", None, State.REFUSED, str(error))
            return
        topics = ", ".join(sorted({partition.topic for partition in pending}))
        text = f"commit the offsets and times of the old version for {topics}"
        yield Step("offsets", group, text if pending else "note that the offsets are committed", len(pending))

    def left(self, steps: Sequence[Step]) -> Iterator[Finding]:
        """Yield the findings of `diff` that need an action outside the steps."""
        refused = {step.subject for step in steps if step.state is State.REFUSED}
        solved = {move.new for move in self.moves if move.new not in refused}
        roots = {root for move in self.moves for root in self.new.form.stores[move.new].roots}
        for finding in compare(self.old.form, self.new.form, self._on_log, offers_migration=False):
            is_open = finding.verdict in (Verdict.UNKNOWN, Verdict.RESTORE, Verdict.RENAMED, Verdict.INCOMPATIBLE)
            if not is_open or finding.subject in ("application", "sub-topology"):
                continue
            if finding.subject == "store" and (finding.name in solved or finding.name in refused):
                continue
            if finding.subject == "topic" and (finding.name in roots or finding.name in self.new.form.topics):
                continue
            yield finding


# Keeps the committed offsets of a group if the application, its repartition topics or its stores are renamed.

Offsets = dict[TopicPartition, CommittedOffset]


@dataclass(frozen=True)
class OffsetMove:
    """The groups of both versions, the inputs of the old one, and new names.

    inputs: partition counts by external topic; internals: partition counts by internal topic; topics: new repartition
    topics by old ones; stores: new names by old ones, for the times in the metadata of offsets.
    """

    old_group: str
    new_group: str
    inputs: Mapping[str, int]
    internals: Mapping[str, int]
    topics: Mapping[str, NewTopic]
    stores: Mapping[str, str]

    def pending(self, log: LogAccess) -> Offsets:
        """Return the offsets to commit for the new group. Raises MigrationError if it has other offsets."""
        inputs, internals = self._read(log, self.inputs), self._read(log, self.internals)
        # A new repartition topic is read from its beginning; stream time and the times of stores continue.
        begun = {
            TopicPartition(self.topics[place.topic].name, place.partition): CommittedOffset(0, offset.metadata)
            for place, offset in internals.items()
            if place.topic in self.topics and self.topics[place.topic].partitions == self.internals[place.topic]
        }
        present = self._present(log, [*inputs, *internals, *begun])
        fresh = {place: offset for place, offset in begun.items() if place not in present}
        if self.old_group == self.new_group:
            kept = {place: offset for place, offset in internals.items() if place.topic not in self.topics}
            return {**fresh, **{p: offset for p, offset in {**inputs, **kept}.items() if present.get(p) != offset}}
        return {**fresh, **self._of_inputs(log, inputs, present)}

    def _of_inputs(self, log: LogAccess, inputs: Offsets, present: Offsets) -> Offsets:
        """Return the offsets of inputs to copy to another group: none if it already has them, or has moved past them."""
        entry, offsets = log.journal.get(OFFSETS), _offsets(inputs)
        is_own = entry is not None and entry.form == self.form
        if entry is not None and is_own and entry.done and entry.source_ends == offsets:
            return {}
        have = {partition: present[partition] for partition in inputs if partition in present}
        # After a complete move the old version may have run again; the new one may not have.
        untouched = entry is not None and is_own and (not entry.done or entry.source_ends == _offsets(have))
        if have and not untouched and _offsets(have) != offsets:
            raise MigrationError(
                f"group {self.new_group} has committed offsets already: delete the group, or its offsets stay"
            )
        return {partition: offset for partition, offset in inputs.items() if have.get(partition) != offset}

    @property
    def form(self) -> str:
        """The move as text, for the journal."""
        return f"{self.old_group} -> {self.new_group}"

    def _read(self, log: LogAccess, topics: Mapping[str, int]) -> Offsets:
        """Return the old group's offsets, with the new names of stores."""
        places = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
        with closing(log.transport.consumer(self.old_group)) as consumer:
            committed = consumer.committed(places)
        return {
            partition: CommittedOffset(offset.offset, self._renamed(offset.metadata))
            for partition, offset in committed.items()
        }

    def _renamed(self, text: str) -> str:
        time, times = metadata.decode(text)
        if not times.keys() & self.stores.keys():
            return text
        return metadata.encode(
            time, {self.stores.get(name, name): time_of_store for name, time_of_store in times.items()}
        )

    def _present(self, log: LogAccess, places: list[TopicPartition]) -> Offsets:
        existing = log.admin.topics({partition.topic for partition in places})
        with closing(log.transport.consumer(self.new_group)) as consumer:
            return consumer.committed([partition for partition in places if partition.topic in existing])

    def is_done(self, log: LogAccess) -> bool:
        """Return whether nothing is pending and the journal records it. Raises MigrationError if the new group has other offsets."""
        entry = log.journal.get(OFFSETS)
        is_open = entry is not None and not entry.done and entry.form == self.form
        return not is_open and not self.pending(log)

    def begin(self, log: LogAccess) -> None:
        """Record in the journal that the new group has no offsets yet, which keeps its application from starting. Raises TransportError."""
        entry = log.journal.get(OFFSETS)
        if self.old_group != self.new_group and (entry is None or entry.form != self.form):
            log.journal.put(OFFSETS, Entry(False, self.old_group, self.form))

    def run(self, log: LogAccess) -> None:
        """Commit the pending offsets and create the topics that they need. Raises MigrationError, TransportError."""
        pending = self.pending(log)
        names = {partition.topic for partition in pending}
        log.admin.create_topics([topic for topic in self.topics.values() if topic.name in names])
        if pending:  # a crash after the commit leaves the entry only
            with closing(log.transport.consumer(self.new_group)) as consumer:
                consumer.commit(pending)
        if self.old_group != self.new_group:
            offsets = _offsets(self._read(log, self.inputs))
            log.journal.put(OFFSETS, Entry(True, self.old_group, self.form, source_ends=offsets))


def _offsets(offsets: Offsets) -> tuple[int, ...]:
    return tuple(offsets[partition].offset for partition in sorted(offsets))


# Renames the directories of tasks whose sub-topology has another number, so that their state is not restored.

_MOVING = ".moving-"
"""The prefix of a directory's temporary name between its old and new names, because two directories may swap names."""


def find_moves(plan: Plan, directory: Path) -> dict[str, str]:
    """Return the new names of task directories by their current ones.

    Raises StateError. The stores in a directory determine its name, so a repeated migration moves nothing twice. A
    directory stays if its stores are not in the plan, or if a directory that stays has its new name.
    """
    homes = {store: sub.id for sub in plan.sub_topologies if not sub.is_global for store in sub.stores}
    with translated(directory):
        names = [name for name in stored(directory) if name[0].isdigit() and any((directory / name).iterdir())]
    moves = {}
    for name in names:
        task = TaskId.parse(name)
        ids = {homes[store] for store in _stores(directory / name) if store in homes}
        if len(ids) == 1 and task.sub_topology not in ids:
            moves[name] = str(TaskId(ids.pop(), task.partition))
    with translated(directory):
        left = {path.name: path.name.removeprefix(_MOVING) for path in directory.glob(f"{_MOVING}*")}
    return _free({**left, **moves}, set(names))


def move(directory: Path, moves: Mapping[str, str]) -> None:
    """Rename directories. It may be repeated after a crash. Raises StateError."""
    with translated(directory):
        for name, target in moves.items():
            if not name.startswith(_MOVING):
                between = directory / f"{_MOVING}{target}"
                if between.exists():
                    shutil.rmtree(between)  # the old version has restored the task since then
                (directory / name).rename(between)
        for target in dict.fromkeys(moves.values()):
            if (directory / target).exists():
                (directory / target).rmdir()  # `find_moves` has checked that it is empty
            (directory / f"{_MOVING}{target}").rename(directory / target)


def _free(moves: dict[str, str], names: set[str]) -> dict[str, str]:
    """Return the moves whose target is free, or becomes free by another move."""
    while blocked := [name for name, target in moves.items() if target in names and target not in moves]:
        for name in blocked:
            del moves[name]
    return moves


def _stores(task: Path) -> set[str]:
    with translated(task):
        return {path.name for engine in ENGINES for path in (task / engine).glob("*") if path.is_dir()}


# Decides which changelogs a migration copies, and how.


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
    named = {name: other for name, other in renames.items() if other}
    for name, form, what in (
        *((old_name, old, "old") for old_name in renames),
        *((new_name, new, "new") for new_name in named.values()),
    ):
        if name not in form.stores:
            hint = did_you_mean(name, form.stores, "")
            raise UsageError(f"--store {name}: the {what} version has no store {name!r}{hint}")
    if len(set(named.values())) < len(named):
        raise UsageError("--store: two stores can't become one")
    left = {name: store for name, store in old.stores.items() if name not in renames}
    right = {name: store for name, store in new.stores.items() if name not in named.values()}
    matched = match_stores(left, right)
    matching = {**named, **matched.names}
    added = {store.name: store for store in matched.added}
    for gone in matched.gone:
        other = next((candidate for candidate in added.values() if _same_step(gone, candidate)), None)
        if other is not None:
            matching[gone.name] = added.pop(other.name).name
    return matching


def _same_step(old: StoreForm, new: StoreForm) -> bool:
    kinds = [(form.rows.kind, form.rows.window_size) if form.rows is not None else None for form in (old, new)]
    is_same = bool(old.place.step) and old.place[:2] == new.place[:2] and old.is_global == new.is_global
    return is_same and kinds[0] == kinds[1]


def store_moves(
    old: Version,
    new: Version,
    names: Mapping[str, str],
    existing: Mapping[str, int],
    targets: Mapping[str, NewTopic],
    resized: Collection[str],
    has_run: Callable[[], bool],
) -> Iterator[StoreMove]:
    """Yield the stores whose changelog has another name, other rows or other partitions.

    names: new names of stores by the old ones; existing: partition counts on the log; targets: the changelogs of the new
    version by their names; resized: new names of the stores whose rows name partitions that are others now; has_run: returns
    whether the group of the old version has committed offsets.
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
            if other in resized:
                raise MigrationError("its rows contain the partitions of the left table's keys, which change")
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


def _answers(plan: Plan, store: str) -> list[str]:
    """Return the names of the topics that answer subscriptions of a foreign-key join, if the store has such rows."""
    if plan.stores[store].type != "subscription":
        return []
    nodes = (node for sub in plan.sub_topologies if store in sub.stores for node in sub.nodes.values())
    return [
        plan.internal_name(node.target)
        for node in nodes
        if isinstance(node, SinkNode) and node.value_kind == "response"
    ]


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
    for node in plan.nodes:
        if isinstance(node, SinkNode) and node.topic in sources and node.partition is not None:
            raise MigrationError(
                f"an expression gives the partitions of {plan.internal_name(node.topic or '')}, not the key"
            )
