"""Records what Kafka Streams says of the pairs: `python -m tests.changes.record` writes java.json (java and Maven)."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.changes.pairs import PAIRS
from tests.fuzz.java_side import Oracle

FILE = Path(__file__).with_name("java.json")


def described() -> dict[str, dict[str, str]]:
    """Return `Topology.describe()` of both versions of each pair that can be written in Java."""
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as scratch, Oracle() as oracle:
        for pair in PAIRS:
            for version, text in (("old", pair.old), ("new", pair.new)):
                folder = Path(scratch) / f"{pair.name}-{version}"
                folder.mkdir()
                (folder / "topology.yaml").write_text(text, encoding="utf-8")
                if pair.java:
                    oracle.run(folder)
                    assert not (folder / "error.txt").exists(), (pair.name, (folder / "error.txt").read_text())
                    text = (folder / "describe.txt").read_text(encoding="utf-8")
                    found.setdefault(pair.name, {})[version] = text
    return found


def main() -> None:
    FILE.write_text(json.dumps(described(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
