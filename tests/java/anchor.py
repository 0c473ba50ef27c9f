"""Reports what another version of Kafka Streams changes, beside the version that streamkit follows.

python -m tests.java.anchor 4.3.1              settings, metrics, internal topics, cases and random topologies
python -m tests.java.anchor 4.3.1 --n 1000     with so many random topologies

The exit code is 1 where that version gives other results.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from streamkit.config import UnknownSettingError, check
from streamkit.errors import ConfigError
from tests.fuzz import java_side
from tests.fuzz.compare import Answer, differences
from tests.fuzz.run import run
from tests.java import build

CONFORMANCE = Path(__file__).parent.parent / "conformance"
PREFIXES = {"streams": "", "consumer": "consumer.", "producer": "producer.", "admin": "admin.", "topic": "topic."}
KINDS = {
    "default": "Settings and their defaults",
    "importance": "Importance of settings",
    "metric": "Names of metrics",
    "topic": "Configuration of internal topics",
}

Facts = Mapping[str, Mapping[str, str]]
"""By kind, the values by name."""


def facts_of(kafka: str) -> Facts:
    """Return what a version of Kafka Streams has (Facts.java)."""
    options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    command = build.command("java/facts", "Facts", *options, kafka=kafka)
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for line in text.splitlines():
        kind, name, value = line.split("\t")
        found[kind][name] = value
    return found


def is_known(name: str) -> bool:
    """Return whether a setting works, or is refused with what stands in its place; `name`: with who has it."""
    who, _, setting = name.partition(" ")
    try:
        check(PREFIXES[who] + setting, "1")
    except UnknownSettingError as error:
        return "There is no setting" not in str(error)
    except ConfigError:
        return True  # known, and 1 is no value of it
    return True


def fact_lines(now: Facts, other: Facts) -> Iterator[str]:
    """Yield what the other version has more, less and otherwise."""
    for kind, title in KINDS.items():
        yield f"\n## {title}: {len(other[kind])}\n"
        yield from list(_changes(kind, now[kind], other[kind])) or ["The same."]


def _changes(kind: str, ours: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[str]:
    if kind != "importance":
        for name in sorted(theirs.keys() - ours.keys()):
            known = "" if kind != "default" or is_known(name) else " (streamkit does not know it)"
            yield f"- new: `{name}`: `{theirs[name]}`{known}"
        yield from (f"- gone: `{name}`" for name in sorted(ours.keys() - theirs.keys()))
    for name in sorted(ours.keys() & theirs.keys()):
        if ours[name] != theirs[name]:
            yield f"- `{name}`: `{theirs[name]}`, not `{ours[name]}`"


def case_differences(kafka: str, work: Path, counts: Counter) -> dict[str, list[str]]:
    """Return how the answers of two versions to the conformance cases differ, by the names of cases.

    Some cases have what the Java interpreter reads in another way than streamkit, so the two versions are compared.
    """
    now, other = (_answers(version, work / version) for version in (build.ANCHOR, kafka))
    counts["cases"] = len(now)
    counts["refused"] = sum(answer.stage is not None for answer in now.values())
    found = {name: differences(answer, other[name]) for name, answer in now.items()}
    return {name: differing for name, differing in found.items() if differing}


def _answers(kafka: str, folder: Path) -> dict[str, Answer]:
    """Return a version's answers by the names of cases.

    The interpreter runs them in parallel. One takes half a minute: Kafka Streams looks for windows to emit in each
    minute since 1970.
    """
    for case in CONFORMANCE.glob("*/topology.yaml"):
        ignored = shutil.ignore_patterns("*.txt", "expected*", "stores*")
        shutil.copytree(case.parent, folder / case.parent.name, ignore=ignored)
    with java_side.Oracle(kafka) as oracle:
        oracle.run(folder)
    return {case.name: java_side.answer(case) for case in sorted(folder.iterdir())}


def difference_lines(title: str, found: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield a section about cases that differ, with the differences of each."""
    yield f"\n## {title}\n"
    yield f"{len(found)} different."
    for name, differing in found.items():
        yield f"\n### {name}\n\n```text\n" + "\n".join(differing) + "\n```"


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="a version of Kafka on Maven Central, such as 4.3.1")
    parser.add_argument("--n", type=int, default=500, help="how many random topologies")
    parser.add_argument("--seed", type=int, default=50_000)
    given = parser.parse_args()
    print(f"# Kafka Streams {given.version} beside {build.ANCHOR}, which streamkit follows", flush=True)
    for line in fact_lines(facts_of(build.ANCHOR), facts_of(given.version)):
        print(line, flush=True)
    counts: Counter = Counter()
    with tempfile.TemporaryDirectory(prefix="anchor-") as folder:
        cases = case_differences(given.version, Path(folder), counts)
        read = counts["cases"] - counts["refused"]
        title = f"Conformance cases, {given.version} against {build.ANCHOR}: {read} that the Java interpreter runs"
        print(*difference_lines(title, cases), sep="\n", flush=True)
        seeds = range(given.seed, given.seed + given.n)
        fuzz = {each.name: each.differences for each in run(seeds, Path(folder), counts, given.version)}
        title = f"Random topologies, streamkit against {given.version}: {given.n} from seed {given.seed}"
        print(*difference_lines(title, fuzz), sep="\n")
    sys.exit(1 if cases or fuzz else 0)


if __name__ == "__main__":
    main()
