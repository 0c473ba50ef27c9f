"""A soak: faults for some minutes while the application works, then the verdict."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from streamkit.errors import RetriableTransportError, UnreachableError
from streamkit.transport.log_interface import OpenTransaction
from tests.broker.kafka_broker import Broker
from tests.broker.support import App, Log
from tests.chaos import faults, workload
from tests.chaos.instances import Launch, moment, streamkit_line, traces
from tests.chaos.operator import Operator, Owners, left_open, unended

EXACTLY_ONCE = "exactly_once_v2"
PATIENCE_S = 120
"""How long the application may make no progress before it counts as hung."""
STUCK_S = 60
"""How long a transaction may stay open, or results be missing, after the last fault: 15 times the transactions' time-out."""
TRANSIENT = (RetriableTransportError, UnreachableError)
"""What the soak's own requests meet while a broker restarts: they are repeated, because only the application is judged."""


@dataclass
class Verdict:
    """What a soak found."""

    faults: int
    killed: int
    """SIGKILLs of instances."""
    seconds: float
    found: workload.Found
    deaths: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    """Partitions on which a transaction is open although nothing happens any more, each with what brokers know of it."""
    ended: int = 0
    """Partitions with a transaction that brokers had lost, and that the command ended."""
    healed: float = 0.0
    """Seconds from the last fault until all results were there, and no transaction was open."""
    traces: list[str] = field(default_factory=list)
    unmoved: list[str] = field(default_factory=list)
    """Tasks that one of two programs in a group never had."""
    java_deaths: list[str] = field(default_factory=list)
    """Not judged: Kafka Streams ended by itself in a group that it shares with streamkit."""

    @property
    def passed(self) -> bool:
        found = self.found
        wrong = found.gaps or found.repeats or found.wrong or found.unread
        return not (wrong or self.deaths or self.hung or self.stuck or self.traces or self.unmoved)

    def row(self) -> list[str]:
        """What was found, for a table: faults, SIGKILLs, lost, doubled, stuck, ended by the command, deaths, seconds to heal, verdict."""
        found = self.found
        lost = found.gaps + found.wrong + sum(found.unread.values())
        counts = (len(self.stuck), self.ended, len(self.deaths), round(self.healed))
        figures = (self.faults, self.killed, lost, found.repeats, *counts)
        verdict = "passed" if self.passed else "hung" if self.hung else "failed"
        return [*map(str, figures), verdict]

    def text(self) -> str:
        found = self.found
        lines = [
            f"{self.faults} faults in {self.seconds:.0f} s, {self.killed} SIGKILLs among them, {found.records} counts: "
            f"{found.gaps} gaps, {found.repeats} repeats, {found.wrong} other results wrong, "
            f"{len(self.stuck)} partitions stuck, {self.ended} ended by the command, healed after {self.healed:.0f} s"
        ]
        lines += [f"not read: {count} records of {name}" for name, count in found.unread.items()]
        for name in ("deaths", "hung", "stuck", "traces", "unmoved", "java_deaths"):
            lines += [f"{name}: {text}" for text in getattr(self, name)]
        return "\n".join([*lines, *found.samples, "PASSED" if self.passed else "FAILED"])


def soak(
    folder: Path,
    log: Log,
    broker: Broker | None,
    *,
    seed: int,
    seconds: float,
    guarantee: str = EXACTLY_ONCE,
    engine: str | None = None,
    rate: int = 200,
    most: int | None = None,
    only: frozenset[str] = frozenset(),
    kills: int = 1,
    launch: Launch = streamkit_line,
    count: int = 3,
    protocol: str = workload.CLASSIC,
    mix: str = faults.USUAL,
    gap: float | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Verdict:
    """Run the application under faults for so many seconds, or `most` faults; then let it finish, and check.

    `engine`: state.engine; None: the one that is installed with streamkit. `kills`: how many times as often as usual instances
    are killed: more of the faults are such, with shorter pauses. `count`: of instances. `protocol`: of the group; instances of
    STREAMS run two programs, each of which must have every task at some time.
    """
    exactly_once = guarantee == EXACTLY_ONCE
    shared = protocol == workload.STREAMS
    extra = faults.EXACTLY_ONCE_SETTINGS if exactly_once else {}
    usual: dict[str, object] = (
        {**faults.MEMBER_SETTINGS} if shared else {**faults.MEMBER_SETTINGS, **faults.SESSION_SETTINGS}
    )
    settings = {name.replace(".", "_"): value for name, value in {**usual, **extra}.items()}
    if engine is not None:
        settings["state_engine"] = engine
    app = workload.make(folder, log, guarantee, protocol, **settings)
    draw = random.Random(seed)
    cluster = faults.Cluster(
        app, draw, broker, count, only=only, kills=kills, launch=launch, mix=mix, gap=gap, shared=shared
    )
    feeder = workload.Feeder(app, seed, rate)
    operator, owners = Operator(app, cluster.note), Owners(app)
    shown = 0
    hung: list[str] = []
    try:
        cluster.start()
        feeder.start()
        operator.start()
        if shared:
            owners.start()
        hung += _progress(app, cluster)
        began = moment()
        while moment() - began < seconds and (most is None or cluster.faults < most) and not hung:
            cluster.strike()
            cluster.pause()
            if cluster.faults % 10 == 0:
                hung += _progress(app, cluster)
            for event in cluster.events[shown:]:
                say(f"{event.at:8.1f} s  {event.what}")
            shown = len(cluster.events)
        lasted = moment() - began
        feeder.end()
        truth = _truth(app)
        ended = moment()
        hung += _finished(app, cluster, truth)
        stuck = [str(each) for each in _stuck(app, cluster)]
        healed = moment() - ended
        operator.end()
        owners.end()
        cluster.look_for_deaths()
        hung += cluster.end()
        for event in cluster.events[shown:]:
            say(f"{event.at:8.1f} s  {event.what}")
    finally:
        operator.end()
        owners.end()
        cluster.kill()
    found = workload.check(app, exactly_once=exactly_once)
    places = stuck, operator.ended, healed, traces(app), owners.missing() if shared else [], cluster.java_deaths
    return Verdict(cluster.faults, cluster.killed, lasted, found, cluster.deaths, hung, *places)


def _progress(app: App, cluster: faults.Cluster) -> list[str]:
    """Wait until all three results go on; return what did not."""
    return _wait(
        cluster,
        lambda before: all(now > then for now, then in zip(_ends(app), before, strict=True)),
        app,
        "results go on",
    )


def _truth(app: App) -> workload.Truth:
    """Read the inputs; the broker may still be restarting."""
    while True:
        try:
            return workload.read_truth(app)
        except TRANSIENT:
            threading.Event().wait(0.3)


def _finished(app: App, cluster: faults.Cluster, truth: workload.Truth) -> list[str]:
    """Wait until so much came out as went in."""
    wanted = (sum(truth.events.values()), sum(truth.words.values()), sum(truth.pairs.values()))
    # As long as records are read the application is slow, not hung: how much it has to read does not grow any more.
    return _wait(
        cluster, lambda before: _enough(app, wanted), app, "all results are there", lambda: workload.unread(app)
    )


def _stuck(app: App, cluster: faults.Cluster) -> list[OpenTransaction]:
    """Wait until no transaction is open on any topic of the application; return those that stay so for STUCK_S."""
    if app.log.address.startswith("embedded"):
        return []
    pause = threading.Event()
    deadline = moment() + STUCK_S
    while True:
        try:
            if not unended(app) or moment() > deadline:
                return left_open(app)
        except TRANSIENT:
            if moment() > deadline:
                raise
        cluster.look_for_deaths()
        pause.wait(0.3)


def _enough(app: App, wanted: tuple[int, int, int]) -> bool:
    if any(end < want for end, want in zip(_ends(app), wanted, strict=True)):
        return False
    log = app.log
    # Markers of transactions count among offsets, so records have to be counted.
    results = [len(log.read(app.topic(name), committed_only=True)) for name in ("counts", "words", "pairs")]
    inputs = [
        log.read_so_far(app.application, app.topic(name)) == sum(log.ends(app.topic(name))) for name in workload.INPUTS
    ]
    return all(inputs) and all(have >= want for have, want in zip(results, wanted, strict=True))


def _ends(app: App) -> list[int]:
    return [sum(app.log.ends(app.topic(name))) for name in ("counts", "words", "pairs")]


def _wait(
    cluster: faults.Cluster,
    holds: Callable[[list[int]], bool],
    app: App,
    what: str,
    state: Callable[[], object] = lambda: None,
) -> list[str]:
    """Wait until `holds` is true; return `what` where it is not for PATIENCE_S, counted from the last change of `state`."""
    pause = threading.Event()
    before: list[int] = []
    last: object = None
    deadline = moment() + PATIENCE_S
    while True:
        with suppress(*TRANSIENT):
            before = before or _ends(app)
            if holds(before):
                return []
            now = state()
            if now != last:
                last, deadline = now, moment() + PATIENCE_S
        if moment() > deadline:
            cluster.note(f"never: {what}")
            return [f"never: {what}"]
        cluster.look_for_deaths()
        pause.wait(0.3)
