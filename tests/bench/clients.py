"""Reading and writing through the Kafka transport: CPU seconds of the thread, with and without the native extension.

    python -m tests.bench.clients [--records 1000000] [--rounds 3]

Both ways take turns on one broker, each in a process of its own; medians count. Values have 30 bytes, keys 10.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from uuid import uuid4

from streamkit.record import TopicPartition
from streamkit.transport.kafka import KafkaTransport
from streamkit.transport.log_interface import NewTopic
from tests.broker.kafka_broker import Broker

SWITCH = "STREAMKIT_NATIVE"
WAYS = {"native": "auto", "python": "off"}
CHUNK = 5_000


def write(transport: KafkaTransport, topic: str, records: int) -> dict[str, float]:
    """Write the records from lists of rows."""
    rows = [
        (topic, b"key-%06d" % (each % 1000), b"value of thirty bytes %08d" % each, each + 1, None, 0)
        for each in range(records)
    ]
    producer = transport.producer()
    warm_up = rows[:1]
    producer.send(warm_up)
    producer.flush()
    began, wall = time.thread_time(), time.monotonic()
    for start in range(1, records, CHUNK):
        producer.send(rows[start : start + CHUNK])
    producer.flush()
    found = {"write": time.thread_time() - began, "write wall": time.monotonic() - wall}
    producer.close()
    return found


def read(transport: KafkaTransport, topic: str, records: int) -> dict[str, float]:
    """Read the records into columns."""
    consumer = transport.consumer(None)
    consumer.assign({TopicPartition(topic, 0): 0})
    count = sum(map(len, consumer.poll(1, 10_000)))
    began, wall = time.thread_time(), time.monotonic()
    while count < records:
        count += sum(map(len, consumer.poll(CHUNK, 1_000)))
    found = {"read": time.thread_time() - began, "read wall": time.monotonic() - wall}
    consumer.close()
    return found


def worker(address: str, topic: str, records: int) -> dict[str, float]:
    """Write to a topic and read it; `all` is the CPU time of the process, librdkafka's threads included."""
    transport = KafkaTransport(address)
    began = time.process_time()
    found = write(transport, topic, records) | read(transport, topic, records)
    found["all"] = time.process_time() - began
    transport.close()
    return found


def run(address: str, way: str, records: int) -> dict[str, float]:
    """Run a worker in a process of its own, on a new topic."""
    topic = f"clients-{uuid4()}"
    KafkaTransport(address).admin().create_topics([NewTopic(topic, 1)])
    command = [sys.executable, "-m", "tests.bench.clients", "--worker", address, topic, "--records", str(records)]
    environment = {**os.environ, SWITCH: WAYS[way]}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", nargs=2, metavar=("ADDRESS", "TOPIC"), help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.worker:
        print(json.dumps(worker(*asked.worker, asked.records)))
        return 0
    results: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with Broker(measured=True) as broker:
        for _ in range(asked.rounds):
            for way, found in results.items():
                found.append(run(broker.address, way, asked.records))
                print(way, {name: round(seconds, 2) for name, seconds in found[-1].items()}, flush=True)
    print(f"medians of {asked.rounds}, seconds for {asked.records:,} records; load {os.getloadavg()[0]:.1f}")
    for name in results["native"][0]:
        medians = {way: statistics.median(each[name] for each in found) for way, found in results.items()}
        print(f"{name:<12}" + "".join(f"{way} {seconds:.2f}  " for way, seconds in medians.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
