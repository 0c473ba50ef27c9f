"""Nexmark's queries 0 to 22 beside Kafka Streams and Flink SQL on one broker.

    python -m tests.bench.nexmark [--queries q0,q5] [--records 500000] [--rounds 3] [--programs streamkit,java,heap,rocksdb]
                                  [--guarantee exactly_once_v2]

Events are those of the suite: of 50, one is a person, three are auctions and 46 are bids. A query reads the topics that it
needs, and as many events are drawn as give about so many records. Each output is compared with plain loops over the events.
Each program has one partition and one core's worth of parallelism: a stream thread, or Flink's parallelism of 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from tests.bench import report
from tests.bench.nexmark.flink_rows import of_flink
from tests.bench.nexmark.generator import AUCTIONS, KINDS, PERSONS, ROUND
from tests.bench.nexmark.reference import APPENDED, QUERIES, Rows, final
from tests.bench.side_by_side import EXACTLY_ONCE, FLINK, PROGRAMS, Job, Measured, measure, tables
from tests.broker.kafka_broker import Broker
from tests.broker.support import Log, Raw

FOLDER = Path(__file__).parent
WARM_PART = 4
"""Which part of the records is for the warm-up."""
OF_A_ROUND = {"persons": PERSONS, "auctions": AUCTIONS, "bids": ROUND - PERSONS - AUCTIONS}
READS = {
    **dict.fromkeys(("q3", "q8"), ("persons", "auctions")),
    **dict.fromkeys(("q4", "q6", "q9", "q20"), ("bids", "auctions")),
}
"""The others read bids only."""
WITHOUT_FLINK = ("q12",)
"""Windows of the machine's clock that are open when the input ends never give a result."""
TITLES = {
    "q0": "pass through",
    "q1": "currency conversion",
    "q2": "selection",
    "q3": "local items",
    "q4": "average price of a category",
    "q5": "hot items",
    "q6": "average price of a seller",
    "q7": "highest bid",
    "q8": "new users",
    "q9": "winning bids",
    "q10": "bids by minute",
    "q11": "sessions",
    "q12": "windows by the clock",
    "q13": "side input",
    "q14": "calculation",
    "q15": "distinct counts of a day",
    "q16": "distinct counts of channels",
    "q17": "prices of auctions",
    "q18": "last bid of a bidder",
    "q19": "ten highest bids",
    "q20": "bids with auctions",
    "q21": "channel's number",
    "q22": "URL's folders",
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


def written(program: str, query: str, rows: list[Raw]) -> Rows:
    """What a program's output has in the end."""
    values = [(row.key or b"", None if row.value is None else json.loads(row.value)) for row in rows]
    if program not in FLINK:
        return final(query, [(key.decode(), value) for key, value in values])
    if query not in APPENDED and any(key for key, _ in values):
        values = list(dict(values).items())
    return final(query, of_flink(query, [value for _, value in values if value is not None]))


def digest(found: Rows) -> str:
    """A checksum of an output."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]


def run(log: Log, query: Query, asked: argparse.Namespace) -> dict[str, list[Measured]]:
    """Measure a query, the programs in turns."""
    topics = {kind: query.topic(kind) for kind in KINDS}
    known = log.topics("")
    inputs = tuple(topics[kind] for kind in query.kinds)
    # A side input has a group of its own, if any: its records don't count.
    for kind in (*query.kinds, "side"):
        if topics[kind] not in known:
            fill(log, topics[kind], kind, query.events)
    wanted = QUERIES[query.name](query.events)
    truth = digest(wanted if query.name in APPENDED else sorted(wanted, key=lambda each: each[0]))
    records = sum(sum(log.ends(topic)) for topic in inputs)
    programs = [each for each in asked.programs if query.name not in WITHOUT_FLINK or PROGRAMS[each] not in FLINK]
    runs: dict[str, list[Measured]] = {PROGRAMS[each]: [] for each in programs}
    for number in range(asked.rounds):
        for short in programs:
            program = PROGRAMS[short]
            name = f"nexmark-{query.name}-{short}-{asked.guarantee[:2]}-{number}"
            topology = FOLDER / "topologies" / f"{query.name}.yaml"
            java = ("bench/nexmark/java", "Nexmark", query.name)
            script = [str(FOLDER / "flink" / f"{each}.sql") for each in ("inputs", query.name)]
            flink = ("bench/flink/java", "Script", *script)
            output = f"out-{name}"
            settings = {"processing.guarantee": asked.guarantee}
            made = Job(name, topology, java, {**topics, "output": output}, inputs, settings, {}, flink)
            log.create(output, 1)
            runs[program].append(measure(program, made, log, records // WARM_PART))
            found = written(program, query.name, log.read(output, committed_only=True))
            # Flink's joins give rows in any order.
            if query.name == "q20" and program in FLINK:
                found.sort(key=lambda row: row[1]["bid_dateTime"])
            last = runs[program][-1]
            last.digest = digest(found)
            print(f"  {query.name}, round {number + 1}: {program} {last}", flush=True)
            if last.digest != truth:
                print(f"  {query.name}: {program} is DIFFERENT from plain loops", flush=True)
                last.digest += " wrong"
    return runs


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 where outputs differ."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.nexmark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", default=",".join(QUERIES), help="with commas; default: all")
    parser.add_argument("--records", type=int, default=500_000, help="about so many are read by each query")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each program")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="with commas; default: all")
    parser.add_argument("--guarantee", choices=("at_least_once", EXACTLY_ONCE), default="at_least_once")
    asked = parser.parse_args(arguments)
    names = asked.queries.split(",")
    asked.programs = asked.programs.split(",")
    for found, known in ((names, QUERIES), (asked.programs, PROGRAMS)):
        if wrong := [name for name in found if name not in known]:
            parser.error(f"not known: {wrong[0]}; there are {', '.join(known)}")
    print(report.machine())
    with Broker(heap="1g", measured=True) as broker:
        log = Log(broker.address)
        found = {f"{name}: {TITLES[name]}": run(log, Query(name, asked.records), asked) for name in names}
        log.close()
    table = tables(f"{asked.records:,} records, {asked.guarantee.replace('_', ' ')}", found)
    print(f"\n{table}\n\nat the end {report.machine().rpartition(', ')[2]}")
    return int("DIFFERENT" in table or "wrong" in str(found))


if __name__ == "__main__":
    sys.exit(main())
