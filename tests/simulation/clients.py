"""The clients of a simulated broker: consumers, producers, the admin, and what kafka-python does for a member of a group."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

from kafka import errors as kafka_errors
from kafka.structs import MemberState
from kafka.structs import TopicPartition as KafkaPartition

from streamkit.errors import (
    FencedError,
    OffsetOutOfRangeError,
    ProducerLostError,
    RetriableTransportError,
    TransportError,
    UnreachableError,
)
from streamkit.record import Columns, OutputTuple, RecordBatch, TopicPartition
from streamkit.transport.kafka.kafka_membership import KafkaMembership
from streamkit.transport.log_interface import (
    EARLIEST,
    LATEST,
    MEMBERSHIP,
    NO_GENERATION,
    TRANSACTIONS,
    Admin,
    Assign,
    CommittedOffset,
    Consumer,
    EndedTransaction,
    Generation,
    GroupDescription,
    Membership,
    NewTopic,
    OpenTransaction,
    Producer,
    Rebalance,
    TopicInfo,
    Transport,
    decode_generation,
    encode_generation,
)
from tests.simulation.broker import Broker, BrokerError
from tests.simulation.scheduler import Event, Owner, Thread, current

Result = TypeVar("Result")
TIMEOUT_S = 8.0
LATENCY_S = 0.004
SESSION_S, LIMIT_S, HEARTBEAT_S, TRANSACTION_S = 4.0, 12.0, 0.4, 4.0


class LostAnswerError(Exception):
    """The client does not know whether the broker has done what it was asked."""


class Network:
    """Carries requests to the broker: they take time, wait while it is down, and sometimes nobody hears the answer."""

    def __init__(self, broker: Broker):
        self.broker = broker
        self.loss = 0.0
        """The chance that a request or its answer is lost."""
        self.slowness = 0.0
        """The chance that a request takes long."""
        self.end_loss = 0.0
        """The chance that the end of a transaction is lost, or the answer to it."""
        self.unanswered: Owner | None = None
        """The process that waits for an answer that will not come, to its end of a transaction."""
        self.join_loss = 0.0
        """The chance that the answer to a join is lost."""
        self.on_join: Callable[[Owner, Collection[TopicPartition]], None] = lambda owner, owned: None
        """Called before a process joins its group again, with the partitions that it owns."""
        self.on_rebalance: Callable[[Owner, Rebalance], None] = lambda owner, rebalance: None
        """Called with each assignment, before the process takes it."""
        self.members: dict[str, Owner] = {}
        """The process of each member of a group."""
        self.asked_by: Owner | None = None
        """The process whose request the broker has served last."""

    def request(self, step: Callable[[], Result], timeout: float = TIMEOUT_S) -> Result:
        """Return the broker's answer. Raises BrokerError, LostAnswerError."""
        scheduler = current()
        deadline = scheduler.now + timeout
        # One of the two ways takes all of the time, which is half of the turns.
        arrives_late = scheduler.random.random() < 0.5
        if arrives_late:
            self.travel()
        thread = scheduler.current
        if not self.is_up():
            scheduler.give_up(lambda: self.is_up(thread), deadline)
            if not self.is_up():
                raise LostAnswerError
        restarts = self.broker.down_until
        draw = scheduler.random.random()
        if draw < self.loss / 2:
            scheduler.sleep(max(0.0, deadline - scheduler.now))
            raise LostAnswerError
        self.asked_by = thread.owner if thread is not None else None
        answer = step()
        if not arrives_late:
            self.travel()
        if draw < self.loss or self.broker.down_until != restarts or not self.is_up():
            scheduler.sleep(max(0.0, deadline - scheduler.now))
            raise LostAnswerError
        return answer

    def is_up(self, thread: Thread | None = None) -> bool:
        """Return whether a thread's process reaches the broker; by default that of the one that runs."""
        thread = thread or current().current
        return not (self.broker.is_down or (thread is not None and thread.owner.cut))

    def travel(self) -> None:
        scheduler = current()
        long = 1000 if scheduler.random.random() < self.slowness else 1
        scheduler.sleep(scheduler.random.random() * LATENCY_S * long)

    def until(self, step: Callable[[], Result], what: str, timeout: float = TIMEOUT_S) -> Result:
        """Repeat a request that changes nothing, or may be repeated. Raises RetriableTransportError, UnreachableError."""
        scheduler = current()
        deadline = scheduler.now + timeout
        while True:
            try:
                return self.request(step, min(2.0, timeout))
            except LostAnswerError as error:
                failure: TransportError = UnreachableError(f"{what}: no answer")
                failure.__cause__ = error
            except BrokerError as error:
                if str(error) not in ("CONCURRENT_TRANSACTIONS", "UNSTABLE_OFFSET_COMMIT"):
                    raise
                failure = RetriableTransportError(f"{what}: {error}")
            if scheduler.now >= deadline:
                raise failure
            scheduler.sleep(0.1)


class SimulatedTransport(Transport):
    """A simulated cluster, as one process sees it."""

    marks_commits = True
    features = frozenset({TRANSACTIONS, MEMBERSHIP})

    def __init__(self, network: Network):
        self.network = network

    def consumer(
        self, group: str | None, *, read_committed: bool = False, role: str = "main", client_id: str = ""
    ) -> Consumer:
        return SimulatedConsumer(self.network, group, read_committed)

    def producer(self, *, transactional_id: str | None = None, client_id: str = "") -> Producer:
        return SimulatedProducer(self.network, transactional_id)

    def admin(self) -> Admin:
        return SimulatedAdmin(self.network)

    def membership(self, group: str, member_id: str, assign: Assign) -> Membership:
        settings = {
            "bootstrap.servers": "simulated:1",
            "client.id": member_id,
            "session.timeout.ms": str(int(SESSION_S * 1000)),
            "max.poll.interval.ms": str(int(LIMIT_S * 1000)),
        }
        made = SimulatedMembership(settings, TIMEOUT_S, group, assign)
        made._config["network"] = self.network
        return made

    def close(self) -> None:
        pass


class SimulatedMembership(KafkaMembership):
    """Kafka's, which shows the test when it may join, and each assignment."""

    def poll(self, timeout_ms: int, *, join: bool = True) -> Rebalance | None:
        thread, network = current().current, self._config["network"]
        assert thread is not None
        assert isinstance(network, Network)
        if join:
            network.on_join(thread.owner, self._partitions)
        rebalance = super().poll(timeout_ms, join=join)
        if rebalance is not None:
            network.on_rebalance(thread.owner, rebalance)
        return rebalance


class SimulatedConsumer(Consumer):
    def __init__(self, network: Network, group: str | None, read_committed: bool):
        self._network = network
        self._group = group
        self._committed_only = read_committed
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self.remove(list(self._positions))
        self.add(positions)

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        exact = dict(positions)
        for name, find in ((EARLIEST, self.beginning_offsets), (LATEST, self.end_offsets)):
            named = [place for place, offset in positions.items() if offset == name]
            if named:
                exact.update(find(named))
        self._positions.update(exact)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for place in partitions:
            self._positions.pop(place, None)
            self._ends.pop(place, None)
            self._paused.discard(place)

    def poll(self, max_records: int, timeout_ms: int) -> list[RecordBatch]:
        scheduler, network = current(), self._network
        deadline = scheduler.now + timeout_ms / 1000
        thread = scheduler.current

        def more() -> bool:
            return network.is_up(thread) and self._has_more()

        while True:
            if network.is_up():
                batches = self._read(max_records)
                if batches:
                    network.travel()
                    return batches
            if scheduler.now >= deadline:
                return []
            scheduler.give_up(more, deadline, network.broker.readers)

    def _has_more(self) -> bool:
        return any(
            self._end(place) > max(offset, self._ends.get(place, 0))
            for place, offset in self._positions.items()
            if place not in self._paused
        )

    def _end(self, place: TopicPartition) -> int:
        partition = self._network.broker.partition(place)
        return partition.stable() if self._committed_only else partition.end

    def _read(self, limit: int) -> list[RecordBatch]:
        found = []
        random = current().random
        for place in random.sample(list(self._positions), len(self._positions)):
            if place in self._paused or limit <= 0:
                continue
            start = max(self._positions[place], self._ends.get(place, 0))
            try:
                # A fetch has part of what is there.
                rows, after = self._network.broker.partition(place).read(
                    start, min(limit, random.randint(1, 200)), committed=self._committed_only
                )
            except BrokerError as error:
                raise OffsetOutOfRangeError(f"{place.topic}-{place.partition}: {error}", *place) from error
            if rows:
                offsets, entries = zip(*rows, strict=True)
                columns = Columns(
                    [entry.key for entry in entries],
                    [entry.value for entry in entries],
                    [entry.time for entry in entries],
                    [entry.headers for entry in entries],
                    list(offsets),
                )
                found.append(RecordBatch(place.topic, place.partition, columns))
                self._positions[place] = offsets[-1] + 1
                limit -= len(offsets)
            elif after >= self._end(place):
                # The event at the end of a partition comes after its records.
                self._ends[place] = after
        return found

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.update(place for place in partitions if place in self._positions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.difference_update(partitions)

    def position(self, partition: TopicPartition) -> int:
        if partition not in self._positions:
            raise TransportError(f"{partition} is not assigned")
        return max(self._positions[partition], self._ends.get(partition, 0))

    def lags(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: 0 for place in partitions if self._ends.get(place, -1) >= self._positions.get(place, 0)}

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return self._network.until(lambda: {place: self._end(place) for place in partitions}, "offsets")

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        broker = self._network.broker
        return self._network.until(lambda: {place: broker.partition(place).first for place in partitions}, "offsets")

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        raise NotImplementedError

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        broker, group = self._network.broker, str(self._group)
        if not partitions:
            return {}
        return self._network.until(
            lambda: broker.committed(group, partitions, stable=self._committed_only), "committed offsets"
        )

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self._network.until(
            lambda: self._network.broker.commit(str(self._group), NO_GENERATION, "", dict(offsets)), "commit"
        )

    def group_metadata(self) -> bytes:
        return encode_generation(Generation(str(self._group)))

    def close(self) -> None:
        self._positions.clear()


def once(step: Callable[[], object]) -> Callable[[], None]:
    """Return a step that is done by its first call only, like a write that the broker knows by its sequence."""
    done: list[object] = []

    def first() -> None:
        if not done:
            done.append(step())

    return first


_FENCED = {"INVALID_PRODUCER_EPOCH", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "PRODUCER_FENCED"}


class SimulatedProducer(Producer):
    """As librdkafka's: rows wait in a queue, which is sent by the way; after a lost end of a transaction it can't go on."""

    def __init__(self, network: Network, transactional_id: str | None):
        self._network = network
        self._id = transactional_id
        self._epoch: int | None = None
        self._queue: list[OutputTuple] = []
        self._open = False
        self._places: set[TopicPartition] = set()
        """The partitions of the open transaction."""
        self._sequences: Counter[TopicPartition] = Counter()
        self._sent = False
        """Whether the coordinator knows of the open transaction."""
        self._unknown = False
        """Whether records may or may not be written, whose sequences only a new epoch may use again."""
        self._uncertain = False
        self._fenced = False
        self._restarts = network.broker.down_until

    def send(self, rows: Sequence[OutputTuple]) -> None:
        self._check()
        self._queue += rows
        if current().random.random() < 0.3:
            self._deliver()

    def _check(self) -> None:
        if self._fenced:
            raise FencedError(f"the producer of {self._id} is fenced")
        if self._uncertain:
            raise ProducerLostError(f"the producer of {self._id} waits for an answer")

    def _deliver(self) -> None:
        if not self._queue:
            return
        rows, self._queue = self._queue, []
        broker, name, epoch = self._network.broker, self._id, self._epoch or 0
        if name is None:
            self._call(once(lambda: broker.produce(rows)), "records could not be written", 60.0)
            return
        batches: dict[TopicPartition, list[OutputTuple]] = {}
        for row in rows:
            batches.setdefault(broker.place_of(row), []).append(row)
        fresh = batches.keys() - self._places
        try:
            if fresh:
                self._sent = True
                self._call(lambda: broker.add_partitions(name, epoch, fresh), "partitions could not be added", 60.0)
                self._places |= fresh

            def write() -> None:
                # An idempotent producer repeats what may not have arrived, and the broker has it once.
                for place, batch in batches.items():
                    broker.produce_in(name, epoch, place, self._sequences[place], batch)

            self._call(write, "records could not be written", 60.0)
        except TransportError:
            self._unknown = True
            raise
        for place, batch in batches.items():
            self._sequences[place] += len(batch)

    def _call(self, step: Callable[[], Result], what: str, timeout: float = TIMEOUT_S) -> Result:
        try:
            return self._network.until(step, what, timeout)
        except BrokerError as error:
            if str(error) in _FENCED:
                self._fenced = str(error) == "INVALID_PRODUCER_EPOCH"
                raise FencedError(f"{what}: {error}") from error
            raise RetriableTransportError(f"{what}: {error}") from error

    def flush(self) -> None:
        self._check()
        self._deliver()

    def hasten(self, seconds: float) -> bool:
        if self._network.is_up():
            self.flush()
        return not self._queue

    def lost_broker(self) -> bool:
        before, self._restarts = self._restarts, self._network.broker.down_until
        return before != self._restarts

    def begin(self) -> None:
        self._check()
        assert self._id is not None
        if self._epoch is None:
            name = self._id
            _, self._epoch = self._call(
                lambda: self._network.broker.init_producer(name, TRANSACTION_S), "the id could not be taken"
            )
        self._open = True

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset], group_metadata: bytes | None) -> None:
        self.flush()
        assert self._id is not None
        name, epoch = self._id, self._epoch or 0
        broker = self._network.broker
        if offsets:
            self._sent = True
            generation = decode_generation(group_metadata or b"")
            self._call(
                lambda: broker.offsets_in(
                    name, epoch, generation.group, generation.number, generation.member, dict(offsets)
                ),
                "offsets could not be added",
            )
        self._end(committed=True)
        self._open = False

    def _end(self, *, committed: bool) -> None:
        name, epoch = str(self._id), self._epoch or 0
        if not self._sent:
            return
        random, network = current().random, self._network
        loses = random.random() < network.end_loss
        try:
            if loses and random.random() < 0.5:
                self._wait_in_vain()
            network.request(lambda: network.broker.end_transaction(name, epoch, committed=committed))
            if loses:
                self._wait_in_vain()
        except LostAnswerError as error:
            self._uncertain = True
            raise RetriableTransportError("the end of the transaction: no answer") from error
        except BrokerError as error:
            if str(error) in _FENCED:
                self._fenced = True
                raise FencedError(f"the end of the transaction: {error}") from error
            self._uncertain = True
            raise RetriableTransportError(f"the end of the transaction: {error}") from error
        self._sent = False
        self._places.clear()

    def _wait_in_vain(self) -> None:
        scheduler, network = current(), self._network
        network.unanswered = scheduler.current.owner if scheduler.current is not None else None
        scheduler.sleep(scheduler.random.random() * TIMEOUT_S)
        network.unanswered = None
        raise LostAnswerError

    def abort(self) -> None:
        self._queue.clear()
        self._check()
        if self._open and self._epoch is not None:
            if self._unknown:
                self._renew()
            else:
                self._end(committed=False)
        self._open = False

    def _renew(self) -> None:
        """Abort by a new epoch, in which sequences begin again (KIP-360)."""
        name, epoch = str(self._id), self._epoch
        _, self._epoch = self._call(
            lambda: self._network.broker.init_producer(name, TRANSACTION_S, epoch),
            "the transaction could not be aborted",
        )
        self._unknown = self._sent = False
        self._places.clear()
        self._sequences.clear()

    def close(self) -> None:
        self._queue.clear()


class SimulatedAdmin(Admin):
    def __init__(self, network: Network):
        self._network = network

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        known = self._network.until(lambda: dict(self._network.broker.topics), "topics")
        wanted = known if names is None else [name for name in names if name in known]
        return {name: TopicInfo(name, len(known[name])) for name in sorted(wanted)}

    def topic_config(self, name: str) -> dict[str, str]:
        return {}

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        known = self._network.until(lambda: dict(self._network.broker.topics), "topics")
        return {name: f"id-{name}" for name in names if name in known}

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        self._network.until(lambda: self._network.broker.create(topics), "topics")

    def delete_topics(self, names: Sequence[str]) -> None:
        raise NotImplementedError

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        def step() -> None:
            for place, offset in before.items():
                partition = self._network.broker.partition(place)
                partition.first = max(partition.first, min(offset, partition.stable()))

        self._network.until(step, "delete records")

    def lacks_markers(self, transactional_id: str, topics: Collection[str], group: str, *, refresh: bool) -> bool:
        return self._network.until(lambda: self._network.broker.lacks_markers(transactional_id, topics), "markers")

    def end_lost(
        self, transactional_id: str, partitions: Sequence[TopicPartition], group: str, *, one_open: bool = False
    ) -> list[EndedTransaction]:
        ended = self._network.until(lambda: self._network.broker.end_lost(transactional_id), "lost transactions")
        return [EndedTransaction(OpenTransaction(place, 0, 0, 0), committed) for place, committed in ended]

    def describe_group(self, group: str) -> GroupDescription:
        return GroupDescription()

    def remove_members(self, group: str) -> list[str]:
        raise NotImplementedError

    def close(self) -> None:
        pass


# What kafka-python is for KafkaMembership: its `KafkaConsumer` and the `_coordinator` of that.

_ERRORS = {
    "UNKNOWN_MEMBER_ID": kafka_errors.UnknownMemberIdError,
    "ILLEGAL_GENERATION": kafka_errors.IllegalGenerationError,
    "REBALANCE_IN_PROGRESS": kafka_errors.RebalanceInProgressError,
}


class GroupClient:
    """Stands for kafka-python's consumer, of which a membership uses the coordinator."""

    def __init__(self, **config: Any):
        self._coordinator = GroupCoordinator(config)

    def subscribe(self, topics: Sequence[str], listener: Any) -> None:
        self._coordinator.topics, self._coordinator.listener = list(topics), listener

    def close(self, *, autocommit: bool, timeout_ms: int | None = None) -> None:
        self._coordinator.close()


class GroupCoordinator:
    """A member's side of the classic protocol, in the order of kafka-python 3.0 (BaseCoordinator, ConsumerCoordinator)."""

    def __init__(self, config: dict[str, Any]):
        self._network: Network = config["network"]
        self._group: str = config["group_id"]
        self._client_id: str = config["client_id"]
        (self._assignor,) = config["partition_assignment_strategy"]
        self.topics: list[str] = []
        self.listener: Any = None
        self._generation, self._member = NO_GENERATION, ""
        self._state = MemberState.UNJOINED
        self._needed = True
        self._rejoining = False
        self._assigned: set[KafkaPartition] = set()
        self._subscription = SimpleNamespace(assigned_partitions=lambda: set(self._assigned))
        self._heartbeat_enabled = False
        self._polled = current().now
        self._closed = Event()
        self._heartbeats: Thread | None = None

    def group_metadata(self) -> SimpleNamespace:
        return SimpleNamespace(generation_id=self._generation, member_id=self._member, state=self._state)

    def need_rejoin(self) -> bool:
        return self._needed

    def request_rejoin(self) -> None:
        self._needed = True

    def poll_heartbeat(self) -> None:
        self._polled = current().now

    def _reset(self, member: str = "") -> None:
        self._generation, self._member, self._state, self._needed = NO_GENERATION, member, MemberState.UNJOINED, True

    def _ask(self, step: Callable[[], Result], timeout: float = TIMEOUT_S) -> Result:
        try:
            return self._network.request(step, timeout)
        except LostAnswerError as error:
            raise kafka_errors.KafkaConnectionError("no answer") from error
        except BrokerError as error:
            raise _ERRORS[str(error)]() from error

    def ensure_active_group(self) -> bool:
        if self._heartbeats is None:
            self._heartbeats = Thread(target=self._beat, name="heartbeat")
            self._heartbeats.start()
        while self._needed:
            if not self._rejoining:
                if self._generation == NO_GENERATION and self._assigned:
                    self.listener.on_partitions_lost(set(self._assigned))
                    self._assigned = set()
                self._rejoining, self._heartbeat_enabled = True, False
            try:
                assignment = self._join_and_sync()
            except (kafka_errors.UnknownMemberIdError, kafka_errors.IllegalGenerationError):
                continue
            except kafka_errors.RebalanceInProgressError:
                continue
            except kafka_errors.KafkaConnectionError:
                current().sleep(0.1)
                continue
            if assignment is None:
                continue
            self._rejoining, self._needed = False, False
            self._state, self._heartbeat_enabled = MemberState.STABLE, True
            self._polled = current().now
            self._complete(assignment)
            return True
        return True

    def _join_and_sync(self) -> Any:
        broker, group = self._network.broker, self._group
        self._state = MemberState.REBALANCING
        metadata = self._assignor.metadata(self.topics)
        try:
            if not self._member:
                # As the answer MEMBER_ID_REQUIRED does.
                self._reset(self._ask(lambda: broker.new_member(group, self._client_id, SESSION_S)))
                self._state = MemberState.REBALANCING
            member = self._member
            self._ask(lambda: broker.join(group, member, metadata, SESSION_S, LIMIT_S))
            (broker.lost.discard if metadata.owned_partitions else broker.lost.add)(member)
            if (thread := current().current) is not None:
                self._network.members[member] = thread.owner
            generation, leader, everyone = self._wait(lambda: broker.joined(group, member), LIMIT_S + 5)
            if current().random.random() < self._network.join_loss:
                # The group goes on; it may remove this member meanwhile.
                current().sleep(current().random.random() * TIMEOUT_S)
                raise kafka_errors.KafkaConnectionError("no answer")
        except kafka_errors.UnknownMemberIdError:
            self._reset()
            raise
        if self._state is not MemberState.REBALANCING:
            return None  # left meanwhile
        self._generation, self._member = generation, member
        decided = {}
        if leader == member:
            members = [SimpleNamespace(member_id=each, metadata=data) for each, data in everyone.items()]
            decided = self._assignor.assign(None, members)
        try:
            assignment = self._ask(lambda: broker.sync(group, generation, member, decided))
            if assignment is None:
                assignment = self._wait(lambda: broker.synced(group, generation, member), TIMEOUT_S)
        except kafka_errors.UnknownMemberIdError:
            self._needed = True
            self._reset()
            raise
        except kafka_errors.IllegalGenerationError:
            self._needed = True
            self._reset(self._member)
            raise
        except kafka_errors.RebalanceInProgressError:
            self._needed = True
            raise
        return assignment

    def _wait(self, step: Callable[[], Result | None], timeout: float) -> Result:
        """Ask until the broker answers, which holds a join back until all have joined, and a sync until the leader has decided."""
        scheduler, broker = current(), self._network.broker
        deadline = scheduler.now + timeout
        while True:
            seen = broker.moves
            answer = self._ask(step)
            if answer is not None:
                return answer
            if scheduler.now > deadline:
                raise kafka_errors.KafkaConnectionError("no answer")
            # Asked now and then although nothing has changed, because a member that is silent is removed.
            scheduler.give_up(lambda seen=seen: broker.moves != seen, scheduler.now + 1.0, broker.members)  # type: ignore[misc]

    def _complete(self, assignment: Any) -> None:
        if not assignment:
            assigned: set[KafkaPartition] = set()
        else:
            assigned = set(assignment.partitions())
        revoked = self._assigned - assigned
        self._assigned = assigned
        if assignment:
            self._assignor.on_assignment(assignment, self._generation)
        if revoked:
            self._needed = True

    def _beat(self) -> None:
        while not self._closed.wait(HEARTBEAT_S):
            if not self._heartbeat_enabled:
                continue
            if self._state is not MemberState.STABLE:
                self._heartbeat_enabled = False
            elif current().now - self._polled > LIMIT_S:
                self.maybe_leave_group("not polled")
            else:
                self._send_heartbeat()

    def _send_heartbeat(self) -> None:
        generation, member = self._generation, self._member
        try:
            self._ask(lambda: self._network.broker.heartbeat(self._group, generation, member), 5.0)
        except kafka_errors.RebalanceInProgressError:
            self._needed = True
        except kafka_errors.IllegalGenerationError:
            self._reset(self._member)
        except kafka_errors.UnknownMemberIdError:
            self._reset()
        except kafka_errors.KafkaConnectionError:
            pass

    def maybe_leave_group(self, reason: str | None = None, timeout_ms: int | None = None) -> None:
        member = self._member
        if member and self._state is not MemberState.UNJOINED:
            with contextlib.suppress(kafka_errors.KafkaError):
                self._ask(lambda: self._network.broker.leave(self._group, member), (timeout_ms or 5000) / 1000)
        self._reset()

    def commit_offsets_sync(self, offsets: Mapping[KafkaPartition, Any], timeout_ms: int) -> None:
        if self._state is not MemberState.STABLE:
            if self._state is MemberState.REBALANCING:
                raise kafka_errors.RebalanceInProgressError("rebalancing")
            raise kafka_errors.CommitFailedError("not in the group")
        rows = {TopicPartition(*place): CommittedOffset(each.offset, each.metadata) for place, each in offsets.items()}
        generation, member = self._generation, self._member
        deadline = current().now + timeout_ms / 1000
        while True:
            try:
                return self._ask(lambda: self._network.broker.commit(self._group, generation, member, rows), 2.0)
            except kafka_errors.RebalanceInProgressError as error:
                self._needed = True
                raise kafka_errors.CommitFailedError(error) from error
            except kafka_errors.IllegalGenerationError as error:
                self._reset(self._member)
                raise kafka_errors.CommitFailedError(error) from error
            except kafka_errors.UnknownMemberIdError as error:
                self._reset()
                raise kafka_errors.CommitFailedError(error) from error
            except kafka_errors.KafkaConnectionError:
                if current().now > deadline:
                    raise
                current().sleep(0.1)

    def close(self) -> None:
        self._closed.set()
        self._heartbeat_enabled = False
        self.maybe_leave_group("closing")
