"""The faults: drawn from a seed, done to the instances, their state, their transactions and the broker."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from streamkit.errors import StreamkitError
from tests.broker.kafka_broker import Broker
from tests.broker.support import App
from tests.chaos.instances import Instance, Launch, moment, streamkit_line

SESSION_MS = 1500
TRANSACTION_MS = 4000
THREADS = 2
USUAL, BROKERS, INSTANCES = "usual", "brokers", "instances"
STORM = 3
IN_ORDER = (0, -signal.SIGTERM, 128 + signal.SIGTERM)
"""Exit codes of an instance that was asked to end: the second of one that had only begun to start, the third of a JVM."""
HEARTBEAT_MS = 400
MEMBER_SETTINGS = {"consumer.max.poll.interval.ms": 20_000}
SESSION_SETTINGS = {"consumer.session.timeout.ms": SESSION_MS, "consumer.heartbeat.interval.ms": HEARTBEAT_MS}
STREAMS_GROUPS = f"""\
group.streams.heartbeat.interval.ms={HEARTBEAT_MS}
group.streams.min.heartbeat.interval.ms=100
group.streams.initial.rebalance.delay.ms=0
group.streams.session.timeout.ms={SESSION_MS}
group.streams.min.session.timeout.ms=1000
"""
"""The same settings where brokers have them, for streams groups."""
EXACTLY_ONCE_SETTINGS = {"producer.transaction.timeout.ms": TRANSACTION_MS}


@dataclass
class Event:
    """Something that happened, in seconds since the start."""

    at: float
    what: str


@dataclass
class Cluster:
    """The instances and the broker that faults happen to. `broker` None: the embedded log."""

    app: App
    draw: random.Random
    broker: Broker | None = None
    count: int = 3
    events: list[Event] = field(default_factory=list)
    faults: int = 0
    deaths: list[str] = field(default_factory=list)
    """Instances that ended although nothing was done to them."""
    java_deaths: list[str] = field(default_factory=list)
    """The same of instances of Kafka Streams beside streamkit: such a run judges streamkit and the records."""
    only: frozenset[str] = frozenset()
    """Names of the kinds of faults, all where it is empty."""
    kills: int = 1
    """How many times as often as usual instances are killed."""
    killed: int = 0
    """SIGKILLs of instances so far."""
    launch: Launch = streamkit_line
    """The program that the instances run."""
    mix: str = USUAL
    """The name of the faults and how often they come (MIXES)."""
    gap: float | None = None
    """Seconds between two faults; None: drawn."""
    shared: bool = False
    """Whether instances with even numbers run Kafka Streams, in the group of the others (either_line)."""

    def __post_init__(self) -> None:
        self.instances = [Instance(self.app, number, self.launch) for number in range(1, self.count + 1)]
        self._began = moment()
        self._pause = threading.Event()
        self._visitors = 0

    def start(self) -> None:
        for instance in self.instances:
            instance.start()

    def note(self, what: str) -> None:
        """Write an event into the log of faults."""
        self.events.append(Event(moment() - self._began, what))

    def wait(self, least: float, most: float) -> None:
        """Let things go on for a time drawn from the seed."""
        self._pause.wait(self.draw.uniform(least, most))

    def strike(self) -> None:
        """Do one fault."""
        kinds = [
            (kind, weight * (self.kills if kind in KILLS else 1))
            for kind, weight in MIXES[self.mix]
            if (self.broker is not None or kind not in BROKER_KINDS) and (not self.only or name_of(kind) in self.only)
        ]
        (kind,) = self.draw.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
        self.faults += 1
        kind(self)
        self.look_for_deaths()

    def pause(self) -> None:
        """Let things go on until the next fault."""
        if self.gap is None:
            self.wait(0.2 / self.kills, 1.5 / self.kills)
        else:
            self.wait(self.gap, self.gap)

    def look_for_deaths(self) -> None:
        """Note instances that ended by themselves, and start them again."""
        for instance in self.instances:
            if not instance.alive:
                assert instance.process is not None
                text = f"instance {instance.number} ended by itself, {instance.process.returncode}: {instance.last_words()}"
                self.note_death(instance, text)
                self.note(text)
                instance.start()

    def note_death(self, instance: Instance, text: str) -> None:
        """Keep what is said of an instance that ended by itself, or not in order."""
        (self.java_deaths if self.shared and instance.number % 2 == 0 else self.deaths).append(text)

    def end(self) -> list[str]:
        """End all instances in order; return what was not in order."""
        wrong = []
        for instance in self.instances:
            code = instance.end() if instance.alive else "gone"
            if code not in IN_ORDER:
                wrong.append(f"instance {instance.number} ended with {code}: {instance.last_words()}")
        return wrong

    def kill(self) -> None:
        """Leave nothing behind."""
        for instance in self.instances:
            instance.kill()

    def slay(self, instance: Instance) -> None:
        """SIGKILL an instance, and count it."""
        self.killed += 1
        instance.kill()

    def one(self) -> Instance:
        return self.draw.choice(self.instances)

    def visitor(self) -> Instance:
        """An instance for a short stay, with a state directory of its own."""
        self._visitors += 1
        return Instance(self.app, 100 + self._visitors, self.launch)


def _kill(cluster: Cluster) -> None:
    """SIGKILL, and a new process on the same state."""
    instance = cluster.one()
    cluster.note(f"kill instance {instance.number}")
    cluster.slay(instance)
    cluster.wait(0, 0.5)
    instance.start()


def _kill_for_long(cluster: Cluster) -> None:
    """SIGKILL, and the others take over before there is a new process."""
    instance = cluster.one()
    cluster.note(f"kill instance {instance.number} for longer than its session")
    cluster.slay(instance)
    cluster.wait(SESSION_MS / 1000, 2 * SESSION_MS / 1000)
    instance.start()


def _kill_all(cluster: Cluster) -> None:
    cluster.note("kill all instances")
    for instance in cluster.instances:
        cluster.slay(instance)
    for instance in cluster.instances:
        instance.start()


def _freeze(cluster: Cluster) -> None:
    """SIGSTOP past the session, then SIGCONT: a zombie that has to be fenced."""
    instance = cluster.one()
    cluster.note(f"stop instance {instance.number} past its session")
    instance.signal(signal.SIGSTOP)
    cluster.wait(1.3 * SESSION_MS / 1000, 2.5 * SESSION_MS / 1000)
    instance.signal(signal.SIGCONT)


def _hiccup(cluster: Cluster) -> None:
    """SIGSTOP for less than the session: nothing may come of it."""
    instance = cluster.one()
    cluster.note(f"stop instance {instance.number} for a moment")
    instance.signal(signal.SIGSTOP)
    cluster.wait(0.1, 0.5)
    instance.signal(signal.SIGCONT)


def _restart(cluster: Cluster) -> None:
    """SIGTERM and a new process: what an update does."""
    instance = cluster.one()
    cluster.note(f"restart instance {instance.number} in order")
    code = instance.end()
    if code not in IN_ORDER:
        cluster.note_death(instance, f"instance {instance.number} ended with {code}: {instance.last_words()}")
    instance.start()


def _wipe(cluster: Cluster) -> None:
    """SIGKILL and the state directory is gone, the process id with it."""
    instance = cluster.one()
    cluster.note(f"kill instance {instance.number} and delete its state")
    cluster.slay(instance)
    instance.wipe()
    instance.start()


def _storm(cluster: Cluster) -> None:
    """Instances come and go, one a second."""
    cluster.note(f"storm: {STORM} instances join and leave")
    guests = []
    for _ in range(STORM):
        guest = cluster.visitor()
        guest.start()
        guests.append(guest)
        cluster.wait(0.8, 1.2)
        if len(guests) > 1:
            guests.pop(0).end()
    for guest in guests:
        guest.end()


def _fence(cluster: Cluster) -> None:
    """Another producer takes a thread's transactional id: the coordinator aborts what was open."""
    instance = cluster.one()
    ids = instance.transactional_ids(THREADS)
    if not ids:
        return _kill(cluster)
    chosen = cluster.draw.choice(ids)
    cluster.note(f"abort the transaction of {chosen.removeprefix(cluster.app.application)} at the coordinator")
    producer = cluster.app.log.transport.producer(transactional_id=chosen)
    try:
        producer.begin()
        producer.abort()
    except StreamkitError as error:
        cluster.note(f"… {error}")
    finally:
        producer.close()
    return None


def _broker_restart(cluster: Cluster) -> None:
    assert cluster.broker is not None
    cluster.note("restart the broker")
    cluster.broker.restart()


def _broker_crash(cluster: Cluster) -> None:
    assert cluster.broker is not None
    cluster.note("kill the broker for some seconds")
    cluster.broker.kill()
    cluster.wait(1, 6)
    cluster.broker.start()


def _broker_kill(cluster: Cluster) -> None:
    assert cluster.broker is not None
    cluster.note("kill the broker")
    cluster.broker.kill()
    cluster.broker.start()


def _broker_restart_in_move(cluster: Cluster) -> None:
    """SIGKILL an instance, and restart the broker while the tasks move."""
    assert cluster.broker is not None
    instance = cluster.one()
    cluster.note(f"kill instance {instance.number}, and restart the broker while its tasks move")
    cluster.slay(instance)
    cluster.wait(0.7 * SESSION_MS / 1000, 1.5 * SESSION_MS / 1000)
    cluster.broker.restart()
    instance.start()


KINDS: list[tuple[Callable[[Cluster], None], int]] = [
    (_kill, 12),
    (_kill_for_long, 6),
    (_kill_all, 2),
    (_freeze, 10),
    (_hiccup, 4),
    (_restart, 8),
    (_wipe, 6),
    (_storm, 4),
    (_fence, 8),
    (_broker_restart, 1),
    (_broker_crash, 1),
]
"""Faults and how often they come."""
BROKER_KINDS = (_broker_restart, _broker_crash, _broker_kill, _broker_restart_in_move)
MIXES: dict[str, list[tuple[Callable[[Cluster], None], int]]] = {
    USUAL: KINDS,
    # Of a broker that restarts, Kafka Streams may take up transactions that the broker had aborted.
    INSTANCES: [each for each in KINDS if each[0] not in BROKER_KINDS],
    BROKERS: [
        (_kill, 6),
        (_kill_for_long, 4),
        (_freeze, 6),
        (_hiccup, 2),
        (_broker_restart, 4),
        (_broker_kill, 2),
        (_broker_restart_in_move, 3),
    ],
}
KILLS = (_kill, _kill_for_long, _kill_all, _wipe)


def name_of(kind: Callable[[Cluster], None]) -> str:
    """The name of a kind of faults on the command line.

    >>> name_of(_kill_all)
    'kill-all'
    """
    return kind.__name__.strip("_").replace("_", "-")
