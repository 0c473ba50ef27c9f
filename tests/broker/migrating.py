"""A word count with many keys, whose store is renamed: what it counted, and what a count of all input gives.

`python -m tests.broker.migrating 1000000` prints the seconds of a migration of so many rows on a broker, without a crash.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.broker.kafka_broker import Broker
from tests.broker.support import App, Log, application
from tests.cli.support import Done, command

TOPOLOGY = """\
topics:
  lines: {topic: "{a}lines", value: string, partitions: 4}
  counts: {topic: "{a}counts", value: long, partitions: 4}
pipelines:
  words:
    stream: lines
    steps:
      - group_by: {key: value, name: by-word}
      - count: words
      - to_stream
    to: counts
"""
_BATCH = 50_000
_LIMIT_S = 900
"""Of a command over a million records."""


def streamkit(*arguments: object) -> Done:
    """Run a command to its end."""
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


@dataclass
class Renamed:
    """Both versions of the application, and the number of keys."""

    old: App
    new: Path
    keys: int

    @property
    def target(self) -> str:
        return f"{self.old.application}-totals-changelog"

    def write(self) -> None:
        """Write each key once, and every tenth one twice."""
        topic = self.old.topic("lines")
        words = [f"word-{number}".encode() for number in range(self.keys)]
        words += words[::10]
        for start in range(0, len(words), _BATCH):
            self.old.log.write([(topic, word, word, 1000, None, None) for word in words[start : start + _BATCH]])

    def expected(self, times: int) -> Counter[str]:
        """The counts after so many calls of `write`."""
        return Counter({f"word-{number}": times * (1 + (number % 10 == 0)) for number in range(self.keys)})

    def counted(self) -> Counter[str]:
        rows = self.old.log.read(self.old.topic("counts"), committed_only=True)
        return Counter({(raw.key or b"").decode(): int.from_bytes(raw.value or b"", "big") for raw in rows})


def renamed(folder: Path, log: Log, keys: int, **config: object) -> Renamed:
    """Return both versions, of which the old one has counted its input."""
    old = application(folder, log, "renamed", TOPOLOGY, **config)
    for topic in ("lines", "counts"):
        log.create(old.topic(topic), 4)
    new = folder / "new.yaml"
    new.write_text(old.path.read_text().replace("count: words", "count: totals"))
    found = Renamed(old, new, keys)
    found.write()
    done = streamkit("run", old.path, "--until-idle")
    assert done.code == 0, done.err
    return found


def main(keys: int) -> None:
    with tempfile.TemporaryDirectory() as folder, Broker() as broker:
        log = Log(broker.address)
        found = renamed(Path(folder), log, keys, statestore_cache_max_bytes=0)
        for arguments in ((), ("--execute",), ("--execute",)):
            began = time.monotonic()
            done = streamkit("migrate", found.old.path, found.new, *arguments)
            print(f"migrate {' '.join(arguments)}: {time.monotonic() - began:.1f} s, exit code {done.code}")
            print(done.out, done.err, sep="")
        found.write()
        began = time.monotonic()
        done = streamkit("run", found.new, "--until-idle")
        print(f"run of the new version: {time.monotonic() - began:.1f} s, exit code {done.code}")
        print("equal to a count of all input:", found.counted() == found.expected(2))
        log.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
