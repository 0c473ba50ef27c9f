"""The loop that does nothing beside streamkit and the loop by hand: what remains where an engine costs nothing.

    python -m tests.bench.floor [--rounds 3]

The loop reads and writes through streamkit's client with the native extension, as much as the filter of `stateless` keeps, and
neither decodes nor changes a record. The programs take turns on one broker; medians of records a second are printed.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from streamkit.record import TopicPartition
from streamkit.transport.kafka import KafkaTransport
from tests.bench import programs, report, scenarios
from tests.bench.measure import Bench
from tests.broker.kafka_broker import Broker

MOST = 5_000
"""Records of a poll, as many as the loop by hand takes."""
KEPT = b"n"
"""Values below it are written: the filter of `stateless`, on bytes."""


def loop(bootstrap: str, source: str, output: str) -> None:
    """Read a topic of one partition to its end, and write what the filter keeps."""
    transport = KafkaTransport(bootstrap)
    place = TopicPartition(source, 0)
    consumer, producer = transport.consumer(None), transport.producer()
    end = consumer.end_offsets([place])[place]
    consumer.assign({place: 0})
    offset = 0
    while offset < end:
        for batch in consumer.poll(MOST, 1_000):
            rows = zip(batch.keys, batch.values, batch.timestamps, strict=True)
            producer.send(
                [(output, key, value, time, None, None) for key, value, time in rows if value and value < KEPT]
            )
            offset = batch.offsets[-1] + 1
    producer.flush()
    producer.close()
    consumer.close()
    transport.close()


def main(arguments: list[str] | None = None) -> int:
    """Print the medians of the three programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loop", nargs=3, metavar=("BOOTSTRAP", "INPUT", "OUTPUT"), help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.loop:
        loop(*asked.loop)
        return 0
    scenario = next(each for each in scenarios.ALL if each.name == "stateless")
    rates: dict[str, list[float]] = {each: [] for each in (programs.STREAMKIT, programs.NOTHING, programs.BY_HAND)}
    print(report.machine())
    with Broker(heap="1g", measured=True) as broker:
        bench = Bench(broker.address)
        for number in range(asked.rounds):
            for program, found in rates.items():
                found.append(bench.run(program, scenario, f"floor-{program.replace(' ', '-')}-{number}").rate)
                print(f"  run {number + 1}: {program} {found[-1]:,.0f} records/s", flush=True)
    for program, found in rates.items():
        print(f"{program:<24}{statistics.median(found):>12,.0f} records/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
