"""Nexmark's queries 0 to 5, 7 and 8 beside Kafka Streams on one broker.

    python -m tests.bench.nexmark [--queries q0,q5] [--records 500000] [--rounds 3]

Events are those of the suite: of 50, one is a person, three are auctions and 46 are bids. A query reads the topics that it
needs, and as many events are drawn as give about so many records. Outputs of both programs are compared, those of the
first round with plain loops over the events too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from tests.bench import report
from tests.bench.nexmark.generator import AUCTIONS, KINDS, PERSONS, ROUND
from tests.bench.nexmark.reference import QUERIES
from tests.bench.programs import STREAMKIT
from tests.bench.side_by_side import HEAD, PROGRAMS, Job, Measured, measure, row
from tests.broker.kafka_broker import Broker
from tests.broker.support import Log, Raw

FOLDER = Path(__file__).parent
WARM_PART = 4
"""Which part of the records is for the warm-up."""
OF_A_ROUND = {"persons": PERSONS, "auctions": AUCTIONS, "bids": ROUND - PERSONS - AUCTIONS}
READS = {"q3": ("persons", "auctions"), "q4": ("bids", "auctions"), "q8": ("persons", "auctions")}
"""The others read bids only."""
ORDERED = ("q0", "q1", "q2")
"""Their outputs are compared in their order, those of the others by the last value of each key."""
TITLES = {
    "q0": "pass through",
    "q1": "currency conversion",
    "q2": "selection",
    "q3": "local items",
    "q4": "average price of a category",
    "q5": "hot items",
    "q7": "highest bid",
    "q8": "new users",
}


@dataclass(frozen=True)
class Query:
    """A query with its input."""

    name: str
    records: int
    """About so many are read."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of events that it reads."""
        return READS.get(self.name, ("bids",))

    @property
    def events(self) -> int:
        """How many events are drawn."""
        return self.records * ROUND // sum(OF_A_ROUND[kind] for kind in self.kinds) // ROUND * ROUND

    def topic(self, kind: str) -> str:
        """The topic of a kind."""
        return f"nexmark-{kind}-{self.events}"


def fill(log: Log, topic: str, kind: str, events: int) -> None:
    """Write the events of a kind to a new topic of one partition."""
    log.create(topic, 1)
    limits = {"queue.buffering.max.messages": 1_000_000, "linger.ms": 100}
    producer = Producer({"bootstrap.servers": log.address, "acks": 1, **limits})
    for key, value, time in KINDS[kind](events):
        data = json.dumps(value, separators=(",", ":"))
        while True:
            try:
                producer.produce(topic, data, key, 0, timestamp=time)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()


def written(rows: Sequence[Raw], ordered: bool) -> list[tuple[str, dict]]:
    """(key, value) of all records in their order, or the last value of each key; deleted keys are left out."""
    found = [((row.key or b"").decode(), row.value) for row in rows]
    found = found if ordered else sorted(dict(found).items())
    return [(key, json.loads(value)) for key, value in found if value is not None]


def digest(found: list[tuple[str, dict]]) -> str:
    """A checksum of an output."""
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def run(log: Log, query: Query, rounds: int) -> str:
    """Measure a query, the programs in turns; return its line of the table."""
    topics = {kind: query.topic(kind) for kind in query.kinds}
    known = log.topics("")
    for kind, topic in topics.items():
        if topic not in known:
            fill(log, topic, kind, query.events)
    wanted = QUERIES[query.name](query.events)
    ordered = query.name in ORDERED
    truth = digest(wanted if ordered else sorted(wanted, key=lambda each: each[0]))
    records = sum(sum(log.ends(topic)) for topic in topics.values())
    runs: dict[str, list[Measured]] = {program: [] for program in PROGRAMS}
    for number in range(rounds):
        for program, found in runs.items():
            name = f"nexmark-{query.name}-{'streamkit' if program == STREAMKIT else 'java'}-{number}"
            topology = FOLDER / "topologies" / f"{query.name}.yaml"
            java = ("bench/nexmark/java", "Nexmark", query.name)
            output = f"out-{name}"
            made = Job(name, topology, java, {**topics, "output": output}, tuple(topics.values()), {}, {})
            log.create(output, 1)
            found.append(measure(program, made, log, records // WARM_PART))
            found[-1].digest = digest(written(log.read(output), ordered))
            print(f"  {query.name}, round {number + 1}: {program} {found[-1]}", flush=True)
            if found[-1].digest != truth:
                print(f"  {query.name}: {program} is DIFFERENT from plain loops", flush=True)
                found[-1].digest += " wrong"
    return row(f"{query.name}: {TITLES[query.name]}", runs)


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 where outputs differ."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.nexmark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", default=",".join(QUERIES), help="with commas; default: all")
    parser.add_argument("--records", type=int, default=500_000, help="about so many are read by each query")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each program")
    asked = parser.parse_args(arguments)
    names = asked.queries.split(",")
    if wrong := [name for name in names if name not in QUERIES]:
        parser.error(f"no such query: {wrong[0]}; there are {', '.join(QUERIES)}")
    print(report.machine())
    with Broker(heap="1g", measured=True) as broker:
        log = Log(broker.address)
        lines = [run(log, Query(name, asked.records), asked.rounds) for name in names]
        log.close()
    print("\n" + "\n".join([HEAD.format(f"{asked.records:,} records"), *lines]))
    print(f"\nat the end {report.machine().rpartition(', ')[2]}")
    return int(any("DIFFERENT" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main())
