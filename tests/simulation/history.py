"""A history of a cluster, made from a seed: an application on three processes, input that never stops, faults, and what came out.

Nothing here is by chance: the same seed gives the same history, line by line.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import ClassVar
from uuid import UUID

from tests.simulation import scheduler as scheduling
from tests.simulation.mutations import changes
from tests.simulation.scheduler import Event, Owner, Scheduler, Thread, instrument

MUTATION = "SIMULATION_MUTATION"
"""The variable that names a mistake of `mutations`, which must be known before modules are loaded."""

with instrument(
    ("streamkit.runtime.local.", "streamkit.transport.kafka.kafka_membership", "streamkit.state.directory"),
    changes(os.environ.get(MUTATION, "")),
):
    import streamkit.runtime.local.client as client
    import streamkit.runtime.local.committer as committer
    import streamkit.runtime.local.setup as setup
    import streamkit.runtime.local.states as states
    import streamkit.transport.kafka.kafka_membership as membership
    from streamkit.compile.compiler import compile_sub_topology
    from streamkit.compile.program import Program
    from streamkit.config import Config
    from streamkit.errors import RetriableTransportError as RetriableTransportError
    from streamkit.errors import StreamkitError
    from streamkit.plan import load
    from streamkit.plan.model import Plan, SubTopology
    from streamkit.record import OutputTuple, TopicPartition
    from streamkit.runtime.execution import collecting
    from streamkit.transport import embedded as embedded
    from streamkit.transport.embedded import database as database
    from streamkit.transport.embedded import embedded_clients as embedded_clients
    from streamkit.transport.embedded import embedded_groups as embedded_groups
    from streamkit.transport.log_interface import NewTopic, Rebalance, Transport
    from tests.simulation import clients, files
    from tests.simulation.broker import Broker, Entry
    from tests.simulation.broker import Group as Group
    from tests.simulation.broker import Partition as Partition
    from tests.simulation.clients import Network, SimulatedTransport

HANDOVER = tuple(
    f"streamkit.{module}."
    for module in (
        "runtime.local.stream_thread",
        "runtime.local.rebalance_listener",
        "runtime.local.task_manager",
        "runtime.local.committer",
        "transport.kafka.kafka_membership",
    )
)
"""The modules that pass tasks on from one owner to the next."""
STEPS = (
    "stream_thread._take_assignment", "stream_thread._process", "stream_thread.lose", "rebalance_listener._lose",
    "rebalance_listener.poll", "task_manager.change_to", "task_manager._close", "committer._commit",
    "committer._commit_transaction", "committer.restart", "kafka_membership._check_lost",
)  # fmt: skip
"""Their functions in which a thread can be when it should already have noticed that its tasks are lost."""
STORMS = 0.2
"""The share of the histories in which the group hardly comes to rest."""
PARTITIONS, KEYS, WORDS = 4, 12, 8
FAULTS_S, HEAL_S = (2.0, 4.0, 5.0, 8.0, 15.0), 120.0
"""How long faults last; and how long everything may take afterwards, where the longest time-out is that of `clients.LIMIT_S`."""
TURNS = 30_000
"""The most turns of a history: three times what a long one takes."""
OPERATOR_S = 15.0
CACHES = (0, 1 << 20)
POLLS_MS, UPKEEP_S, MARKER_S, VIEW_S = (100, 400, 1000), 0.25, 0.03, 2.0
"""Times between looks at what has mostly not changed: longer than those of the product, whose histories would be of idle rounds."""
_LONGEST_TICK_S = 0.5
_ID_BYTES, _ID_PARTS = 16, 5
CONDITIONS = ("loss", "slowness", "end_loss", "join_loss", "pauses", "slow_markers", "paused")
"""What goes on during the faults."""
TOPOLOGY = f"""\
streamkit: 1
application: app
defaults: {{key: string, value: string}}
topics:
  events: {{topic: events, partitions: {PARTITIONS}}}
  counts: {{topic: counts, value: long, partitions: {PARTITIONS}}}
  lines: {{topic: lines, partitions: {PARTITIONS}}}
  words: {{topic: words, value: long, partitions: {PARTITIONS}}}
pipelines:
  running:
    stream: events
    steps: [group_by_key, {{count: running}}, to_stream]
    to: counts
  counted:
    stream: lines
    steps:
      - flat_map_values: {{values: value.split()}}
      - group_by: value
      - count: words
      - to_stream
    to: words
"""


@dataclass
class Verdict:
    """What a history came to: nothing in `wrong` means that it is as it must be."""

    seed: int
    wrong: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    turns: int = 0
    seconds: float = 0.0
    """Of the virtual clock."""
    records: int = 0


class Process:
    """An instance of the application, and its state directory, which outlives it."""

    def __init__(self, history: History, number: int):
        self.number = number
        self.owner = Owner(f"p{number}")
        self.stop = Event()
        self.app: client.Application | None = None
        """Whether a thread was removed since its start."""
        self.threads = 0
        self.error: BaseException | None = None
        self.thread: Thread | None = None
        self._history = history
        self._folder = history.folder / f"p{number}"
        settings = {**SETTINGS, **history.log_settings, **history.settings, "state.dir": str(self._folder)}
        self._plan = replace(_plan, config=Config("app", overrides=settings))
        self._starts = 0

    def start(self) -> None:
        """Start the application again, on the files that its predecessor has left."""
        self._starts += 1
        self.owner = Owner(f"p{self.number}.{self._starts}")
        self.stop, self.error = Event(), None
        self.threads = self._plan.config.num_stream_threads
        self.thread = Thread(target=self._run, name=f"{self.owner.name}-main", owner=self.owner)
        self.thread.start()

    def _run(self) -> None:
        try:
            app = self.app = client.Application(self._plan, self._history.transport())
            app.run(stop=self.stop)  # type: ignore[arg-type]
        except BaseException as error:
            self.error = error

    @property
    def alive(self) -> bool:
        return self.thread is not None and self.thread.is_alive() and not self.owner.dead

    def kill(self) -> None:
        """End it as SIGKILL does; what it has written to files stays."""
        self._history.scheduler.kill(self.owner)
        # It stays open in this process.
        for lock in self._folder.rglob(".lock"):
            lock.unlink()

    def lose_power(self, draw: Random) -> None:
        """End it as a loss of power does; what it has synced stays."""
        self.kill()
        if self._folder.exists():
            self._history.disk.lose_power(self._folder, draw)


SETTINGS = {
    "processing.guarantee": "exactly_once_v2",
    "session.timeout.ms": int(clients.SESSION_S * 1000),
    "max.poll.interval.ms": int(clients.LIMIT_S * 1000),
    "repartition.purge.interval.ms": 2000,
}


class History:
    """One seed."""

    log_settings: ClassVar[dict[str, object]] = {
        "bootstrap.servers": "simulated:1",
        "producer.transaction.timeout.ms": int(clients.TRANSACTION_S * 1000),
    }

    def __init__(self, seed: int, folder: Path, left_out: Collection[int | str] = ()):
        """left_out: faults that do not happen, by their numbers, and conditions by their names."""
        self.verdict = Verdict(seed)
        self.folder = folder
        self._left_out = frozenset(left_out)
        self._names: dict[str, str] = {}
        """The process of each id that a process has given itself."""
        self.disk = files.install()
        self.scheduler: Scheduler = scheduling.begin(seed)
        self._draw = Random(f"faults of {seed}")
        bytes_of = Random(f"ids of {seed}")

        def urandom(size: int) -> bytes:
            data, thread = bytes_of.randbytes(size), self.scheduler.current
            if size == _ID_BYTES and thread is not None:
                self._names[str(UUID(bytes=data, version=4))] = thread.owner.name.partition(".")[0]
            return data

        os.urandom = urandom
        os.getpid, socket.gethostname = lambda: 1, lambda: "host"
        self.broker = Broker(Random(f"broker of {seed}"), lambda: self.scheduler.now)
        self.network = Network(self.broker)
        self.network.on_join, self.network.on_rebalance = self._check_join, self._check_rebalance
        self._added: dict[tuple[int, TopicPartition], Owner] = {}
        """Who got a partition in a generation."""
        self._revoked: dict[tuple[int, TopicPartition], Owner] = {}
        """Who had to give it up."""
        draw = self._draw
        self._storms = draw.random() < STORMS
        """Whether members are removed while they commit the tasks that leave them, on a network that is slow."""
        self.settings: dict[str, object] = {
            "commit.interval.ms": draw.choice((500, 3000) if self._storms else (100, 100, 500)),
            "num.stream.threads": draw.choice((1, 2, 2, 3)),
            "num.standby.replicas": draw.choice((0, 0, 1)),
            "statestore.cache.max.bytes": draw.choice((0, *CACHES)),
            "max.poll.records": draw.choice((1000, 1000, 20)),
            "poll.ms": draw.choice(POLLS_MS),
        }
        self.broker.verbose = bool(os.environ.get("DEBUG"))
        names = ("events", "counts", "lines", "words")
        self.broker.create([NewTopic(name, PARTITIONS) for name in names])
        self.processes = [Process(self, number + 1) for number in range(draw.choice((2, 3, 3)))]
        self._faults_s = draw.choice(FAULTS_S)
        self._events: Counter[str] = Counter()
        self._words: Counter[str] = Counter()
        self._struck: Process | None = None
        """The process that a fault strikes; None: any."""
        self._written_all = False
        self._over = False
        self._last: dict[str, int] = {}

    def transport(self) -> Transport:
        """Return the log as a process sees it."""
        return SimulatedTransport(self.network)

    def run(self) -> Verdict:
        """Run it, and judge it."""
        self._log()
        owner = Owner("test")
        steps = (self._write, self._strike, self._tick)
        for step in steps:
            self.scheduler.add(self._thread(step, owner))
        done = self.scheduler.run(lambda: self._over, self._faults_s + HEAL_S, TURNS)
        verdict = self.verdict
        if not done:
            verdict.wrong.append(f"stuck after {self.scheduler.turns} turns: {self._state()}")
        self._judge()
        verdict.turns, verdict.seconds = self.scheduler.turns, self.scheduler.now
        verdict.lines += self.broker.history
        verdict.lines.sort(key=lambda line: float(line.split()[0]))
        verdict.lines[:], verdict.wrong[:] = map(self._named, verdict.lines), map(self._named, verdict.wrong)
        return verdict

    def _named(self, text: str) -> str:
        """Return a line in which processes and members have short names."""
        for each, name in self._names.items():
            text = (
                text.replace(f"app-{each}-", f"{name}-")
                .replace(f"{each}-host-1-", f"{name}-member-")
                .replace(each, name)
            )
        return text

    def _thread(self, step: Callable[[], None], owner: Owner) -> Thread:
        thread = Thread(target=step, name=step.__name__, owner=owner)
        thread.ident = 1
        return thread

    def _log(self) -> None:
        history = self

        class Lines(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                current = history.scheduler.current
                who = current.owner.name if current else "-"
                name = current.name.split("-", _ID_PARTS + 1)[-1] if current else "-"
                history.verdict.lines.append(
                    f"{history.scheduler.now:9.3f} {who} {name}: {record.levelname.lower()} "
                    + record.getMessage().replace(str(history.folder), "")
                )

        logger = logging.getLogger("streamkit")
        logger.handlers, logger.propagate = [Lines()], False
        logger.setLevel(logging.DEBUG if os.environ.get("DEBUG") else logging.INFO)

    def note(self, text: str) -> None:
        self.verdict.lines.append(f"{self.scheduler.now:9.3f} fault: {text}")

    # -- What happens --

    def _tick(self) -> None:
        """What the broker does by itself; and the end of the history."""
        broker, scheduler = self.broker, self.scheduler
        while True:
            broker.work()
            if not broker.is_down:
                broker.end_old(OPERATOR_S)
            at = min(broker.due(), scheduler.now + _LONGEST_TICK_S)
            scheduler.give_up(lambda at=at: broker.due() < at, at, broker.worker)  # type: ignore[misc]

    def _write(self) -> None:
        draw = Random(f"input of {self.verdict.seed}")
        while self.scheduler.now < self._writes_until():
            self.scheduler.sleep(draw.random() * 0.3)
            if self.broker.is_down:
                continue
            rows: list[OutputTuple] = []
            for _ in range(draw.randint(1, 12)):
                key = f"k{draw.randrange(KEYS)}"
                self._events[key] += 1
                rows.append(("events", key.encode(), b"x", None, None, None))
            line = [f"w{draw.randrange(WORDS)}" for _ in range(3)]
            self._words.update(line)
            rows.append(("lines", f"l{draw.random()}".encode(), " ".join(line).encode(), None, None, None))
            self._produce(rows)
        self._written_all = True

    def _writes_until(self) -> float:
        return self._faults_s

    def _produce(self, rows: list[OutputTuple]) -> None:
        self.broker.produce(rows)

    def _kinds(self) -> list[Callable[[], None]]:
        """Return the faults, one drawn more often twice."""
        return [
            self._kill, self._lose_power, self._stop, self._fence, self._leave, self._restart, self._cut, self._remove,
            self._resize, self._resize,
        ]  # fmt: skip

    def _strike(self) -> None:
        draw, scheduler = self._draw, self.scheduler
        self.network.loss = draw.choice((0.0, 0.0, 0.002, 0.01))
        self.network.slowness = draw.choice((0.0, 0.001, 0.01))
        self.network.end_loss = draw.choice((0.0, 0.0, 0.02, 0.1))
        self.network.join_loss = draw.choice((0.0, 0.0, 0.1, 0.5))
        scheduler.pauses = draw.choice((0.0, 0.0001, 0.001))
        self.broker.slow_markers = draw.choice((0.02, 0.02, 0.3))
        # Some mistakes need a thread to pause in one place while something happens elsewhere.
        sites = scheduling.sites
        places = [number for number, name in enumerate(sites) if name.startswith(HANDOVER)]
        steps = [number for number in places if sites[number].endswith(STEPS)]
        paused = [draw.choice(draw.choice((places, steps))) for _ in range(draw.choice((0, 0, 1, 2)))]
        if "paused" in self._left_out:
            paused = []
        scheduling.pause_in(paused)
        for process in self.processes:
            process.start()
        kinds = self._kinds()
        usual = draw.sample(kinds, draw.randint(1, len(kinds)))
        mean = draw.choice((0.8, 3.0, 8.0))
        # Some mistakes need two faults at nearly the same time, or one in the middle of a commit.
        bursts, moments = draw.choice((0.0, 0.3, 0.6)), draw.choice((0.0, 0.5, 1.0))
        if self._storms:
            usual, mean, moments = [self._remove, self._resize, self._kill, self._leave], 0.8, 1.0
            self.network.slowness, self.network.end_loss = 0.05, 0.5
        for name, of in self._conditions().items():
            if name in self._left_out:
                setattr(of, name, 0.0)
        happens = [f"{name} {value}" for name, of in self._conditions().items() if (value := getattr(of, name))]
        happens += [f"threads pause in {sites[number].removeprefix('streamkit.')}" for number in paused]
        self.note(f"all the time: {', '.join(happens) or 'nothing'}")
        while scheduler.now < self._faults_s:
            scheduler.sleep(draw.random() * 0.3 if draw.random() < bursts else draw.expovariate(1 / mean))
            self._struck = None
            if draw.random() < moments and self._await_moment() and draw.random() < 0.7:
                asked_by = self.network.unanswered or self.network.asked_by
                self._struck = next((each for each in self.processes if each.owner is asked_by), None)
            fault = draw.choice(usual)
            number = self.verdict.faults.total()
            self.verdict.faults[fault.__name__.strip("_")] += 1
            if number not in self._left_out:
                fault()
            self._start_again()
        for name, of in self._conditions().items():
            setattr(of, name, 0.0)
        scheduling.pause_in(())
        for process in self.processes:
            process.owner.stopped = process.owner.cut = False
        while not (self._written_all and self._complete()):
            self._start_again()
            scheduler.sleep(1.0)
        self._over = True

    def _conditions(self) -> dict[str, object]:
        """Return what goes on during the faults, by name: the object that has it."""
        network = self.network
        names = dict.fromkeys(("loss", "slowness", "end_loss", "join_loss"), network)
        return {**names, "pauses": self.scheduler, "slow_markers": self.broker}

    def _start_again(self) -> None:
        for process in self.processes:
            if not process.alive:
                self._start_one(process)

    def _start_one(self, process: Process) -> None:
        if process.error is not None:
            kind = type(process.error).__name__
            self.verdict.wrong.append(f"{process.owner.name} ended: {kind}: {process.error}")
        process.start()

    def _process(self) -> Process:
        return self._struck or self._draw.choice(self.processes)

    def _kill(self) -> None:
        process = self._process()
        self.note(f"{process.owner.name} is killed")
        process.kill()

    def _lose_power(self) -> None:
        process = self._process()
        self.note(f"{process.owner.name} loses power")
        process.lose_power(self._draw)

    def _await_moment(self) -> bool:
        """Wait for a moment at which a fault is most likely to find a mistake; return whether it came."""
        broker = self.broker

        def is_group(state: str) -> Callable[[], bool]:
            return lambda: broker.group("app").state == state

        moments: list[list[Callable[[], bool]]] = [
            [is_group("PreparingRebalance")],
            [is_group("CompletingRebalance")],
            # Members have just heard of their tasks, and commit those that leave.
            [is_group("CompletingRebalance"), is_group("Stable")],
            [lambda: any(each.offsets for each in broker.transactions.values())],
            [lambda: any(each.offsets and each.state == "Ongoing" for each in broker.transactions.values())],
            [lambda: any(each.state.startswith("Prepare") for each in broker.transactions.values())],
            # What a thread lost meanwhile must not come back when its commit has failed.
            [lambda: self.network.unanswered is not None],
        ]
        moment = self._draw.choice((moments[2], moments[-1], moments[-1]) if self._storms else moments)
        return all(self.scheduler.give_up(condition, self.scheduler.now + 3) for condition in moment)

    def _cut(self) -> None:
        owner, seconds = self._process().owner, self._draw.choice((1.0, 6.0, 12.0)) * self._draw.random()
        self.note(f"{owner.name} is cut off for {seconds:.1f} s")
        owner.cut = True
        self._later(seconds, lambda: setattr(owner, "cut", False))

    def _later(self, seconds: float, step: Callable[[], None]) -> None:
        def go_on() -> None:
            self.scheduler.sleep(seconds)
            step()

        self.scheduler.add(self._thread(go_on, Owner("test")))

    def _remove(self) -> None:
        """Remove a member as if its heartbeats had not come in time."""
        members = sorted(self.broker.group("app").members)
        if self._struck is not None:
            members = [each for each in members if self.network.members.get(each) is self._struck.owner] or members
        if members:
            chosen = self._draw.choice(members)
            self.note(f"{chosen} is removed from its group")
            self.broker.leave("app", chosen)

    def _resize(self) -> None:
        """Add or remove a thread, so that tasks move between the threads of a process."""
        process, adds = self._process(), self._draw.random() < 0.5
        app = process.app
        if app is None or not process.alive:
            return
        adds = adds or process.threads < 2
        process.threads += 1 if adds else -1
        self.note(f"{process.owner.name} gets a thread {'more' if adds else 'less'}")

        def resize() -> None:
            try:
                app.add_thread() if adds else app.remove_thread()
            except StreamkitError as error:
                self.note(str(error))

        thread = Thread(target=resize, name="resize", owner=process.owner)
        thread.ident = 1
        self.scheduler.add(thread)

    def _stop(self) -> None:
        owner, seconds = self._process().owner, self._draw.choice((0.5, 3.0, 8.0, 15.0)) * self._draw.random()
        self.note(f"{owner.name} stands still for {seconds:.1f} s")
        owner.stopped = True
        self._later(seconds, lambda: setattr(owner, "stopped", False))

    def _leave(self) -> None:
        process = self._process()
        self.note(f"{process.owner.name} is asked to end")
        process.stop.set()
        thread = process.thread
        assert thread is not None
        self.scheduler.give_up(lambda: not thread.is_alive(), self.scheduler.now + 30)

    def _fence(self) -> None:
        ids = sorted(self.broker.transactions)
        if ids:
            chosen = self._draw.choice(ids)
            self.note(f"another producer takes {chosen}")
            try:
                self.broker.init_producer(chosen, clients.TRANSACTION_S)
            except Exception as error:
                self.note(str(error))

    def _restart(self) -> None:
        seconds = self._draw.choice((0.3, 2.0, 6.0)) * self._draw.random()
        # In good order it still answers for a moment.
        leaving = self._draw.choice((0.0, 0.8, 3.0))
        self.note(
            f"the broker is away for {seconds:.1f} s" + (f", after {leaving} s of shutting down" if leaving else "")
        )
        if leaving:
            self.broker.leaves_at = self.scheduler.now
            before = leaving * self._draw.random()
            self.scheduler.sleep(before)
            # Whatever ends a transaction now does so while the one before may lack a marker.
            self._draw.choice((self._fence, self._kill, self._remove, lambda: None))()
            self.scheduler.sleep(leaving - before)
        self.broker.restart(seconds)

    # -- What came out --

    def _check_join(self, owner: Owner, owned: Collection[TopicPartition]) -> None:
        """Note tasks that a process has lost and not closed yet: in the next generation the group would take their commits."""
        (process,) = (each for each in self.processes if each.owner is owner)
        for thread in process.app.threads if process.app is not None else ():
            self.verdict.wrong += [
                f"{thread.name} has not closed task {task.name}, which is lost, and joins again"
                for task in thread.tasks()
                if task.active and not set(owned).issuperset(task.task.inputs)
            ]

    def _check_rebalance(self, owner: Owner, rebalance: Rebalance) -> None:
        """Note partitions that come to a process in the generation in which another one hears that it must give them up."""
        for partitions, mine, others in (
            (rebalance.added, self._added, self._revoked),
            (rebalance.revoked, self._revoked, self._added),
        ):
            for place in partitions:
                key = rebalance.generation, place
                mine[key] = owner
                if others.get(key, owner) is not owner:
                    self.verdict.wrong.append(
                        f"{place.topic}-{place.partition} is with {owner.name} and {others[key].name} in generation {key[0]}"
                    )

    def _complete(self) -> bool:
        return not self._left() and not self._opened()

    def _left(self) -> dict[str, int]:
        """Return how many offsets of each input are not committed."""
        offsets = self.broker.group("app").offsets
        left = {}
        for topic in ("events", "lines", "app-words-repartition"):
            for number, partition in enumerate(self.broker.topics.get(topic, ())):
                place = TopicPartition(topic, number)
                start = offsets[place].offset if place in offsets else 0
                records = sum(entry.state in ("plain", "committed", "open") for entry in partition.entries[start:])
                if records:
                    left[f"{topic}-{number}"] = records
        return left

    def _opened(self) -> dict[str, dict[int, int]]:
        """Return the open transactions of each partition that has some."""
        return {
            f"{name}-{number}": dict(partition.open)
            for name, partitions in self.broker.topics.items()
            for number, partition in enumerate(partitions)
            if partition.open
        }

    def _state(self) -> str:
        group = self.broker.group("app")
        return (
            f"left {self._left()}, open {self._opened()}, group {group.state} {group.generation} {list(group.members)}"
        )

    def _rows(self, topic: str) -> list[tuple[str, int]]:
        return [
            (entry.key.decode(), int.from_bytes(entry.value))
            for partition in self.broker.topics[topic]
            for entry in partition.entries
            if entry.state in ("committed", "plain") and entry.key is not None and entry.value is not None
        ]

    def _judge(self) -> None:
        wrong = self.verdict.wrong
        wrong += self.broker.wrong
        wrong += self._judge_stores()
        for topic, truth in (("counts", self._events), ("words", self._words)):
            last: dict[str, int] = {}
            for key, count in self._rows(topic):
                self.verdict.records += 1
                before = last.get(key, 0)
                # The cache skips counts.
                if count <= before or (count > before + 1 and not self.settings["statestore.cache.max.bytes"]):
                    wrong.append(f"{topic}: {key} goes from {before} to {count}")
                last[key] = count
            wrong += [
                f"{topic}: {key} is {last.get(key, 0)}, must be {number}"
                for key, number in sorted(truth.items())
                if last.get(key, 0) != number
            ]
        for store, truth in (("running", self._events), ("words", self._words)):
            latest = dict(self._rows(f"app-{store}-changelog"))
            wrong += [
                f"changelog of {store}: {key} is {latest.get(key, 0)}, must be {number}"
                for key, number in sorted(truth.items())
                if latest.get(key, 0) != number
            ]

    def _judge_stores(self) -> Iterator[str]:
        return self._differing(files.all_stores())

    def _differing(self, stores: Iterable[dict[bytes, bytes]]) -> Iterator[str]:
        """Yield the stores that differ from their changelogs up to the offset that they have, or are ahead of them."""
        for offsets, values in files.committed_stores(stores):
            topic, number = offsets.owner.topic or "", offsets.owner.partition or 0
            if topic not in self.broker.topics:
                continue
            entries, position = self.broker.topics[topic][number].entries, offsets.positions.get(number, 0)
            if position > len(entries):
                yield f"a store is at {position} of {topic}-{number}, which ends at {len(entries)}"
                continue
            # An offset may be lower than what the store has, never higher: markers are not counted one by one.
            states = list(accumulate(entries, _applied, initial=dict[bytes, bytes]()))
            if values not in states[position:]:
                yield f"a store is like {topic}-{number} nowhere from its offset {position} on"


def _applied(rows: dict[bytes, bytes], entry: Entry) -> dict[bytes, bytes]:
    """Return the rows of a store after an entry of its changelog."""
    if entry.state not in ("committed", "plain") or entry.key is None:
        return rows
    rest = {key: value for key, value in rows.items() if key != entry.key}
    return rest if entry.value is None else {**rest, entry.key: entry.value}


_plan: Plan
_programs: dict[tuple[str, bool], Program] = {}
"""Compiled once for all histories: by the sub-topology, and whether its stores have a cache."""


def _program(plan: Plan, sub_topology: SubTopology, *, measures_latency: bool) -> Program:
    """Take the place of `compile_sub_topology`."""
    key = sub_topology.id, plan.config.statestore_cache_max_bytes > 0
    if key not in _programs:
        _programs[key] = compile_sub_topology(plan, sub_topology, measures_latency=measures_latency)
        _programs[key].factory()
    return _programs[key]


def prepare() -> None:
    """Load what every history needs, before processes are forked from this one."""
    global _plan
    # Otherwise each history would load it.
    import_module("streamkit.config.clients")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "app.yaml"
        file.write_text(TOPOLOGY, encoding="utf-8")
        _plan = load(file, env={})
    for size in CACHES:
        plan = replace(_plan, config=Config("app", overrides={"statestore.cache.max.bytes": size}))
        for sub_topology in plan.sub_topologies:
            _program(plan, sub_topology, measures_latency=True)
    setup.compile_sub_topology = _program  # type: ignore[assignment]
    client._UPKEEP_SECONDS, committer._MARKER_SECONDS, states.PUBLISH_SECONDS = UPKEEP_S, MARKER_S, VIEW_S
    # The histories are short; and a pass would free the threads of killed processes.
    collecting.gc = SimpleNamespace(collect=lambda: 0)  # type: ignore[assignment]
    gc.collect()
    gc.freeze()


def run_seed(seed: int, folder: Path, kind: type[History] = History, left_out: Collection[int | str] = ()) -> Verdict:
    """Run one history in this process, which is used up afterwards."""
    gc.disable()
    membership.Client = clients.GroupClient  # type: ignore[misc,assignment]
    return kind(seed, folder, left_out).run()
