"""Who looks after the application: ends the transactions that brokers have lost, and notes which program has which task."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing, suppress

from streamkit.errors import TransportError
from streamkit.record import TopicPartition
from streamkit.transport.log_interface import OpenTransaction
from tests.broker.support import App
from tests.chaos.faults import TRANSACTION_MS
from tests.chaos.instances import JAVA_CLIENT, KAFKA_STREAMS, STREAMKIT, moment
from tests.chaos.workload import PARTITIONS
from tests.cli.support import LIMIT_S, command

PAUSE_S = 3.0
HELD_S = 3 * TRANSACTION_MS / 1000
"""How long a transaction must be lost before it is ended: as long as the application waits before it tells."""


class Operator:
    """Looks at the transactions of an application in a thread of its own, for streamkit and Kafka Streams alike."""

    def __init__(self, app: App, note: Callable[[str], None]):
        """`note`: takes what is done."""
        self.ended = 0
        """Transactions, counted by partition, that the command has ended."""
        self._app = app
        self._note = note
        self._since: dict[tuple[TopicPartition, int, int, int], float] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="operator", daemon=True)

    def start(self) -> None:
        if not self._app.log.address.startswith("embedded"):
            self._thread.start()

    def end(self) -> None:
        """Return when nothing is done any more."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(PAUSE_S):
            # Brokers restart meanwhile.
            with suppress(TransportError):
                self._look()

    def _look(self) -> None:
        places = unended(self._app)
        found = self._app.log.open_transactions(places, self._app.application)
        lost = [(each.partition, each.start, each.producer_id, each.epoch) for each in found if each.hanging]
        now = moment()
        self._since = {each: self._since.get(each, now) for each in lost}
        if any(now - since >= HELD_S for since in self._since.values()):
            self._end_lost()

    def _end_lost(self) -> None:
        line = command("transactions", self._app.path, "--end", "--format", "json")
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        rows = json.loads(done.stdout) if done.stdout else []
        ended = [f"{row['topic']}-{row['partition']}: {row['outcome']}" for row in rows if row["ended"]]
        self.ended += len(ended)
        self._note(f"ended by the command: {', '.join(ended) or 'none'} {' / '.join(done.stderr.splitlines())}")


class Owners:
    """Notes which program has had which task, in a group that streamkit and Kafka Streams share."""

    def __init__(self, app: App):
        topics = [app.topic(name) for name in ("events", "lines", "left")] + [f"{app.application}-words-repartition"]
        self._wanted = {TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)}
        self._had: dict[str, set[TopicPartition]] = defaultdict(set)
        self._app = app
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="owners", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def missing(self) -> list[str]:
        """Return a line for each program and partition that it never had."""
        return [
            f"{program} never had {partition.topic.removeprefix(self._app.application)}-{partition.partition}"
            for program in (STREAMKIT, KAFKA_STREAMS)
            for partition in sorted(self._wanted - self._had[program])
        ]

    def _run(self) -> None:
        with closing(self._app.log.transport.admin()) as admin:
            while not self._end.wait(1.0):
                # Brokers restart meanwhile.
                with suppress(TransportError):
                    for member in admin.describe_group(self._app.application).members:
                        program = KAFKA_STREAMS if member.name.startswith(JAVA_CLIENT) else STREAMKIT
                        self._had[program] |= member.partitions


def unended(app: App) -> list[TopicPartition]:
    """Return the partitions whose committed records end before the last one: a transaction is open there."""
    return [
        TopicPartition(name, number)
        for name in app.log.topics("")
        if name.startswith(app.application)
        for number, (stable, end) in enumerate(
            zip(app.log.ends(name, committed_only=True), app.log.ends(name), strict=True)
        )
        if stable < end
    ]


def left_open(app: App) -> list[OpenTransaction]:
    """Return the transactions that are open in partitions of an application."""
    places = unended(app)
    return app.log.open_transactions(places, app.application) if places else []
