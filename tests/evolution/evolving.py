"""A running word count, to which `evolve` adds two aggregates: what they hold, and what a count of all input gives.

`python -m tests.evolution.evolving 1000000` prints the pause between the versions with so many keys on a broker.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.broker.kafka_broker import Broker
from tests.broker.support import App, Log, application, kill, until
from tests.cli.support import LIMIT_S, command

OLD = """\
topics:
  lines: {topic: "{a}lines", value: string, partitions: 4}
  counts: {topic: "{a}counts", value: long, partitions: 4}
  ends: {topic: "{a}ends", value: long, partitions: 4}
  lengths: {topic: "{a}lengths", value: long, partitions: 4}
pipelines:
  grouped:
    stream: lines
    steps:
      - group_by: {key: value, name: by-word}
  words:
    from: grouped
    steps:
      - count: words
      - to_stream
    to: counts
"""
ADDED = """\
  lengths:
    from: grouped
    steps:
      - aggregate: {initial: 0, add: aggregate + len(value), value_serde: long, store: lengths}
      - to_stream
    to: lengths
  ends:
    stream: lines
    steps:
      - group_by: {key: "value[-1]", name: by-end}
      - count: ends
      - to_stream
    to: ends
"""
"""One aggregate on the repartition topic of the old version, and one on its own."""
SPARK = ("--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1")
_BATCH = 50_000


@dataclass
class Evolved:
    """Both versions of the application, and the words that were written."""

    old: App
    new: Path
    words: Counter[str] = field(default_factory=Counter)

    def write(self, keys: int) -> None:
        """Write each of so many words once, and every tenth one twice."""
        topic = self.old.topic("lines")
        words = [f"word-{number}" for number in range(keys)]
        words += words[::10]
        self.words.update(words)
        for start in range(0, len(words), _BATCH):
            part = [word.encode() for word in words[start : start + _BATCH]]
            self.old.log.write([(topic, word, word, 1000, None, None) for word in part])

    def expected(self) -> dict[str, dict[str, int]]:
        """The rows of both new stores."""
        ends: Counter[str] = Counter()
        for word, count in self.words.items():
            ends[word[-1]] += count
        return {"ends": ends, "lengths": {word: count * len(word) for word, count in self.words.items()}}

    def rows(self, store: str) -> dict[str, int]:
        """The rows of a store by its changelog."""
        return self._table(f"{self.old.application}-{store}-changelog")

    def output(self, topic: str) -> dict[str, int]:
        """The last values of an output."""
        return self._table(self.old.topic(topic))

    def _table(self, topic: str) -> dict[str, int]:
        raws = self.old.log.read(topic, committed_only=True)
        return {(raw.key or b"").decode(): int.from_bytes(raw.value or b"", "big") for raw in raws}

    def is_read(self) -> bool:
        """Whether the running version has processed all input, and perhaps not yet all records of repartition topics."""
        return self.old.log.is_read(self.old.application, [self.old.topic("lines")])

    def evolve(self, *options: object) -> subprocess.Popen:
        """Begin `evolve`."""
        folder = self.old.state.parent / "checkpoint"
        line = command("evolve", self.old.path, self.new, "--checkpoint", folder, *SPARK, *options)
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def evolving(folder: Path, log: Log, **config: object) -> Evolved:
    """Return both versions; their topics exist."""
    old = application(folder, log, "evolved", OLD, **config)
    for topic in ("lines", "counts", "ends", "lengths"):
        log.create(old.topic(topic), 4)
    new = folder / "new.yaml"
    new.write_text(old.path.read_text() + ADDED)
    return Evolved(old, new)


def lines_until(process: subprocess.Popen, begin: str) -> list[str]:
    """Read the output of a process up to a line that begins so; all of it where none does."""
    found: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        found.append(line.rstrip("\n"))
        if line.startswith(begin):
            break
    return found


def main(keys: int) -> None:
    with tempfile.TemporaryDirectory() as folder, Broker() as broker:
        log = Log(broker.address)
        found = evolving(Path(folder), log)
        found.write(keys)
        old = found.old.start()
        until(found.is_read, "the old version has read everything", 3600)
        began = time.monotonic()
        process = found.evolve("--wait")
        print("\n".join(lines_until(process, "stop")))
        print(f"first pass: {time.monotonic() - began:.1f} s", flush=True)
        found.write(keys // 100)
        until(found.is_read, "the old version has read the rest", 3600)
        old.terminate()
        old.communicate(timeout=LIMIT_S)
        stopped = time.monotonic()
        out, err = process.communicate(timeout=3600)
        print(out, err, f"stop of the old version to the end of evolve: {time.monotonic() - stopped:.1f} s", sep="\n")
        found.write(keys // 100)
        new = subprocess.Popen(command("run", found.new), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            until(found.is_read, "the new version has read the input", 3600)
            print(f"to the last record that the new version read: {time.monotonic() - stopped:.1f} s")
            new.terminate()
            new.communicate(timeout=LIMIT_S)
        finally:
            kill([old, process, new])
        done = subprocess.run(command("run", found.new, "--until-idle"), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        for store, rows in found.expected().items():
            print(f"{store} equal to a count of all input:", found.rows(store) == rows)
        log.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
