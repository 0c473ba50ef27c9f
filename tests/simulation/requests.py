"""Compares the simulated broker with a real one: both get the same requests, drawn from a seed, and must answer alike.

python -m tests.simulation.requests [--seeds N] [--first SEED] starts a broker for that.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from streamkit.record import TopicPartition
from streamkit.transport.log_interface import CommittedOffset, NewTopic
from tests.broker.kafka_broker import Broker as Kafka
from tests.broker.support import fresh, until
from tests.simulation.broker import Broker, BrokerError
from tests.simulation.real_broker import RealBroker, check

TOPIC, GROUP = "topic", "group"
PARTITIONS, IDS, MEMBERS = 2, ("a", "b"), ("m1", "m2", "m3")
STEPS = 60
_LONG_S, _ANSWER_S = 1e9, 10.0
_WAITS = ("CONCURRENT_TRANSACTIONS", "NOT_ENOUGH_REPLICAS")


class DifferentError(AssertionError):
    """The two answers to a request are not equal; the text has the history up to it."""


@dataclass
class Handle:
    """A producer that has taken an id; another one may have fenced it since."""

    id: str
    epoch: int
    sequences: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    """The count of the last batch in each partition."""


@dataclass
class Member:
    """A member as a client has it."""

    real: str = ""
    simulated: str = ""
    generation: int = -1
    metadata: bytes = b"0"
    waits: Callable[[], tuple[str, object] | None] | None = None
    """Returns the simulated answer to its join or sync: the error, and what is said; None while there is none."""
    leads: bool = False


class Comparison:
    """One history."""

    def __init__(self, address: str, seed: int):
        self.lines: list[str] = []
        self._draw = Random(f"requests of {seed}")
        self._now = 0.0
        self._simulated = Broker(Random(seed), lambda: self._now)
        self._simulated.create([NewTopic(TOPIC, PARTITIONS)])
        self._names = {name: fresh(f"{name}-{seed}") for name in IDS}
        self._real = RealBroker(address, fresh(f"topic-{seed}"), PARTITIONS, fresh(f"group-{seed}"))
        self._handles: list[Handle] = []
        self._members = {name: Member() for name in MEMBERS}
        self._count = 0
        self._led_by = ""

    def run(self) -> None:
        """Raises DifferentError."""
        steps: list[tuple[int, Callable[[], None]]] = [
            (3, self._init),
            (1, self._renew),
            (5, self._add),
            (7, self._write),
            (4, self._offsets),
            (5, self._end),
            (1, self._ask_id),
            (5, self._join),
            (5, self._sync),
            (3, self._heartbeat),
            (2, self._leave),
            (3, self._commit),
        ]
        weights, kinds = zip(*steps, strict=True)
        try:
            self._init()
            for step in self._draw.choices(kinds, weights, k=STEPS):
                step()
                self._hear()
                self._look()
        finally:
            self._real.close()

    # -- Answers --

    def _both(self, what: str, real: Callable[[], object], simulated: Callable[[], object]) -> object:
        """Make both do it; return the answer if it is no error."""
        answers = self._answer(real, real=True), self._answer(simulated, real=False)
        self._compare(what, *answers)
        return answers[1][1]

    def _answer(self, step: Callable[[], object], *, real: bool) -> tuple[str, object]:
        """Return the error and the answer, after those that only say that a transaction is still being ended."""
        found: list[tuple[str, object]] = []

        def attempt() -> bool:
            try:
                found.append(("", step()))
            except BrokerError as error:
                found.append((str(error), None))
            if found[-1][0] in _WAITS and not real:
                self._pass_time()
            return found[-1][0] not in _WAITS

        until(attempt, "transactions are ended")
        return found[-1]

    def _pass_time(self) -> None:
        """Let the simulated broker do what it has put off."""
        self._now += 10
        self._simulated.work()

    def _compare(self, what: str, real: object, simulated: object) -> None:
        self.lines.append(f"{what}: {real}")
        if real != simulated:
            history = "\n".join(self.lines)
            raise DifferentError(f"{history}\n    but the simulated broker: {simulated}")

    def _look(self) -> None:
        """Compare what consumers see."""
        real = self._real.read()
        simulated = [
            self._seen(self._simulated.partition(TopicPartition(TOPIC, number))) for number in range(PARTITIONS)
        ]
        self._compare("    the partitions", real, simulated)
        self._compare(
            "    the offsets",
            self._real.committed(),
            {number: self._offset(number) for number in range(PARTITIONS) if self._offset(number) is not None},
        )

    def _seen(self, partition: Any) -> tuple[int, int, list[str], list[str]]:
        everything, _ = partition.read(0, 1 << 20, committed=False)
        committed, _ = partition.read(0, 1 << 20, committed=True)
        return (
            partition.end,
            partition.stable(),
            [entry.value.decode() for _, entry in everything],
            [entry.value.decode() for _, entry in committed],
        )

    def _offset(self, number: int) -> int | str | None:
        place = TopicPartition(TOPIC, number)
        try:
            found = self._simulated.committed(GROUP, [place], stable=True)
        except BrokerError as error:
            return str(error)
        return found[place].offset if place in found else None

    # -- Transactions --

    def _init(self) -> None:
        name = self._draw.choice(IDS)
        epoch = self._both(
            f"init {name}",
            lambda: self._real.init_producer(self._names[name], None),
            lambda: self._simulated.init_producer(name, _LONG_S)[1],
        )
        self._settle(name)
        assert isinstance(epoch, int)
        self._handles.append(Handle(name, epoch))

    def _handle(self) -> Handle:
        """Return a producer, mostly the last one of its id."""
        if self._draw.random() < 0.2:
            return self._draw.choice(self._handles)
        name = self._draw.choice(IDS)
        return next((each for each in reversed(self._handles) if each.id == name), self._handles[-1])

    def _renew(self) -> None:
        handle = self._handle()
        epoch = self._both(
            f"init {handle.id} again with epoch {handle.epoch}",
            lambda: self._real.init_producer(self._names[handle.id], handle.epoch),
            lambda: self._simulated.init_producer(handle.id, _LONG_S, handle.epoch)[1],
        )
        self._settle(handle.id)
        if isinstance(epoch, int):
            handle.epoch = epoch
            handle.sequences.clear()

    def _add(self) -> None:
        handle = self._handle()
        numbers = self._draw.choice(([0], [1], [0, 1]))
        self._both(
            f"add {numbers} to {handle.id} {handle.epoch}",
            lambda: self._real.add_partitions(self._names[handle.id], handle.epoch, numbers),
            lambda: self._simulated.add_partitions(
                handle.id, handle.epoch, [TopicPartition(TOPIC, number) for number in numbers]
            ),
        )

    def _write(self) -> None:
        handle, number, count = self._handle(), self._draw.randrange(PARTITIONS), self._draw.randint(1, 3)
        following = handle.sequences.get(number, 0)
        kind = self._draw.choices(("next", "again", "ahead"), (8, 2, 1))[0]
        if kind == "again" and number in handle.last:
            count = handle.last[number]
        sequence = {"next": following, "again": max(0, following - count), "ahead": following + 2}[kind]
        values = [f"v{self._count + each}" for each in range(count)]
        self._count += count
        rows = [(TOPIC, b"k", value.encode(), None, None, number) for value in values]

        def simulated() -> bool:
            self._simulated.produce_in(handle.id, handle.epoch, TopicPartition(TOPIC, number), sequence, rows)
            return True

        def real() -> bool:
            self._real.produce_in(self._names[handle.id], handle.epoch, number, sequence, values)
            return True

        answer = self._both(
            f"write {values} to {number} from {sequence} by {handle.id} {handle.epoch}", real, simulated
        )
        if answer and sequence == following:
            handle.sequences[number], handle.last[number] = following + count, count

    def _offsets(self) -> None:
        handle = self._handle()
        member, generation = self._identity()
        offsets = {self._draw.randrange(PARTITIONS): self._draw.randrange(100)}
        self._both(
            f"offsets {offsets} of {member or 'nobody'} {generation} in {handle.id} {handle.epoch}",
            lambda: self._real.offsets_in(
                self._names[handle.id], handle.epoch, generation, self._id(member, real=True), offsets
            ),
            lambda: self._simulated.offsets_in(
                handle.id, handle.epoch, GROUP, generation, self._id(member, real=False), _rows(offsets)
            ),
        )

    def _end(self) -> None:
        handle, committed = self._handle(), self._draw.random() < 0.7
        self._both(
            f"{'commit' if committed else 'abort'} {handle.id} {handle.epoch}",
            lambda: self._real.end_transaction(self._names[handle.id], handle.epoch, committed),
            lambda: self._simulated.end_transaction(handle.id, handle.epoch, committed=committed),
        )
        self._settle(handle.id)

    def _settle(self, name: str) -> None:
        self._real.await_markers(self._names[name])
        self._pass_time()

    # -- The group --

    def _identity(self) -> tuple[str, int]:
        """Return a member and a generation, which may be nobody, or wrong."""
        member = self._draw.choice((*MEMBERS, ""))
        generation = self._members[member].generation if member else -1
        if member and self._draw.random() < 0.2:
            generation += self._draw.choice((-1, 1))
        return member, generation

    def _id(self, member: str, *, real: bool) -> str:
        found = self._members.get(member, Member())
        unknown = "nobody" if member else ""
        return (found.real if real else found.simulated) or unknown

    def _ask_id(self) -> None:
        name = self._draw.choice(MEMBERS)
        member = self._members[name]
        if not member.real:
            member.real, member.simulated = self._real.new_member(), self._simulated.new_member(GROUP, name, _LONG_S)
            self.lines.append(f"an id for {name}")

    def _join(self) -> None:
        name = self._draw.choice(MEMBERS)
        member = self._members[name]
        if not member.real:
            member.real, member.simulated = self._real.new_member(), self._simulated.new_member(GROUP, name, _LONG_S)
        if self._draw.random() < 0.5:
            member.metadata = str(int(member.metadata) + 1).encode()
        self.lines.append(f"join {name} with {member.metadata.decode()}")
        self._real.join(member.real, member.metadata)
        try:
            self._simulated.join(GROUP, member.simulated, member.metadata, _LONG_S, _LONG_S)
        except BrokerError as error:
            code = str(error)
            member.waits = lambda: (code, None)
        else:
            self._real.await_member(member.real)
            member.waits = lambda: self._joined(member)

    def _joined(self, member: Member) -> tuple[str, object] | None:
        """Return the simulated answer to a join: generation, whether it leads, and what the members of a leader have sent."""
        try:
            answer = self._simulated.joined(GROUP, member.simulated)
        except BrokerError as error:
            return str(error), None
        if answer is None:
            return None
        generation, leader, everyone = answer
        return "", (generation, leader == member.simulated, sorted(everyone.values()))

    def _sync(self) -> None:
        name = self._draw.choice(MEMBERS)
        member = self._members[name]
        if not member.real or member.waits:
            return
        generation = member.generation + self._draw.choices((0, -1), (9, 1))[0]
        decided = {each: f"{generation} {each}".encode() for each in MEMBERS if self._members[each].real}
        if not member.leads:
            decided = {}
        self.lines.append(f"sync {name} in {generation}{', which leads' if decided else ''}")
        self._real.sync(generation, member.real, {self._members[each].real: data for each, data in decided.items()})
        own = {self._members[each].simulated: data for each, data in decided.items()}
        first = self._synced(lambda: self._simulated.sync(GROUP, generation, member.simulated, own))
        member.waits = lambda: (
            first or self._synced(lambda: self._simulated.synced(GROUP, generation, member.simulated))
        )

    def _synced(self, step: Callable[[], bytes | None]) -> tuple[str, object] | None:
        try:
            answer = step()
        except BrokerError as error:
            return str(error), None
        return None if answer is None else ("", answer)

    def _hear(self) -> None:
        """Compare the answers to joins and syncs that are there by now."""
        # Twice: the answer to a leader is that to the members before it.
        for name in MEMBERS * 2:
            member = self._members[name]
            if member.waits and (simulated := member.waits()) is not None:
                found = self._real.answer(member.real, _ANSWER_S)
                real = self._heard(found)
                simulated = member.waits() or simulated
                self._compare(f"    {name} hears", real, simulated)
                member.waits = None
                error, answer = simulated
                if isinstance(answer, tuple):
                    member.generation, member.leads = answer[0], answer[1]
                    self._led_by = self._simulated.group(GROUP).leader
                elif error == "UNKNOWN_MEMBER_ID":
                    member.real = member.simulated = ""
        for name, member in self._members.items():
            if member.waits and (early := self._real.answer(member.real, 0)) is not None:
                self._compare(f"    {name} hears", self._heard(early), "nothing")

    def _heard(self, found: Any) -> tuple[str, object] | None:
        if found is None:
            return None
        try:
            check(found.error_code)
        except BrokerError as error:
            return str(error), None
        if hasattr(found, "assignment"):
            return "", bytes(found.assignment)
        group = self._simulated.group(GROUP)
        if self._led_by not in group.members:
            # Of the members of a group without a leader, any may become it.
            group.leader = next((each.simulated for each in self._members.values() if each.real == found.leader), "")
        everyone = sorted(bytes(each.metadata) for each in found.members)
        return "", (found.generation_id, found.leader == found.member_id, everyone)

    def _heartbeat(self) -> None:
        member, generation = self._identity()
        self._both(
            f"heartbeat of {member or 'nobody'} in {generation}",
            lambda: self._real.heartbeat(generation, self._id(member, real=True)),
            lambda: self._simulated.heartbeat(GROUP, generation, self._id(member, real=False)),
        )

    def _leave(self) -> None:
        name = self._draw.choice(MEMBERS)
        member = self._members[name]
        group = self._simulated.group(GROUP)
        if group.pending and group.members.keys() <= {member.simulated}:
            # Kafka ends the rebalance of nobody a moment later: the next generation may be one or two higher.
            return
        self._both(
            f"{name} leaves",
            lambda: self._real.leave(self._id(name, real=True)),
            lambda: self._simulated.leave(GROUP, self._id(name, real=False)),
        )
        if not member.waits and self._draw.random() < 0.5:
            member.real = member.simulated = ""

    def _commit(self) -> None:
        member, generation = self._identity()
        offsets = {self._draw.randrange(PARTITIONS): self._draw.randrange(100)}
        self._both(
            f"commit {offsets} by {member or 'nobody'} in {generation}",
            lambda: self._real.commit(generation, self._id(member, real=True), offsets),
            lambda: self._simulated.commit(GROUP, generation, self._id(member, real=False), _rows(offsets)),
        )


def _rows(offsets: dict[int, int]) -> dict[TopicPartition, CommittedOffset]:
    return {TopicPartition(TOPIC, number): CommittedOffset(offset, "") for number, offset in offsets.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.requests", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    options = parser.parse_args()
    wrong = steps = 0
    with Kafka() as kafka:
        began = time.monotonic()
        for seed in range(options.first, options.first + options.seeds):
            comparison = Comparison(kafka.address, seed)
            try:
                comparison.run()
            except DifferentError as error:
                wrong += 1
                print(f"seed {seed}:\n{error}", flush=True)
            steps += len(comparison.lines)
        seconds = time.monotonic() - began
    print(f"{options.seeds} histories, {steps} answers in {seconds:.0f} s: {wrong} differ")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
