"""Runs of an incremental job over files in a folder, and what they have written."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import StreamkitError
from streamkit.plan import load
from streamkit.runtime.spark.job_options import JSON_LINES, PARQUET, REST, JobOptions, Place, Range
from streamkit.runtime.spark.submission.incremental import submit_next
from tests.spark.support import write_lines

TOPOLOGY = """\
streamkit: 1
application: incremental
topics:
  lines: {value: string, partitions: 2}
  counts: {value: long, partitions: 2}
  recent: {key: {windowed: string, size: 10s}, value: long, partitions: 2}
pipelines:
  words:
    stream: lines
    steps:
      - flat_map_values: {values: value.split(), value_serde: string}
      - group_by: value
  counts:
    from: words
    steps:
      - count: counts
      - to_stream
    to: counts
  recent:
    from: words
    steps:
      - window: {tumbling: 10s, grace: 0s}
      - count
      - suppress: window_closes
      - to_stream
    to: recent
"""


@dataclass
class Runs:
    """A job with its folder. lines: what its runs have reported."""

    spark: Any
    path: Path
    folder: Path
    topics: tuple[str, ...]
    format: str = JSON_LINES
    lines: list[str] = field(default_factory=list)
    _files: int = 0

    def __post_init__(self) -> None:
        for topic in self.topics:
            (self.folder / topic).mkdir(parents=True)

    @property
    def out(self) -> Path:
        """The folder of the outputs."""
        return self.folder / "out"

    @property
    def checkpoint(self) -> Path:
        """The folder of the checkpoint."""
        return self.folder / "checkpoint"

    def add(self, records: Iterable[dict]) -> None:
        """Write records to new files, one for each topic."""
        found = list(records)
        self._files += 1
        for topic in self.topics:
            mine = [record for record in found if record["topic"] == topic]
            if mine:
                write_lines(self.folder / topic / f"{self._files:03}.jsonl", mine)

    def options(self, **others: Any) -> JobOptions:
        """The options of a run."""
        inputs = {topic: (Place(str(self.folder / topic), JSON_LINES),) for topic in self.topics}
        outputs = {REST: Place(str(self.out), self.format)}
        return JobOptions(**{"inputs": inputs, "outputs": outputs, "emit": "updates", **others})

    def run(self, **others: Any) -> None:
        """Run what is new."""
        options = self.options(checkpoint=str(self.checkpoint), **others)
        submit_next(load(self.path), options, self.spark, self.lines.append)

    def written(self) -> list[dict]:
        """The records of all runs, in the order of runs."""
        parts = [part for run in sorted(self.out.glob("run=*")) for part in sorted(run.glob("part-*"))]
        return [json.loads(line) for part in parts for line in part.read_text(encoding="utf-8").splitlines()]

    def content(self) -> dict[str, bytes]:
        """All that a reader can see, the lock left out: to show that nothing was written."""
        found = [*self.checkpoint.rglob("*"), *self.out.rglob("*")]
        return {str(path): path.read_bytes() for path in found if path.is_file() and path.name != "_lock"}

    def manifest(self) -> dict[str, Any]:
        """The last manifest."""
        text = (self.checkpoint / "manifests" / f"{self.last_run():06}.json").read_text(encoding="utf-8")
        found: dict[str, Any] = json.loads(text)
        return found

    def last_run(self) -> int:
        """The number of the last run that counts, 0 before the first."""
        names = [path.stem for path in (self.checkpoint / "manifests").glob("[0-9]*.json")]
        return int(max(names, default="0"))


def lines(count: int, start: int = 0) -> list[dict]:
    """Lines of words at rising times, from the line `start` on."""
    found = []
    for at in range(start, start + count):
        draw = random.Random(at)
        words = " ".join(f"w{draw.randrange(30)}" for _ in range(3))
        found.append({"topic": "lines", "key": f"k{draw.randrange(9)}", "value": words, "timestamp": at * 700})
    return found


def fails(
    run: Callable[..., None], *words: object, kind: type[StreamkitError] = StreamkitError, **options: Any
) -> None:
    """Check that a run ends with one line that has these words."""
    with pytest.raises(kind) as caught:
        run(**options)
    assert "\n" not in str(caught.value)
    assert all(str(word) in str(caught.value) for word in words), caught.value


__all__ = ["PARQUET", "TOPOLOGY", "Range", "Runs", "fails", "lines"]
