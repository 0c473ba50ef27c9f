"""Resets an application: offsets, internal topics and local state (StreamsResetter, KafkaStreams.cleanUp)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from streamkit.errors import ActiveGroupError, UsageError
from streamkit.plan.model import Plan
from streamkit.plan.partitions import source_topics
from streamkit.record import TopicPartition
from streamkit.runtime.operations.migration.migration_journal import JOURNAL
from streamkit.runtime.operations.reset_targets import Target, resolve
from streamkit.state.files.directory import StateDirectory, stored
from streamkit.transport.log_interface import Admin, CommittedOffset, Transport

INPUT, INTERMEDIATE = "input", "intermediate"
_INTERNAL = re.compile(
    r".*(-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic"
    r"|.-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic"
    rf"|-{JOURNAL})"
)


@dataclass(frozen=True)
class Choice:
    """The topics that a reset changes; None: those of the topology. Names are those of entries, or physical ones."""

    inputs: Sequence[str] | None = None
    intermediates: Sequence[str] | None = None
    internals: Sequence[str] | None = None


@dataclass(frozen=True)
class OffsetChange:
    """A partition of an input topic: the committed offset before (None: nothing) and after (None: it stays)."""

    place: TopicPartition
    role: str
    before: int | None
    after: int | None
    note: str


@dataclass(frozen=True)
class InternalTopic:
    """A topic that is deleted; `known`: whether the topology has it now."""

    name: str
    known: bool


@dataclass(frozen=True)
class Reset:
    """The changes of a reset."""

    application: str
    offsets: tuple[OffsetChange, ...]
    missing: tuple[str, ...]
    """Input topics that don't exist."""
    internals: tuple[InternalTopic, ...]
    members: tuple[str, ...]
    """The active members of the group."""
    directory: Path
    stored: tuple[str, ...]
    """Directories of tasks and global stores below `directory`."""


def prepare(plan: Plan, transport: Transport, target: Target, choice: Choice) -> Reset:
    """Return what a reset would change; nothing is changed. Raises UsageError, TransportError, StateError."""
    directory = Path(plan.config["state.dir"]) / plan.application
    with closing(transport.admin()) as admin:
        counts = admin.partition_counts()
        roles = _roles(plan, choice, counts)
        return Reset(
            application=plan.application,
            offsets=_offsets(
                plan, transport, target, {name: role for name, role in roles.items() if name in counts}, counts
            ),
            missing=tuple(name for name in roles if name not in counts),
            internals=_internals(plan, choice, roles, sorted(counts)),
            members=tuple(admin.group_members(plan.application)),
            directory=directory,
            stored=tuple(stored(directory)),
        )


def execute(plan: Plan, transport: Transport, reset: Reset, *, force: bool = False) -> None:
    """Make the changes that `prepare` returned.

    force: remove members from the group; without it, raises ActiveGroupError where there are some. Raises StateLockedError
    when a process on this machine runs the application, TransportError, StateError. It may be repeated after a failure.
    """
    with locked_state(plan, reset.directory) as directory, closing(transport.admin()) as admin:
        _empty_group(admin, reset, force)
        with closing(transport.consumer(plan.application)) as consumer:
            moved = {each.place: CommittedOffset(each.after) for each in reset.offsets if each.after is not None}
            if moved:
                consumer.commit(moved)
        admin.delete_topics([topic.name for topic in reset.internals])
        if directory is not None:
            for name in stored(directory.path):
                directory.wipe(name)


@contextmanager
def locked_state(plan: Plan, path: Path) -> Iterator[StateDirectory | None]:
    """Lock the state directory, if there is one: a process that has not joined the group yet must not run meanwhile either."""
    if not path.is_dir():
        yield None
        return
    directory = StateDirectory(plan.config["state.dir"], plan.application)
    try:
        yield directory
    finally:
        directory.close()


def _empty_group(admin: Admin, reset: Reset, force: bool) -> None:
    if force:
        admin.remove_members(reset.application)
        return
    members = admin.group_members(reset.application)
    if members:
        raise ActiveGroupError(
            f"group {reset.application} is active with {len(members)} members ({', '.join(members)}); stop all instances,"
            " or write --force to remove members that are left over"
        )


# -- Topics -------------------------------------------------------------------------------------------------------------


def _roles(plan: Plan, choice: Choice, counts: dict[str, int]) -> dict[str, str]:
    """Return the topics whose offsets change: those that are read get the target, those also written their end offsets."""
    internal = {plan.internal_name(name) for name in plan.internal_topics}
    read = [
        topic
        for sub in plan.sub_topologies
        if not sub.is_global
        for topic in source_topics(plan, sub, counts)
        if topic not in internal
    ]
    written = {topic.name for topic in plan.external_topics.values() if topic.written}
    if choice.inputs is None and choice.intermediates is None:
        return {topic: INTERMEDIATE if topic in written else INPUT for topic in dict.fromkeys(read)}
    inputs = _named(plan, choice.inputs, read, "--input-topics")
    if choice.inputs is None:
        inputs = [topic for topic in read if topic not in written]
    intermediates = _named(plan, choice.intermediates, read, "--intermediate-topics")
    return {**dict.fromkeys(intermediates, INTERMEDIATE), **dict.fromkeys(inputs, INPUT)}


def _named(plan: Plan, names: Sequence[str] | None, read: list[str], option: str) -> list[str]:
    physical = {topic.entry: topic.name for topic in plan.external_topics.values()}
    found = [physical.get(name, name) for name in names or ()]
    for name, topic in zip(names or (), found, strict=True):
        if topic not in read:
            known = ", ".join(sorted(read)) or "none"
            raise UsageError(f"{option} {name}: the application's group does not read it; it reads {known}")
    return found


def _internals(plan: Plan, choice: Choice, roles: dict[str, str], existing: list[str]) -> tuple[InternalTopic, ...]:
    """Return the topics with the application's prefix and a suffix of Kafka Streams, those of former versions included."""
    prefix = f"{plan.application}-"
    known = {plan.internal_name(name) for name in plan.internal_topics}
    known.update(name for store in plan.stores if (name := plan.changelog_name(store)) is not None)
    found = [
        topic for topic in existing if topic not in roles and topic.startswith(prefix) and _INTERNAL.fullmatch(topic)
    ]
    if choice.internals is not None:
        for name in choice.internals:
            if name not in found:
                raise UsageError(
                    f"--internal-topics {name}: not an internal topic of {plan.application};"
                    f" it has {', '.join(found) or 'none'}"
                )
        found = list(dict.fromkeys(choice.internals))
    return tuple(InternalTopic(name, name in known) for name in found)


def _offsets(
    plan: Plan, transport: Transport, target: Target, roles: dict[str, str], counts: dict[str, int]
) -> tuple[OffsetChange, ...]:
    places = {TopicPartition(name, number): role for name, role in roles.items() for number in range(counts[name])}
    if not places:
        return ()
    with closing(transport.consumer(plan.application)) as consumer:
        committed = consumer.committed(list(places))
        before = {place: committed[place].offset if place in committed else None for place in places}
        after = resolve(
            consumer, _physical(plan, target), {p: before[p] for p, role in places.items() if role == INPUT}
        )
        after.update(
            resolve(consumer, Target("latest"), {p: before[p] for p, r in places.items() if r == INTERMEDIATE})
        )
    return tuple(OffsetChange(place, role, before[place], *after[place]) for place, role in places.items())


def _physical(plan: Plan, target: Target) -> Target:
    """Return a target whose file may name topics by their entries too."""
    names = {topic.entry: topic.name for topic in plan.external_topics.values()}
    offsets = {TopicPartition(names.get(p.topic, p.topic), p.partition): n for p, n in target.offsets.items()}
    return Target(target.kind, target.number, offsets)
