"""Shows that state ends: many events over few ids that are alive at a time, with a `ttl`, on the embedded log.

    python -m tests.bench.ttl [--events 100000000] [--live 1000000] [--of-an-id 10] [--seconds N] [--engine rocksdb]

One event comes each millisecond of event time, with an id out of a window of `--live` ids that moves on by one id every `--of-an-id`
events: an id that the window has left never comes again. A row ends after half the time that an id is in the window (`--seconds` says
otherwise; 0: no `ttl`, so that rows and bytes grow with every id). The events are written and counted a million at a time, by an
application that is started for each million and ends in order; then the log forgets all its records, so that it does not grow.
Python's collector and the allocator are set as by `streamkit run`. The cache has 10 MiB, the default: about a tenth of the rows, so
that nearly each event reads a row and writes it. Printed are, by part of the events, what was counted in a second and in a second of CPU
time, starts and ends included; the ids so far; the rows of the store; its bytes on disk; the records that came out so far, and
how many of them are deletions; the memory of the process; and the minutes since the start.
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
from streamkit.runtime.execution.collecting import collect_rarely, few_arenas
from streamkit.runtime.local.client import Application
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import EARLIEST, NewTopic
from tests.bench import report

_BATCH = 5_000
_STEP = 1_000_000
"""Events that are on the log at once."""
_OUT = TopicPartition("visits", 0)
_START_MS = 1_700_000_000_000
_TOPOLOGY = """\
streamkit: 1
application: ttl
topics: {{events: {{value: string, partitions: 1}}, visits: {{value: long, partitions: 1}}}}
pipelines:
  visits:
    stream: events
    steps: [group_by_key, count: {{store: {{name: visits{ttl}}}}}, to_stream]
    to: visits
"""


def produce(log: EmbeddedTransport, events: range, live: int, of_an_id: int) -> None:
    """Write the events of these numbers."""
    draw, producer = random.Random(events.start).random, log.producer()
    for start in range(0, len(events), _BATCH):
        producer.send(
            [
                ("events", b"id-%d" % (each // of_an_id + int(draw() * live)), b"v", _START_MS + each, None, 0)
                for each in events[start : start + _BATCH]
            ]
        )
        producer.flush()
    producer.close()


def forget(log: EmbeddedTransport) -> tuple[int, int]:
    """Delete all records of the log; return how many have come out since the first, and how many of the forgotten are deletions."""
    admin, consumer = log.admin(), log.consumer(None, read_committed=True)
    ends = consumer.end_offsets([TopicPartition(name, 0) for name in admin.topics()])
    consumer.assign({_OUT: EARLIEST})
    deletions = 0
    while consumer.position(_OUT) < ends[_OUT]:
        deletions += sum(batch.values.count(None) for batch in consumer.poll(_BATCH, 0))
    admin.delete_records(ends)
    consumer.close()
    admin.close()
    return ends[_OUT], deletions


def memory() -> int:
    """Return the bytes of memory that the process takes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    """Print the size of the state by part of the events."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000_000)
    parser.add_argument("--live", type=int, default=1_000_000, help="ids in the window")
    parser.add_argument("--of-an-id", type=int, default=10, help="events of an id, on average")
    parser.add_argument("--seconds", type=int, help="the ttl in seconds of event time; 0: none")
    parser.add_argument("--engine", default="rocksdb", help="leveldb or rocksdb")
    parser.add_argument("--cache", type=int, default=10 << 20, help="statestore.cache.max.bytes")
    parser.add_argument("--part", type=int, default=2_500_000, help="events by which a line is printed")
    asked = parser.parse_args()
    seconds = asked.live * asked.of_an_id // 2_000 if asked.seconds is None else asked.seconds
    print(f"{report.machine()}\n{asked.live:,} ids, {asked.of_an_id} events each, ttl {seconds} s, {asked.engine}\n")
    print("| events | events/s | events/CPU s | ids | rows | disk MB | out | deletions | memory MB | minutes | load |")
    print("|" + " ---: |" * 11, flush=True)
    collect_rarely()
    few_arenas()
    begun, deleted = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder = Path(scratch)
        file = folder / "topology.yaml"
        file.write_text(_TOPOLOGY.format(ttl=f", ttl: {seconds}s" if seconds else ""), encoding="utf-8")
        settings = {"state.dir": str(folder / "state"), "state.engine": asked.engine}
        plan = load(file, {}, {**settings, "statestore.cache.max.bytes": str(asked.cache)})
        log = EmbeddedTransport(folder / "log")
        admin = log.admin()
        admin.create_topics([NewTopic("events", 1), NewTopic("visits", 1)])
        admin.close()
        for start in range(0, asked.events, asked.part):
            part, took, spent = range(start, min(start + asked.part, asked.events)), 0.0, 0.0
            for at in range(0, len(part), _STEP):
                produce(log, part[at : at + _STEP], asked.live, asked.of_an_id)
                application = Application(plan, log)
                began, used = time.monotonic(), time.process_time()
                application.run(until_idle=True, stop=threading.Event())
                took, spent = took + time.monotonic() - began, spent + time.process_time() - used
                out, deletions = forget(log)
                deleted += deletions
            rows, size = _kept(folder / "state", asked.engine)
            ids, minutes = asked.live + part.stop // asked.of_an_id, (time.monotonic() - begun) / 60
            rates, counts = (len(part) / took, len(part) / spent), (ids, rows, size / 1e6, out, deleted)
            cells = [f"{each:,.0f}" for each in (part.stop, *rates, *counts, memory() / 1e6, minutes)]
            print(f"| {' | '.join(cells)} | {os.getloadavg()[0]:.1f} |", flush=True)
        log.close()
    return 0


def _kept(state: Path, engine: str) -> tuple[int, int]:
    """Return the rows of the store, each counted, and the bytes of its files, of the index too."""
    from streamkit.runtime.operations.stopped_state import kept_stores

    (store,) = kept_stores(state, verify=True)
    assert store.engine == engine
    return store.rows or 0, store.bytes or 0


if __name__ == "__main__":
    sys.exit(main())
