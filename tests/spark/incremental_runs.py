"""Runs of an incremental job over files in a folder, and what they have written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamkit.plan import load
from streamkit.runtime.spark.submission.incremental import submit_next
from streamkit.runtime.spark.submission.job_options import JSON_LINES, PARQUET, REST, JobOptions, Place, Range
from tests.spark.support import write_lines


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
        inputs = {topic: Place(str(self.folder / topic), JSON_LINES) for topic in self.topics}
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

    def last_run(self) -> int:
        """The number of the last run that counts, 0 before the first."""
        names = [path.stem for path in (self.checkpoint / "manifests").glob("[0-9]*.json")]
        return int(max(names, default="0"))


__all__ = ["PARQUET", "Range", "Runs"]
