"""Compares streamkit with Kafka Streams on random topologies.

python -m tests.fuzz.run --n 1000 --seed 1     compare, print each difference as a small case
python -m tests.fuzz.run --n 300 --write DIR   write the cases with Java's answers, compare nothing
python -m tests.fuzz.run --again DIR           compare the cases of a folder
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.fuzz import java_side, streamkit_side
from tests.fuzz.compare import SHOWN, differences
from tests.fuzz.generate import Case, draw, without_format
from tests.fuzz.shrink import shrink
from tests.java.build import ANCHOR, VERSION

BATCH = 50
FAILURES = Path(__file__).with_name("failures")
MODULES = [Path(__file__).with_name(name) for name in ("fuzz_functions.py", "fuzz_scripts.py")]


@dataclass
class Failure:
    """A case on which the two differ, and how."""

    name: str
    folder: Path
    differences: list[str]


def write(case: Case, folder: Path) -> Path:
    """Write a case's topology and input."""
    folder.mkdir(parents=True, exist_ok=True)
    text = case.text()
    (folder / "topology.yaml").write_text(text, encoding="utf-8")
    for module in MODULES:
        if f"{module.stem}:" in text:
            shutil.copy(module, folder)
    lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in case.input)
    (folder / "input.jsonl").write_text(lines, encoding="utf-8")
    return folder


def read(folder: Path) -> Case:
    lines = (folder / "input.jsonl").read_text(encoding="utf-8").splitlines()
    return Case(
        yaml.safe_load((folder / "topology.yaml").read_text(encoding="utf-8")), [json.loads(line) for line in lines]
    )


def compare(folder: Path, counts: Counter) -> list[str]:
    """The differences of a case that Java has answered."""
    java = java_side.answer(folder)
    counts[
        "refused by Java" if java.stage in ("read", "build") else "failed in Java" if java.stage else "accepted"
    ] += 1
    counts["records"] += len(java.records)
    if java.stage == "read":
        return [f"the Java interpreter cannot read it: {java.error}"]
    return differences(java, streamkit_side.answer(folder))


def run(seeds: range, work: Path, counts: Counter, kafka: str = "") -> Iterator[Failure]:
    """Draw, ask both and yield the failures, batch by batch."""
    kafka = kafka or os.environ.get(VERSION, "")
    with java_side.Oracle(kafka) as oracle:
        for start in range(seeds.start, seeds.stop, BATCH):
            batch = work / f"batch-{start}"
            for seed in range(start, min(start + BATCH, seeds.stop)):
                case = draw(seed) if kafka in ("", ANCHOR) else without_format(draw(seed))
                write(case, batch / f"case-{seed:05d}")
            oracle.run(batch)
            for folder in sorted(batch.iterdir()):
                found = compare(folder, counts)
                if found:
                    yield Failure(folder.name, folder, found)
                else:
                    shutil.rmtree(folder)


def minimal(failure: Failure, work: Path, oracle: java_side.Oracle) -> Case:
    """The failing case made small; a candidate must fail in the same way: the same kind of difference comes first."""
    kind = kind_of(failure.differences)
    folder = work / f"shrink-{failure.name}"

    def fails(candidate: Case) -> bool:
        write(candidate, folder)
        oracle.run(folder)
        found = compare(folder, Counter())
        return bool(found) and kind_of(found) == kind

    return shrink(read(failure.folder), fails)


def kind_of(found: list[str]) -> str:
    """What sort of difference it is: its first words, and for a refusal its last line."""
    first = found[0].splitlines()
    return first[0].split(" ")[0] if first[0].startswith(("topic", "store", "describe")) else first[0] + first[-1][:40]


def report(failure: Failure, work: Path, shrinking: bool) -> None:
    """Save a failing case, made small, with both answers, and print it."""
    target = FAILURES / failure.name
    shutil.rmtree(target, ignore_errors=True)
    with java_side.Oracle() as oracle:
        case = minimal(failure, work, oracle) if shrinking else read(failure.folder)
        write(case, target)
        oracle.run(target)
    found = compare(target, Counter()) or failure.differences
    (target / "differences.txt").write_text("\n".join(found) + "\n", encoding="utf-8")
    print(f"\n===== {failure.name}: {target}\n{case.text()}")
    print((target / "input.jsonl").read_text(encoding="utf-8"))
    print("\n".join(found[:SHOWN]))
    if len(found) > SHOWN:
        print(f"… and {len(found) - SHOWN} more")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=200, help="how many topologies")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first; the others follow")
    parser.add_argument("--write", type=Path, metavar="DIR", help="only write the cases there, with Java's answers")
    parser.add_argument(
        "--again", type=Path, metavar="DIR", help="compare the cases of a folder that Java has answered"
    )
    parser.add_argument("--max-failures", type=int, default=5, help="stop after so many")
    parser.add_argument("--no-shrink", action="store_true", help="show failing cases as they were drawn")
    options = parser.parse_args(arguments)
    seeds = range(options.seed, options.seed + options.n)
    if options.write:
        write_only(seeds, options.write)
        return 0
    if options.again:
        return again(options.again)
    counts: Counter = Counter()
    failures = 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        for failure in run(seeds, Path(scratch), counts):
            failures += 1
            report(failure, Path(scratch), not options.no_shrink)
            if failures >= options.max_failures:
                break
    done = ", ".join(f"{name}: {counts[name]}" for name in ("accepted", "refused by Java", "failed in Java", "records"))
    print(f"{done}; {failures} differ; {time.monotonic() - started:.0f} s")
    return 1 if failures else 0


def write_only(seeds: range, folder: Path) -> None:
    for seed in seeds:
        write(draw(seed), folder / f"case-{seed:05d}")
    with java_side.Oracle() as oracle:
        oracle.run(folder)


def again(folder: Path) -> int:
    """Compare what lies there; one line a case that differs."""
    counts: Counter = Counter()
    kinds: Counter = Counter()
    cases = (
        [folder] if (folder / "topology.yaml").exists() else sorted(each for each in folder.iterdir() if each.is_dir())
    )
    for case in cases:
        found = compare(case, counts)
        if found:
            kinds[kind_of(found)] += 1
            print(f"{case.name}: {len(found)} differences; {found[0][:600]}")
    print(f"{len(cases)} cases, {kinds.total()} differ: {dict(kinds)}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
