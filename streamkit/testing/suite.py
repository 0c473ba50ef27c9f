"""Runs the tests of files, rewrites them on request, and counts their coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from streamkit.errors import Problem, StreamkitError, TopologyError, UsageError
from streamkit.plan.model import Plan
from streamkit.testing.case_file import load
from streamkit.testing.case_runner import Failure, Outcome, run_case
from streamkit.testing.cases import Case, CaseFile
from streamkit.testing.find import Plans
from streamkit.testing.update import updated


@dataclass
class FileResult:
    """The result of one file. problems: mistakes in it, so that no test ran."""

    path: Path
    outcomes: list[Outcome] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    rewritten: bool = False

    @property
    def failed(self) -> bool:
        """Whether anything is wrong."""
        return bool(self.problems) or any(outcome.failures for outcome in self.outcomes)


class Session:
    """Runs files. only: the part of a test's name, or of its file's, that is run; update: write the actual results into the file."""

    def __init__(self, plans: Plans, only: str = "", update: bool = False, coverage: bool = False):
        self._plans = plans
        self._only = only.lower()
        self._update = update
        self.reached: dict[Path, tuple[Plan, Counter[str]]] = {}
        """By topology: a plan of it, and how many records reached each node; filled under coverage only."""
        self._coverage = coverage

    def run(self, files: list[Path]) -> Iterator[FileResult]:
        """Yield the result of each file when it has run."""
        for path in files:
            yield self._file(path)

    def _file(self, path: Path) -> FileResult:
        try:
            file = load(path, self._plans)
            result = self._run(file)
            return self._updated(file, result) if self._update else result
        except TopologyError as error:
            return FileResult(path, problems=error.problems)

    def _updated(self, file: CaseFile, result: FileResult) -> FileResult:
        text = updated(file, result.outcomes)
        # Read and run before it is written, so that a valid file is never replaced by an invalid one.
        again = self._run(load(file.path, self._plans, text))
        if text != file.source.text:
            try:
                file.path.write_text(text, encoding="utf-8", newline="")
            except OSError as error:
                raise UsageError(f"{file.path}: {error.strerror}") from error
            again.rewritten = True
        return again

    def _run(self, file: CaseFile) -> FileResult:
        result = FileResult(file.path)
        for case in file.cases:
            if self._only and self._only not in f"{file.path}::{case.name}".lower():
                continue
            result.outcomes.append(self.outcome_of(file, case))
        return result

    def outcome_of(self, file: CaseFile, case: Case) -> Outcome:
        """Run one case of a file. Raises TopologyError for a topology that the case's settings make invalid."""
        try:
            plan = self._plans(file.topology, file.environment, case.settings)
        except TopologyError:
            raise
        except StreamkitError as error:
            outcome = Outcome(case)
            outcome.failures.append(Failure(case.position, str(error)))
            return outcome
        reached = None
        if self._coverage:
            reached = self.reached.setdefault(file.topology.resolve(), (plan, Counter()))[1]
        return run_case(case, plan, reached)
