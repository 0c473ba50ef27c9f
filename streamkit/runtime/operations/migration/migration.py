"""Moves the state of an application from one version to the next, while no instance runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from streamkit.changes.compare_versions import compare
from streamkit.changes.finding import Finding, Verdict
from streamkit.changes.forms.form import OnLog
from streamkit.changes.forms.of_log import read_log
from streamkit.changes.forms.of_plan import form_of
from streamkit.changes.forms.serde_forms import Reads, reads
from streamkit.changes.match import match_topics
from streamkit.errors import ActiveGroupError, MigrationError, UsageError
from streamkit.plan.model import Plan
from streamkit.plan.partitions import Layout, lay_out, source_topics
from streamkit.record import TopicPartition
from streamkit.runtime.local.instance.client import Application
from streamkit.runtime.operations.migration.migrated_offsets import OffsetMove
from streamkit.runtime.operations.migration.migration_journal import Journal
from streamkit.runtime.operations.migration.record_copy import Copy, LogAccess, Replacement
from streamkit.runtime.operations.migration.store_moves import Version, matched_stores, store_moves
from streamkit.runtime.operations.migration.task_directories import find_moves, move
from streamkit.runtime.operations.opening import address
from streamkit.runtime.operations.reset import locked_state
from streamkit.transport.log_interface import Admin, NewTopic, Transport


class State(StrEnum):
    """The state of a step."""

    TO_DO = "to do"
    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True)
class Step:
    """One step. count: of records, offsets or directories, None where there is none; reason: why it is refused."""

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
    """What a migration does, in order. members: by group, those that are active; left: findings that remain for the user."""

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

    Both plans name the same log. renames: stores that are to be matched, new names by old ones. Raises UsageError.
    """

    def __init__(self, old: Plan, new: Plan, transport: Transport, renames: Mapping[str, str]):
        _check_one_log(old, new)
        self.old, self.new = old, new
        self._transport, self._renames = transport, renames

    def prepare(self) -> Migration:
        """Return the steps and their counts; nothing is changed. Rows that change are converted, to find those that do not.

        Raises UsageError, InvalidTopologyError, TransportError, StateError.
        """
        with closing(self._transport.admin()) as admin:
            log = LogAccess(self._transport, admin, Journal(self.new, self._transport, admin))
            found = _Comparison(self.old, self.new, log, self._renames)
            steps = [*found.drains(), *found.copies(), *found.offsets(), *self._directories()]
            return Migration(self.new.application, tuple(steps), self._members(admin), tuple(found.left(steps)))

    def execute(self) -> None:
        """Take all steps that are not done. It may be repeated after a failure or a crash at any point.

        Raises ActiveGroupError, MigrationError where a step is refused, StateLockedError where a process on this machine
        uses the state directory, TransportError, StateError, and what the old version raises while it drains topics.
        """
        self._check(self.prepare())
        self._drain()
        with ExitStack() as stack:
            for plan in (self.old, self.new)[: 1 if self._has_one_directory() else 2]:
                stack.enter_context(locked_state(plan, self._directory(plan)))
            admin = stack.enter_context(closing(self._transport.admin()))
            log = LogAccess(self._transport, admin, Journal(self.new, self._transport, admin))
            found = _Comparison(self.old, self.new, log, self._renames)
            unread = [topic for topic, count in found.unread().items() if count]
            if unread:
                raise MigrationError(
                    f"{', '.join(unread)} has unread records: stop all instances and producers, and repeat"
                )
            copies = [each.copy for each in found.moves if each.copy is not None]
            moves: list[Copy | Replacement | OffsetMove] = [*copies, found.offset_move]
            todo = [each for each in moves if not each.is_done(log)]
            for each in todo:
                each.begin(log)
            admin.delete_topics(found.recreated())
            for each in todo:
                each.run(log)
            _check_members(self._members(admin))
            if self._has_one_directory():
                directory = self._directory(self.new)
                move(directory, find_moves(self.new, directory))

    def _check(self, migration: Migration) -> None:
        _check_members(migration.members)
        refused = [step for step in migration.steps if step.state is State.REFUSED]
        if refused:
            raise MigrationError("; ".join(f"{step.kind} {step.subject}: {step.reason}" for step in refused))

    def _members(self, admin: Admin) -> dict[str, tuple[str, ...]]:
        """Return the active members of both groups, without the groups that have none."""
        found = {group: tuple(admin.group_members(group)) for group in (self.old.application, self.new.application)}
        return {group: members for group, members in found.items() if members}

    def _drain(self) -> None:
        """Let the old version read its repartition topics to their ends, where the new one does not read them."""
        with closing(self._transport.admin()) as admin:
            log = LogAccess(self._transport, admin, Journal(self.new, self._transport, admin))
            unread = _Comparison(self.old, self.new, log, self._renames).unread()
        if any(unread.values()):
            self.run_old()

    def run_old(self) -> None:
        """Run the old version until it is idle. Raises what it raises."""
        Application(self.old, self._transport).run(until_idle=True, stop=threading.Event())

    @staticmethod
    def _directory(plan: Plan) -> Path:
        return Path(plan.config["state.dir"]) / plan.application

    def _has_one_directory(self) -> bool:
        return self._directory(self.old) == self._directory(self.new)

    def _directories(self) -> Iterator[Step]:
        directory = self._directory(self.new)
        moves = find_moves(self.new, directory) if self._has_one_directory() else {}
        if moves:
            names = ", ".join(f"{name} to {target}" for name, target in moves.items())
            yield Step("directories", str(directory), f"rename {names}: their state is not restored", len(moves))


def shown_members(groups: Mapping[str, Sequence[str]]) -> str:
    """Return groups and their active members as text."""
    return "; ".join(
        f"group {group} is active with {len(members)} members ({', '.join(members)})"
        for group, members in groups.items()
    )


def _check_members(groups: Mapping[str, Sequence[str]]) -> None:
    if groups:
        raise ActiveGroupError(f"{shown_members(groups)}; stop all instances")


def _check_one_log(old: Plan, new: Plan) -> None:
    places = [(address(plan), plan.config["state.dir"] if address(plan) == "embedded" else "") for plan in (old, new)]
    if places[0] != places[1]:
        shown = [" in ".join(filter(None, place)) for place in places]
        raise UsageError(f"both versions need one log: {old.file} names {shown[0]}, {new.file} names {shown[1]}")


class _Comparison:
    """Both versions beside what is on the log."""

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
        self.moves = list(store_moves(self.old, self.new, self._names, self._existing, targets, self._has_run))

    def _has_run(self) -> bool:
        """Return whether the group of the old version has committed offsets."""
        inputs = self.offset_move.inputs
        places = [TopicPartition(topic, number) for topic, count in inputs.items() for number in range(count)]
        with closing(self._log.transport.consumer(self.old.plan.application)) as consumer:
            return bool(consumer.committed(places))

    # -- Repartition topics ---------------------------------------------------------------------------------------------

    def unread(self) -> dict[str, int]:
        """Return the numbers of unread records by topic, of those on the log that the new version reads otherwise or not at all."""
        names = [self.old.form.log_name(each.name) for each in self._topics.gone]
        names += [self.old.form.log_name(one.name) for one, _ in self._topics.renamed]
        for one, other in self._topics.kept:
            is_other = one.value_kind != other.value_kind or any(
                reads(*pair)[0] is not Reads.YES for pair in ((one.key, other.key), (one.value, other.value))
            )
            if is_other or self.old.plan.application != self.new.plan.application:
                names.append(self.old.form.log_name(one.name))
        return {name: self._on_log.unread[name] for name in (*names, *self.recreated()) if name in self._on_log.unread}

    def recreated(self) -> list[str]:
        """Return the repartition topics of the log that need another number of partitions."""
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
                text = (
                    f"delete {topic.name}: it has {self._existing[topic.name]} partitions, and needs {topic.partitions}"
                )
                yield Step("delete", topic.name, text, None)

    # -- Changelogs and offsets -----------------------------------------------------------------------------------------

    def copies(self) -> Iterator[Step]:
        """Yield the steps of changelogs."""
        for each in self.moves:
            if each.copy is None:
                yield Step("copy", each.new, "copy its changelog", None, State.REFUSED, each.refused)
                continue
            text = self._text(each.source, each.copy)
            try:
                if each.copy.is_done(self._log):
                    yield Step("copy", each.new, text, None, State.DONE)
                    continue
                each.copy.check(self._log)
                yield Step("copy", each.new, text, each.copy.count(self._log))
            except MigrationError as error:
                yield Step("copy", each.new, text, None, State.REFUSED, str(error))

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
        internal = {old.internal_name(topic) for topic in old.internal_topics}
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
        topics = ", ".join(sorted({place.topic for place in pending}))
        text = f"commit the offsets and times of the old version for {topics}"
        yield Step("offsets", group, text if pending else "note that the offsets are committed", len(pending))

    def left(self, steps: Sequence[Step]) -> Iterator[Finding]:
        """Yield the findings of `diff` that need an action that is no step."""
        refused = {step.subject for step in steps if step.state is State.REFUSED}
        solved = {each.new for each in self.moves if each.new not in refused}
        roots = {root for each in self.moves for root in self.new.form.stores[each.new].roots}
        for each in compare(self.old.form, self.new.form, self._on_log, offers_migration=False):
            is_open = each.verdict in (Verdict.UNKNOWN, Verdict.RESTORE, Verdict.RENAMED, Verdict.INCOMPATIBLE)
            if not is_open or each.subject in ("application", "sub-topology"):
                continue
            if each.subject == "store" and (each.name in solved or each.name in refused):
                continue
            if each.subject == "topic" and (each.name in roots or each.name in self.new.form.topics):
                continue
            yield each
