"""Measures how fast a changelog is restored without a state directory, beside Kafka Streams on one broker.

    python -m tests.bench.restore [--keys 1000000] [--stores count,tumbling] [--partitions 1,8] [--runs 3]

The changelog is written once, a key of its own for every record in random order; then each program is started in turns as
the same application, with an empty directory and one record to process. Printed are the records restored a second, by
what the programs say of the restore alone, the seconds from the start to the first record out, and the CPU time of the process
from its start to its end, which other work on the machine changes least.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import programs, report, topics
from tests.bench.crash import remove_members, start, wait
from tests.bench.inputs import START_MS, changelog, mark
from tests.bench.scenarios import Scenario
from tests.bench.stores import cpu_seconds
from tests.broker.kafka_broker import Broker

_RESTORED = re.compile(r"restored (\d+) records? of .* in ([0-9.]+) s")


class Restore:
    """A changelog on a broker, and the runs over it."""

    def __init__(self, bootstrap: str, store: str, keys: int, partitions: int):
        self._scenario = Scenario("restore", "", (), keys, 0, topology=store, partitions=partitions)
        application = f"restore-{store}-{keys}-{partitions}"
        self._names = {"bootstrap": bootstrap, "application": application, "input_1": f"{application}-in"}
        self._names |= {"output": f"{application}-out", "progress": f"{application}-progress"}
        self._bootstrap = bootstrap
        topics.fill(bootstrap, self._names["input_1"], "right", 0, partitions)
        topics.create(bootstrap, self._names["output"], self._names["progress"])
        topics.changelog(bootstrap, f"{application}-counts-changelog", changelog(store, keys), partitions)

    def run(self, program: str) -> tuple[float, float, float]:
        """Return the records restored a second, the seconds to the first record out, and those of CPU time."""
        reader = topics.Reader(self._bootstrap)
        progress, count = self._names["progress"], self._scenario.partitions
        before = reader.end(progress)
        for partition in range(count):
            topics.append(self._bootstrap, self._names["input_1"], (mark(1), "", START_MS), partition=partition)
        with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
            folder = Path(scratch)
            began, cpu = time.monotonic(), cpu_seconds()
            process = start(program, self._scenario, self._names, folder)
            try:
                wait(process, lambda: reader.end(progress) >= before + count, folder)
                seconds = time.monotonic() - began
            finally:
                process.terminate()
                process.wait()
            said = _RESTORED.findall((folder / "log").read_text())
        reader.close()
        remove_members(self._bootstrap, self._names["application"])
        restored = sum(int(records) for records, _ in said)
        return restored / max(float(each) for _, each in said), seconds, cpu_seconds() - cpu


def main() -> int:
    """Print the medians by store, number of keys, partitions and program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", default="1000000", help="numbers of keys, with commas")
    parser.add_argument("--stores", default="count", help="count (key-value), tumbling (windows), with commas")
    parser.add_argument("--partitions", default="1", help="numbers of partitions, with commas")
    parser.add_argument("--runs", type=int, default=3, help="runs of each program")
    parser.add_argument("--no-java", action="store_true", help="without Kafka Streams")
    asked = parser.parse_args()
    compared = [*programs.BY_ENGINE, *([] if asked.no_java else [programs.JAVA])]
    print(report.machine())
    lines = [
        "| store | keys | partitions | program | records restored a second | seconds to the first record | CPU s |"
    ]
    lines.append("| --- | ---: | ---: | --- | ---: | ---: | ---: |")
    sizes = [
        (store, int(keys), int(partitions))
        for store in asked.stores.split(",")
        for keys in asked.keys.split(",")
        for partitions in asked.partitions.split(",")
    ]
    with Broker(heap="1g", measured=True) as broker:
        for size in sizes:
            restore = Restore(broker.address, *size)
            found: dict[str, list[tuple[float, float, float]]] = {program: [] for program in compared}
            for number in range(asked.runs):
                for program, runs in found.items():
                    runs.append(restore.run(program))
                    rate, seconds, cpu = runs[-1]
                    print(
                        f"  {size} run {number + 1}: {program} {rate:,.0f}/s, {seconds:.2f} s, {cpu:.2f} CPU s",
                        flush=True,
                    )
            for program, runs in found.items():
                rate, seconds, cpu = (statistics.median(column) for column in zip(*runs, strict=True))
                lines.append(
                    f"| {size[0]} | {size[1]:,} | {size[2]} | {program} | {rate:,.0f} | {seconds:.2f} | {cpu:.2f} |"
                )
    print("\n" + "\n".join(lines) + f"\n\nat the end {report.machine().rpartition(', ')[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
