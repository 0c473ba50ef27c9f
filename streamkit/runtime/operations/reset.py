"""Resets an application: offsets, internal topics and local state (StreamsResetter, KafkaStreams.cleanUp)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from streamkit.changes.of_log import Groups
from streamkit.errors import ActiveGroupError, FencedError, StreamkitError, TopicError, UsageError
from streamkit.plan.model import Plan
from streamkit.plan.partitions import source_topics
from streamkit.record import PLACE_ON_LOG, TopicPartition
from streamkit.runtime.operations.group_lag import COUNTED_ONE_BY_ONE, readable
from streamkit.runtime.operations.migration_journal import JOURNAL
from streamkit.runtime.operations.topic_reading import Target, resolve
from streamkit.state.directory import StateDirectory, directories_of, stored
from streamkit.suggestions import did_you_mean, number_of
from streamkit.transport.log_interface import Admin, CommittedOffset, Consumer, Transport

INPUT, INTERMEDIATE, INTERNAL = "input", "intermediate", "internal"
_INTERNAL = re.compile(
    r".*(-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic"
    r"|.-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic"
    rf"|-{JOURNAL})"
)


@dataclass(frozen=True)
class Choice:
    """The topics that a reset changes; None: all topics of the topology. They are named by entry, or by physical name."""

    inputs: Sequence[str] | None = None
    intermediates: Sequence[str] | None = None
    internals: Sequence[str] | None = None


@dataclass(frozen=True)
class OffsetChange:
    """A partition of an input topic: the committed offset before (None: none) and after (None: unchanged)."""

    place: TopicPartition
    role: str
    before: int | None
    after: int | None
    note: str
    metadata: str = ""
    """The text that is committed with the offset: Kafka Streams keeps stream time there."""


@dataclass(frozen=True)
class InternalTopic:
    """A topic that is deleted; `known`: whether the topology has it now."""

    name: str
    known: bool


@dataclass(frozen=True)
class LocalState:
    """The application's directory of an instance, and the directories of tasks and global stores in it."""

    directory: Path
    entries: tuple[str, ...] = ()


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
    state: tuple[LocalState, ...]
    """Of each instance on this machine."""
    skips: bool = False
    """Whether only one record is skipped, so that internal topics and local state stay."""


def prepare(plan: Plan, transport: Transport, target: Target, choice: Choice) -> Reset:
    """Return the changes of a reset without making them. Raises UsageError, TransportError, StateError."""
    directories = directories_of(plan.config.state_dir, plan.application)
    with closing(transport.admin()) as admin:
        counts = admin.partition_counts()
        roles = _roles(plan, choice, counts)
        return Reset(
            application=plan.application,
            offsets=_offsets(
                plan, transport, target, {name: role for name, role in roles.items() if name in counts}, counts
            ),
            missing=tuple(name for name in roles if name not in counts),
            internals=_internals(plan, choice, roles, sorted(counts), Groups(admin, transport, counts)),
            members=tuple(admin.group_members(plan.application)),
            state=tuple(LocalState(directory, tuple(stored(directory))) for directory in directories),
        )


def prepare_skip(plan: Plan, transport: Transport, text: str, *, force: bool) -> Reset:
    """Return the change that skips the record at `TOPIC-PARTITION@OFFSET`, without making it.

    Raises UsageError for a position that the group does not read, ActiveGroupError while it has members (without `force`),
    and TopicError if the record is not the next one of the group.
    """
    with closing(transport.admin()) as admin:
        place, offset = _place_to_skip(plan, text, admin.partition_counts())
        members = tuple(admin.group_members(plan.application))
        if not force:
            _require_empty(plan.application, members)
    with closing(transport.consumer(plan.application, read_committed=plan.config.read_committed())) as consumer:
        committed = consumer.committed([place]).get(place)
        first, end = consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]
        start = first if committed is None else max(first, committed.offset)
        _check_next(consumer, place, offset, start, end)
    internal = place.topic in plan.internal_names
    metadata = "" if committed is None else committed.metadata
    before = None if committed is None else committed.offset
    change = OffsetChange(place, INTERNAL if internal else INPUT, before, offset + 1, "one record skipped", metadata)
    state = tuple(map(LocalState, directories_of(plan.config.state_dir, plan.application)))
    return Reset(plan.application, (change,), (), (), members, state, skips=True)


def execute(plan: Plan, transport: Transport, reset: Reset, *, force: bool = False) -> None:
    """Make the changes that `prepare` returned.

    force: remove members from the group; without it, raises ActiveGroupError if there are any. Raises StateLockedError if a
    process on this machine runs the application, TransportError, StateError. It may be repeated after a failure.
    """
    with ExitStack() as stack:
        directories = [stack.enter_context(locked_state(state.directory)) for state in reset.state]
        admin = stack.enter_context(closing(transport.admin()))
        _empty_group(admin, reset, force)
        with closing(transport.consumer(plan.application)) as consumer:
            moved = {
                change.place: CommittedOffset(change.after, change.metadata)
                for change in reset.offsets
                if change.after is not None
            }
            try:
                if moved:
                    consumer.commit(moved)
            except FencedError:
                _require_empty(reset.application, admin.group_members(reset.application))
                raise
        try:
            admin.delete_topics([topic.name for topic in reset.internals])
            for directory in directories:
                if directory is not None and not reset.skips:
                    for name in stored(directory.path):
                        directory.wipe(name)
        except StreamkitError as error:
            # What remains would be counted again.
            text = "offsets have moved, but not all topics and state are deleted: repeat this command before the application starts"
            raise StreamkitError(f"{error}; {text}") from error


@contextmanager
def locked_state(path: Path) -> Iterator[StateDirectory | None]:
    """Lock an application's directory, if it exists, so that no process on this machine can start meanwhile."""
    if not path.is_dir():
        yield None
        return
    with closing(StateDirectory(path.parent, path.name)) as directory:
        yield directory


def _empty_group(admin: Admin, reset: Reset, force: bool) -> None:
    if force:
        admin.remove_members(reset.application)
        return
    _require_empty(reset.application, admin.group_members(reset.application))


def _require_empty(application: str, members: Sequence[str]) -> None:
    if members:
        raise ActiveGroupError(
            f"group {application} is active with {number_of(len(members), 'member')} ({', '.join(members)}); stop all instances,"
            " or write --force to remove members that are left over"
        )


# -- One record --------------------------------------------------------------------------------------------------------


def _place_to_skip(plan: Plan, text: str, counts: dict[str, int]) -> tuple[TopicPartition, int]:
    match = PLACE_ON_LOG.fullmatch(text)
    if match is None:
        raise UsageError(f"--skip {text}: expected TOPIC-PARTITION@OFFSET, such as orders-0@17")
    names = {topic.entry: topic.name for topic in plan.external_topics.values()}
    topic, partition, offset = names.get(match[1], match[1]), int(match[2]), int(match[3])
    subs = [sub for sub in plan.sub_topologies if not sub.is_global]
    read = list(dict.fromkeys(name for sub in subs for name in source_topics(plan, sub, counts)))
    if topic not in read:
        hint = did_you_mean(match[1], read, f"it reads {', '.join(sorted(read)) or 'none'}")
        raise UsageError(f"--skip {text}: the application's group does not read topic {match[1]}{hint}")
    if partition >= counts.get(topic, 0):
        raise UsageError(
            f"--skip {text}: topic {topic} has {number_of(counts.get(topic, 0), 'partition')}, counted from 0"
        )
    return TopicPartition(topic, partition), offset


def _check_next(consumer: Consumer, place: TopicPartition, offset: int, start: int, end: int) -> None:
    """Raise TopicError unless the record at `offset` is the next one that the group reads in a partition."""
    where = f"{place.topic}-{place.partition}"
    if offset < start:
        raise TopicError(
            f"{where}@{offset} is behind the group, which continues at offset {start}; there is nothing to skip"
        )
    if offset >= end:
        raise TopicError(f"there is no record {where}@{offset}: the partition ends at offset {end}")
    near = offset - start < COUNTED_ONE_BY_ONE
    offsets = readable(consumer, {place: start}, {place: offset + 1}).get(place) if near else [start, offset]
    if offsets is None:
        raise TopicError(f"the records from {where}@{start} to {where}@{offset} could not be read")
    if offset not in offsets:
        raise TopicError(f"there is no record {where}@{offset}: this offset is empty, or has a transaction marker")
    if len(offsets) > 1:
        raise TopicError(
            f"{where}@{offset} is not the next record of the group, which continues at {where}@{offsets[0]}: skipping it now would"
            " lose the records between them. To commit up to the record that fails, run the application once with"
            " --set max.poll.records=1 --set commit.interval.ms=0"
        )


# -- Topics -------------------------------------------------------------------------------------------------------------


def _roles(plan: Plan, choice: Choice, counts: dict[str, int]) -> dict[str, str]:
    """Return the roles of the topics whose offsets change: inputs move to the target, topics that are also written to their ends."""
    internal = plan.internal_names
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
    topics = [physical.get(name, name) for name in names or ()]
    for name, topic in zip(names or (), topics, strict=True):
        if topic not in read:
            known = ", ".join(sorted(read)) or "none"
            raise UsageError(f"{option} {name}: the application's group does not read it; it reads {known}")
    return topics


def _internals(
    plan: Plan, choice: Choice, roles: dict[str, str], existing: list[str], groups: Groups
) -> tuple[InternalTopic, ...]:
    """Return the topics with the application's prefix and a suffix of Kafka Streams, including those of earlier versions.

    The prefix may be the name of another application that begins with this one's. Java's tool deletes the topics of both.
    """
    prefix = f"{plan.application}-"
    known = plan.internal_names.union(map(plan.changelog_name, plan.stores))
    internal = [
        topic for topic in existing if topic not in roles and topic.startswith(prefix) and _INTERNAL.fullmatch(topic)
    ]
    if choice.internals is not None:
        for name in choice.internals:
            if name not in internal:
                raise UsageError(
                    f"--internal-topics {name}: not an internal topic of {plan.application};"
                    f" it has {', '.join(internal) or 'none'}"
                )
        internal = list(dict.fromkeys(choice.internals))
    else:
        internal = [name for name in internal if name in known or not groups.may_own(plan.application, name)]
    return tuple(InternalTopic(name, name in known) for name in internal)


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
    """Return a target whose offsets name topics by their names on the log; its file may also use the names of entries."""
    names = {topic.entry: topic.name for topic in plan.external_topics.values()}
    offsets = {TopicPartition(names.get(p.topic, p.topic), p.partition): n for p, n in target.offsets.items()}
    return Target(target.kind, target.number, offsets)
