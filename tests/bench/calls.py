"""Calls of Python: a model for one record at a time and for batches, and look-ups over HTTP with `enrich`.

`python -m tests.bench.calls model [RECORDS]` runs a task over records that are in memory; `lookups [RECORDS]` runs an application
with one thread on the embedded log, beside a service in another process that answers each request after 100 ms.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import streamkit
from streamkit.plan import load
from streamkit.record import Columns, OutputRow, RecordBatch, TopicPartition
from streamkit.runtime.operations.opening import open_log
from streamkit.transport.log_interface import NewTopic
from tests.bench import http_lookup
from tests.calls.support import task_of

MODEL = """
streamkit: 1
application: model
topics: {in: {value: json}, out: {value: double}}
pipelines:
  p:
    stream: in
    steps: [{map_values: {call: "tests.bench.model_calls:CALL, value_serde: double}}]
    to: out
"""
LOOKUPS = """
streamkit: 1
application: lookups
config: {bootstrap.servers: embedded, num.stream.threads: 1, state.dir: STATE}
topics: {in: {key: integer, value: integer, partitions: 1}, out: {key: integer, value: integer, partitions: 1}}
pipelines:
  p:
    stream: in
    steps: [{enrich: {call: "tests.bench.http_lookup:Lookup", with: {port: PORT}, concurrency: 1000, value_serde: integer}}]
    to: out
"""
RUN = 10_000


def model(count: int) -> None:
    """Print records a second with one call a record and with batches, and whether the results are equal."""
    from tests.bench.model_calls import FEATURES  # needs scikit-learn

    draw = random.Random(3)
    values = [json.dumps({name: draw.random() for name in FEATURES}).encode() for _ in range(RUN)]
    results, rates = [], []
    for call, records in (('one"', count // 100), ('many", batch: 2048, as: numpy', count)):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.yaml"
            file.write_text(MODEL.replace("CALL", call))
            task = task_of(file)
            seconds, written = 0.0, []
            for start in range(0, records, RUN):
                keys: list[bytes | None] = [b"k"] * RUN
                offsets = list(range(start, start + RUN))
                task.add(RecordBatch("in", 0, Columns(keys, list(values), [0] * RUN, [None] * RUN, offsets)))
                began = time.perf_counter()
                while task.has_records():
                    task.process(RUN)
                seconds += time.perf_counter() - began
                if start == 0:
                    written = [row[2] for row in task.output]
                del task.output[:]
            results.append(written)
            rates.append(records / seconds)
            print(f"{call.partition(chr(34))[0]}: {records:,} records, {records / seconds:,.0f} a second", flush=True)
    print(f"{rates[1] / rates[0]:.1f} times; results equal: {results[0] == results[1]}")


def lookups(count: int) -> None:
    """Print records a second with `enrich`, and whether all results are there in order."""
    service = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.http_lookup"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert service.stdout is not None
    port = service.stdout.readline().strip()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "lookups.yaml"
        file.write_text(LOOKUPS.replace("PORT", port).replace("STATE", f"{folder}/state"))
        topology = streamkit.load(str(file))
        rows = [
            OutputRow("in", (n % 100).to_bytes(4, "big"), n.to_bytes(4, "big"), 0, None, None) for n in range(count)
        ]
        transport = open_log(load(file))
        admin = transport.admin()
        admin.create_topics([NewTopic(name, 1, {}, -1) for name in ("in", "out")])
        admin.close()
        producer = transport.producer()
        producer.send(rows)
        producer.flush()
        producer.close()
        transport.close()
        began, used = time.perf_counter(), time.process_time()
        with topology.application() as application:
            application.wait_until_idle()
            seconds, used = time.perf_counter() - began, time.process_time() - used
        transport = open_log(load(file))
        consumer = transport.consumer("check", read_committed=False, client_id="check")
        consumer.add({TopicPartition("out", 0): 0})
        found: list[tuple[bytes | None, bytes | None]] = []
        while len(found) < count:
            for batch in consumer.poll(10_000, 1000):
                found += zip(batch.keys, batch.values, strict=True)
        consumer.close()
        transport.close()
    service.terminate()
    expected = [((n % 100).to_bytes(4, "big"), (2 * n).to_bytes(4, "big")) for n in range(count)]
    print(f"in order, each once: {found == expected}")
    first, last = http_lookup.TIMES
    print(f"{count:,} look-ups, {count / (last - first):,.0f} a second between the first call and the last answer")
    print(f"{count / seconds:,.0f} a second with the start and the end of the application")
    print(f"{used / count * 1e6:,.0f} µs of CPU time for each, of all threads of the process")


if __name__ == "__main__":
    {"model": model, "lookups": lookups}[sys.argv[1]](int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
