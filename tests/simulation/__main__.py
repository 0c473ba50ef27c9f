"""Runs histories by their seeds: python -m tests.simulation [--seeds N] [--first SEED] [--jobs N] [--minutes M] [--show SEED]."""

from __future__ import annotations

import argparse
import os
import pickle
import selectors
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

from tests.simulation.embedded import EmbeddedHistory
from tests.simulation.history import CONDITIONS, MUTATION, History, Verdict, prepare, run_seed
from tests.simulation.mutations import MUTATIONS, of_embedded_log

SHOWN = 3
"""How often a printed history shows one event."""


def _fork(seed: int, kind: type[History], left_out: Collection[int | str]) -> tuple[int, int, Path]:
    """Run a seed in a process of its own; return its id, a pipe with the verdict, and its folder."""
    folder = Path(mkdtemp(prefix=f"simulation-{seed}-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    reading, writing = os.pipe()
    number = os.fork()
    if number:
        os.close(writing)
        return number, reading, folder
    try:
        data = pickle.dumps(run_seed(seed, folder, kind, left_out))
        with open(writing, "wb") as pipe:
            pipe.write(data)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        # Threads that were killed must not run their `finally` blocks.
        os._exit(0)


def verdicts(
    seeds: Iterator[int], jobs: int, kind: type[History] = History, left_out: Collection[int | str] = ()
) -> Iterator[Verdict]:
    """Run seeds in so many processes; return their verdicts as they come."""
    running: dict[int, tuple[int, Path, int, bytearray]] = {}
    with selectors.DefaultSelector() as selector:
        while True:
            while len(running) < jobs and (seed := next(seeds, None)) is not None:
                number, reading, folder = _fork(seed, kind, left_out)
                running[reading] = number, folder, seed, bytearray()
                selector.register(reading, selectors.EVENT_READ)
            if not running:
                return
            for key, _ in selector.select():
                chunk = os.read(key.fd, 1 << 20)
                number, folder, seed, data = running[key.fd]
                data += chunk
                if chunk:
                    continue
                selector.unregister(key.fd)
                os.close(key.fd)
                del running[key.fd]
                os.waitpid(number, 0)
                shutil.rmtree(folder, ignore_errors=True)
                yield pickle.loads(data) if data else Verdict(seed, ["the simulation itself failed"])


def _shrunk(found: Verdict, kind: type[History]) -> Verdict:
    """Leave out faults and conditions as long as something is still wrong; return the history that is left."""
    left_out: list[int | str] = []
    parts: list[int | str] = [*CONDITIONS, *reversed(range(found.faults.total()))]
    for each in parts:
        (smaller,) = verdicts(iter([found.seed]), 1, kind, [*left_out, each])
        if smaller.wrong:
            left_out.append(each)
            found = smaller
    return found


def folded(lines: Iterable[str]) -> Iterator[str]:
    """Return the lines of a history without what is repeated: a thread that makes no progress logs the same for ever."""
    seen, left_out = Counter[str](), 0
    for line in [*lines, ""]:
        event = line.split(maxsplit=1)[-1] if line else ""  # without the time
        seen[event] += 1
        if seen[event] > SHOWN:
            left_out += 1
            continue
        if left_out:
            yield f"{'':9} ({left_out:,} events that are shown {SHOWN} times above)"
            left_out = 0
        if line:
            yield line


def _mutate(options: argparse.Namespace) -> int:
    """Say for each mistake in how many seeds it is found; return 1 if one is not found."""
    missed = 0
    for name in MUTATIONS:
        arguments = ["--seeds", str(options.seeds), "--first", str(options.first), "--jobs", str(options.jobs)]
        if of_embedded_log(name):
            arguments.append("--embedded")
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation", *arguments],
            env={**os.environ, MUTATION: name},
            capture_output=True,
            text=True,
            check=False,
        )
        lines = done.stdout.splitlines()
        found = (
            f"{len(lines) - 1} of {options.seeds}, {lines[0]}" if len(lines) > 1 else f"NOT FOUND {done.stderr[-300:]}"
        )
        missed += done.returncode != 1
        print(f"{name}: {found}", flush=True)
    return bool(missed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, help="stop after so many minutes")
    parser.add_argument(
        "--show",
        type=int,
        metavar="SEED",
        help="print the history of one seed: if it fails, with as few faults as still do",
    )
    parser.add_argument(
        "--mutations", action="store_true", help="put each known mistake in, and count the seeds that find it"
    )
    parser.add_argument("--stop", action="store_true", help="stop after the first seed that finds something")
    parser.add_argument("--embedded", action="store_true", help="run on the embedded log, in place of a broker")
    options = parser.parse_args()
    if options.mutations:
        return _mutate(options)
    prepare()
    kind = EmbeddedHistory if options.embedded else History
    if options.show is not None:
        (found,) = verdicts(iter([options.show]), 1, kind)
        if found.wrong:
            found = _shrunk(found, kind)
        print(*folded(found.lines), *found.wrong, sep="\n")
        return bool(found.wrong)
    began = time.monotonic()
    deadline = began + options.minutes * 60 if options.minutes else float("inf")
    seeds = (seed for seed in range(options.first, options.first + options.seeds) if time.monotonic() < deadline)
    failed, faults, count, virtual, records = [], Counter[str](), 0, 0.0, 0
    for verdict in verdicts(seeds, options.jobs, kind):
        if failed and options.stop:
            break
        count, virtual, records = count + 1, virtual + verdict.seconds, records + verdict.records
        faults += verdict.faults
        if verdict.wrong:
            failed.append(verdict.seed)
            print(f"seed {verdict.seed}: {len(verdict.wrong)} wrong, such as {verdict.wrong[0]}", flush=True)
    minutes = (time.monotonic() - began) / 60
    print(
        f"{count} histories of {virtual / 3600:.1f} h in {minutes:.1f} min, {records} records, "
        f"{sum(faults.values())} faults ({', '.join(f'{number} {name}' for name, number in sorted(faults.items()))}): "
        f"{len(failed)} failed{': ' + ' '.join(map(str, sorted(failed))) if failed else ''}"
    )
    return bool(failed)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    with suppress(KeyboardInterrupt):
        sys.exit(main())
