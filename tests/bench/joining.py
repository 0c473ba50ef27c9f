"""Measures what a second instance's joining, and the first one's death, cost those who wait for results.

    python -m tests.bench.joining [--seconds 8] [--guarantee exactly_once_v2]

Every partition gets a record each 10 ms; the longest time in which nothing came out of it, by the broker's clock, is its
pause. Before the second instance starts, pauses are those of commits alone: the peer that the others are to be held to.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

from streamkit.transport.log_interface import Producer
from tests.broker.kafka_broker import Broker
from tests.broker.support import App, Log, application, until
from tests.chaos.instances import Instance

PARTITIONS = 8
EVERY_S = 0.01
SESSION_MS = 1500
TEXT = f"""\
defaults: {{key: string, value: string}}
topics:
  events: {{topic: "{{a}}events", partitions: {PARTITIONS}}}
  counts: {{topic: "{{a}}counts", value: long}}
pipelines:
  running:
    stream: events
    steps: [group_by_key, {{count: running}}, to_stream]
    to: counts
"""


def make(folder: Path, log: Log, guarantee: str) -> App:
    """An application of two threads an instance and one standby a task, with the record cache off."""
    settings = {
        "processing_guarantee": guarantee,
        "num_stream_threads": 2,
        "num_standby_replicas": 1,
        "statestore_cache_max_bytes": 0,
        "consumer_session_timeout_ms": SESSION_MS,
        "consumer_heartbeat_interval_ms": 400,
    }
    app = application(folder, log, "joining", TEXT, **settings)
    log.create(app.topic("events"), PARTITIONS)
    log.create(app.topic("counts"), PARTITIONS, **{"message.timestamp.type": "LogAppendTime"})
    return app


class Feeder(threading.Thread):
    """Writes one record to each partition, again and again, until it is ended."""

    def __init__(self, app: App, producer: Producer):
        super().__init__(name="feeder", daemon=True)
        self._topic = app.topic("events")
        self._producer = producer
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(EVERY_S):
            now = time.time_ns() // 1_000_000
            self._producer.send(
                [(self._topic, b"p%d" % number, b"x", now, None, number) for number in range(PARTITIONS)]
            )

    def end(self) -> None:
        self._end.set()
        self.join()
        self._producer.flush()
        self._producer.close()


def tasks(app: App, instance: Instance) -> int:
    """How many tasks have ever been in this instance's state directory, standbys among them."""
    folder = instance.state / app.application
    return len([path for path in folder.iterdir() if path.is_dir()]) if folder.is_dir() else 0


def pauses(arrivals: dict[bytes, list[int]], since: int, until_: int) -> list[int]:
    """The longest pause of every partition that began between two times, in milliseconds, shortest first."""
    return sorted(
        max((after - before for before, after in pairwise(times) if since <= before < until_), default=0)
        for times in arrivals.values()
    )


def measure(folder: Path, log: Log, guarantee: str, seconds: float, *settings: str) -> list[str]:
    """Let an instance run alone, a second one join, and the first be killed; return what to print."""
    app = make(folder, log, guarantee)
    feeder = Feeder(app, log.transport.producer())
    moments: list[int] = []

    def let_run() -> None:
        moments.append(time.time_ns() // 1_000_000)
        threading.Event().wait(seconds)

    first, second = Instance(app, 1, settings), Instance(app, 2, settings)
    first.start()
    feeder.start()
    try:
        counts = app.topic("counts")
        until(lambda: len({raw.key for raw in log.read(counts)}) == PARTITIONS, "results of all partitions")
        let_run()
        second.start()
        let_run()
        until(lambda: tasks(app, second) == PARTITIONS, "the second has active tasks and standbys")
        threading.Timer(0.5, first.kill).start()
        let_run()
        feeder.end()
    finally:
        first.kill()
        second.kill()
    arrivals: dict[bytes, list[int]] = defaultdict(list)
    for raw in log.read(app.topic("counts")):
        arrivals[raw.key or b""].append(raw.timestamp)
    end = moments[-1] + round(seconds * 1000)
    alone, joined, killed = (pauses(arrivals, *span) for span in pairwise([*moments, end]))
    return [
        f"longest pause of each partition in ms, {guarantee}",
        f"  one instance alone:      {alone}",
        f"  a second one joins:      {joined}",
        f"  the first one is killed: {killed}, of which {SESSION_MS} are its session",
    ]


def main() -> int:
    """Print the pauses."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.joining", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=8, help="how long each of the three parts lasts")
    parser.add_argument("--guarantee", default="exactly_once_v2")
    parser.add_argument("--folder", type=Path, default=None, help="keep everything there, logs of instances included")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streamkit-joining-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with Broker(folder / "broker", measured=True) as broker:
            log = Log(broker.address)
            try:
                print("\n".join(measure(folder, log, options.guarantee, options.seconds)))
            finally:
                log.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
