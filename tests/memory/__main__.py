"""Runs windows, joins, suppress and sessions with exactly-once on a real broker at a steady rate, and looks whether memory grows.

    python -m tests.memory [--minutes 60] [--rate 1000] [--engine leveldb] [--http] [--plain]

Once a minute it prints resident and anonymous memory, Python's memory blocks, objects, open files, the size of the state
directory, and what came in and out. At the end it gives the growth a minute after the warm-up with its noise; the exit code is 1
where memory, objects, files or state grow.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.broker.kafka_broker import Broker
from tests.broker.support import Log, until
from tests.memory import sampling
from tests.memory.feeding import Feeder

TOPOLOGY = Path(__file__).with_name("topology.yaml")
APPLICATION = "memory"
INPUTS = ("clicks", "visits", "orders", "payments", "users")
OUTPUTS = ("per-page", "closed", "hopping", "sessions", "paid", "named")
WARM_UP = 30
"""Minutes in which caches fill up, and the files of stores come to their usual size: LevelDB compacts a level that is full."""
TOLERANCES = {
    "rss_kb": 100.0,
    "anonymous_kb": 100.0,
    "blocks": 1000.0,
    "objects": 250.0,
    "files": 0.05,
    "state_kb": 100.0,
}
"""How much of each may be added a minute."""
MIDDLE_S = 30
COLUMNS = {
    "minute": "min", "rss_kb": "RSS MB", "anonymous_kb": "anon MB", "used_kb": "malloc MB", "free_kb": "free MB",
    "engines_kb": "engines MB",
    "blocks": "blocks k", "objects": "objects k", "lists": "lists k", "files": "files", "threads": "threads",
    "state_kb": "state MB", "records_in": "in/s", "records_out": "out/s", "lag": "lag", "cpu": "cpu %",
}  # fmt: skip


@dataclass
class Sample:
    """One minute; sizes in kB."""

    minute: int
    rss_kb: int
    anonymous_kb: int
    files: int
    state_kb: int
    records_in: float
    records_out: float
    lag: int
    cpu: float
    used_kb: int = 0
    free_kb: int = 0
    engines_kb: int = 0
    blocks: int = 0
    objects: int = 0
    lists: int = 0
    threads: int = 0
    types: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)

    def line(self) -> str:
        """The row of the table."""
        cells = []
        for name, title in COLUMNS.items():
            value = getattr(self, name)
            if name.endswith("_kb"):
                text = f"{value / 1024:.1f}"
            elif title.endswith(" k"):
                text = f"{value / 1000:.1f}"
            else:
                text = f"{value:.0f}"
            cells.append(text.rjust(len(title)))
        return " | ".join(cells)


class Application:
    """The process, its topics and its figures."""

    def __init__(self, folder: Path, log: Log, options: argparse.Namespace):
        self.inside = folder / "inside.jsonl"
        self.inside.touch()
        self._log = log
        self._state = folder / "state"
        self._said = (folder / "application.log").open("wb")
        watch = [] if options.plain else ["-m", "tests.memory.inside", str(self.inside), *options.watch]
        line = [sys.executable, *(watch or ["-m", "streamkit_cli"]), "run", str(TOPOLOGY), "--log-level", "info"]
        line += [f"--set=state.engine={options.engine}", *(f"--set={each}" for each in options.set)]
        line += ["--http", "127.0.0.1:0"] if options.http else []
        own = {"APPLICATION": APPLICATION, "BOOTSTRAP": log.address, "STATE": str(self._state)}
        self.process = subprocess.Popen(
            line, env={**os.environ, **own}, stdout=self._said, stderr=self._said, stdin=subprocess.DEVNULL
        )
        self._watched = bool(watch)

    def ended_within(self, seconds: float) -> int | None:
        """Wait for the end of the process, and return its exit code; None where it still runs after these seconds."""
        try:
            return self.process.wait(max(seconds, 0))
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> int:
        """End in order; return the exit code."""
        self.process.terminate()
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()
            self._said.close()

    def ask(self) -> dict[str, Any]:
        """Have the process write what it holds, and return that."""
        if not self._watched:
            return {}
        before = self.inside.stat().st_size
        self.process.send_signal(signal.SIGUSR1)
        until(lambda: self.inside.stat().st_size > before and self.inside.read_bytes().endswith(b"\n"), "an answer")
        return json.loads(self.inside.read_text().splitlines()[-1])

    def written(self) -> int:
        """How many records the outputs have, markers of transactions counted too."""
        return sum(sum(self._log.ends(f"{APPLICATION}.{name}")) for name in OUTPUTS)

    def lag(self) -> int:
        """How many records of the inputs are not committed."""
        topics = [f"{APPLICATION}.{name}" for name in INPUTS]
        read = [self._log.read_so_far(APPLICATION, topic) for topic in topics]
        return sum(sum(self._log.ends(topic)) for topic in topics) - sum(read)

    def sample(self, minute: int, records_in: float, records_out: float, cpu: float) -> Sample:
        """Look at everything."""
        pid = self.process.pid
        found = Sample(
            minute=minute,
            rss_kb=sampling.resident_kb(pid),
            anonymous_kb=sampling.anonymous_kb(pid),
            files=sampling.open_files(pid),
            state_kb=sampling.size_kb(self._state),
            records_in=records_in,
            records_out=records_out,
            lag=self.lag(),
            cpu=cpu,
        )
        inside = self.ask()
        if inside:
            found.blocks, found.objects, found.threads = inside["blocks"], inside["objects"], inside["threads"]
            found.types, found.held = inside["types"], inside["held"]
            found.lists = found.types.get("list", 0)
            found.engines_kb = inside["engines"]
            found.used_kb, found.free_kb = inside["malloc"].get("used", 0), inside["malloc"].get("free", 0)
        return found


def measure(folder: Path, broker: Broker, options: argparse.Namespace) -> list[Sample]:
    """Return a sample of each minute."""
    log = Log(broker.address)
    samples: list[Sample] = []
    app = Application(folder, log, options)
    feeder = Feeder(broker.address, APPLICATION, options.rate)
    try:
        wanted = {f"{APPLICATION}.{name}" for name in (*INPUTS, *OUTPUTS)}
        until(lambda: wanted <= {f"{APPLICATION}.{name}" for name in log.topics(f"{APPLICATION}.")}, "the topics")
        feeder.start()
        print(" | ".join(COLUMNS.values()), flush=True)
        # In the middle of minutes: at their turns segments of windows are dropped.
        began = time.time() // 60 * 60 + MIDDLE_S
        before = (time.time(), 0, app.written(), sampling.cpu_seconds(app.process.pid))
        for minute in range(1, options.minutes + 1):
            code = app.ended_within(began + 60 * minute - time.time())
            if code is not None or feeder.error is not None:
                raise RuntimeError(f"the application or its input ended: {code}, {feeder.error}")
            now = (time.time(), feeder.written, app.written(), sampling.cpu_seconds(app.process.pid))
            seconds, *each = [after - then for after, then in zip(now, before, strict=True)]
            each = [change / seconds for change in each]
            before = now
            samples.append(app.sample(minute, each[0], each[1], 100 * each[2]))
            print(samples[-1].line(), flush=True)
            with (folder / "samples.jsonl").open("a") as out:
                out.write(json.dumps(asdict(samples[-1])) + "\n")
        feeder.end()
    finally:
        print(f"exit code {app.end()}", flush=True)
        log.close()
    return samples


def verdict(samples: list[Sample], warm_up: int) -> tuple[bool, str]:
    """Return whether everything is flat after the warm-up, and the growth of each figure in words."""
    later = samples[warm_up:]
    flat, lines = True, [f"growth a minute after {warm_up} minutes:"]
    for name, tolerance in TOLERANCES.items():
        values = [getattr(each, name) for each in later]
        if not any(values):
            continue
        growth, error = sampling.slope(values)
        good = sampling.is_flat(values, tolerance)
        flat = flat and good
        lines.append(
            f"  {name:12} {growth:+9.1f} ± {error:.1f}, {min(values):,} to {max(values):,}: "
            + ("flat" if good else f"GROWS by more than {tolerance:g}")
        )
    return flat, "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Return 0 when nothing grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument(
        "--warm-up", type=int, default=None, help=f"minutes that the verdict leaves out; {WARM_UP}, or half"
    )
    parser.add_argument("--rate", type=int, default=1000, help="records a second")
    parser.add_argument("--engine", choices=("leveldb", "rocksdb"), default="leveldb")
    parser.add_argument("--http", action="store_true", help="with the HTTP server")
    parser.add_argument("--plain", action="store_true", help="without looking into the process")
    parser.add_argument("--watch", action="append", default=[], choices=("--collect", "--traced"))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the application")
    parser.add_argument("--folder", type=Path, default=None, help="keep everything there")
    options = parser.parse_args(arguments)
    # As an exception, so that broker and application are ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="streamkit-memory-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with Broker(folder / "broker", measured=True) as broker:
            samples = measure(folder, broker, options)
    warm_up = min(WARM_UP, len(samples) // 2) if options.warm_up is None else options.warm_up
    flat, text = verdict(samples, warm_up)
    print(text)
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
