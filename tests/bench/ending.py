"""Shows that state ends: many events over few ids that are alive at a time, with a `ttl`, on the embedded log.

    python -m tests.bench.ending [--events 10000000] [--live 100000] [--seconds 500] [--engine rocksdb] [--cache 10485760]

One event comes each millisecond of event time, with an id out of a window of `--live` ids that moves on by one id every ten events, so
that `--events` / 10 ids come and go. Printed are, by part, the events a second of that part, the rows of the store, its bytes on disk,
what was deleted so far, and the memory of the process. Without a time to live (`--seconds 0`) rows and bytes grow with every id.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

from streamkit.plan import load
from streamkit.record import TopicPartition
from streamkit.runtime.local.client import Application
from streamkit.transport.base import NewTopic
from streamkit.transport.embedded import EmbeddedTransport
from tests.bench import report

_EVENTS_OF_AN_ID = 10
_BATCH = 5_000
_START_MS = 1_700_000_000_000
_TOPOLOGY = """\
streamkit: 1
application: ending
topics: {{events: {{value: string, partitions: 1}}, visits: {{value: long, partitions: 1}}}}
pipelines:
  visits:
    stream: events
    steps: [group_by_key, count: {{store: {{name: visits{ttl}}}}}, to_stream]
    to: visits
"""


def produce(log: EmbeddedTransport, first: int, count: int, live: int) -> None:
    """Write the events from number `first` on."""
    draw, producer = random.Random(first).randrange, log.producer()
    for start in range(first, first + count, _BATCH):
        numbers = range(start, min(start + _BATCH, first + count))
        producer.send(
            [
                ("events", b"id-%d" % (each // _EVENTS_OF_AN_ID + draw(live)), b"v", _START_MS + each, None, 0)
                for each in numbers
            ]
        )
        producer.flush()
    producer.close()


def written(log: EmbeddedTransport) -> int:
    """Return how many records came out."""
    place, consumer = TopicPartition("visits", 0), log.consumer(None, read_committed=True)
    try:
        return consumer.end_offsets([place])[place]
    finally:
        consumer.close()


def memory() -> int:
    """Return the bytes of memory that the process takes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    """Print the size of the state by part of the events."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--live", type=int, default=100_000, help="ids that are alive at a time")
    parser.add_argument("--seconds", type=int, default=500, help="the ttl in seconds of event time; 0: none")
    parser.add_argument("--engine", default="rocksdb", help="leveldb or rocksdb")
    parser.add_argument("--cache", type=int, default=10 << 20, help="statestore.cache.max.bytes")
    parser.add_argument("--parts", type=int, default=10)
    asked = parser.parse_args()
    print(report.machine())
    print("|     events | events/s | rows of the store | bytes on disk | records out | memory MB |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder = Path(scratch)
        file = folder / "topology.yaml"
        file.write_text(_TOPOLOGY.format(ttl=f", ttl: {asked.seconds}s" if asked.seconds else ""), encoding="utf-8")
        settings = {"state.dir": str(folder / "state"), "state.engine": asked.engine}
        plan = load(file, {}, {**settings, "statestore.cache.max.bytes": str(asked.cache)})
        log = EmbeddedTransport(folder / "log")
        admin = log.admin()
        admin.create_topics([NewTopic("events", 1), NewTopic("visits", 1)])
        admin.close()
        part = asked.events // asked.parts
        for number in range(asked.parts):
            produce(log, number * part, part, asked.live)
            application = Application(plan, log)
            began = time.monotonic()
            application.run(until_idle=True, stop=threading.Event())
            seconds = time.monotonic() - began
            kept = _kept(folder / "state", asked.engine)
            print(
                f"| {(number + 1) * part:,} | {part / seconds:,.0f} | {kept[0]:,} | {kept[1]:,} | {written(log):,} | "
                f"{memory() >> 20:,} |",
                flush=True,
            )
        log.close()
    print(f"\nat the end {report.machine().rpartition(', ')[2]}")
    return 0


def _kept(state: Path, engine: str) -> tuple[int, int]:
    """Return the rows of the store, each counted, and the bytes of its files, of the index too."""
    from streamkit.runtime.kept import kept_stores

    (store,) = kept_stores(state, verify=True)
    assert store.engine == engine
    return store.rows or 0, store.bytes or 0


if __name__ == "__main__":
    sys.exit(main())
