"""One version of a file, read as far as possible: its problems, its model and its plan, and the types at each step.

No Python code of the user is imported: modules are only parsed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit import plan as plans
from streamkit.config import Config
from streamkit.editor.names import Names
from streamkit.editor.texts import Text, Texts
from streamkit.errors import Position, Problem, StreamkitError, TopologyError
from streamkit.lint import EVERY_RULE, MISTAKES, check
from streamkit.operators.core.operator import StoreDefaults
from streamkit.plan.assemble import Assembler, BuiltStep
from streamkit.plan.model import Plan
from streamkit.serdes.plain import Document
from streamkit.spec.import_check import source_problems
from streamkit.spec.topology_file import HEAD, Partial, load_partly
from streamkit.spec.topology_model import TopologyModel
from streamkit.spec.yaml_nodes import Node, Source, compose

if TYPE_CHECKING:
    from streamkit.testing.cases import CaseFile

TOPOLOGY, TEST, JOB, PART, OTHER = "topology", "test", "job", "part", "other"
"""The kinds of files; a part is a file that topologies include."""
TEST_SUFFIXES = (".test.yaml", ".test.yml")
_REPAIRS = 6
"""Lines that are left out of a file until it is YAML."""
_SECTIONS = re.compile(r"^(config|topics|functions|stores|macros|include)\s*:", re.MULTILINE)
_JOB = re.compile(r"^[\"']?topology[\"']?\s*:", re.MULTILINE)

Cancelled = Callable[[], bool]
"""Returns whether a newer version of the file makes the work useless."""


@dataclass(frozen=True)
class Mark:
    """A problem with its severity: `error`, `warning`; code: `invalid`, or the rule of the linter."""

    problem: Problem
    severity: str = "error"
    code: str = "invalid"


@dataclass
class Analysis:
    """What is known of one version of a file.

    root: of its YAML, possibly without the lines in `left_out` (from 0); files: the texts of all files it consists of.
    """

    text: Text
    kind: str
    root: Node | None = None
    left_out: tuple[int, ...] = ()
    model: TopologyModel | None = None
    plan: Plan | None = None
    built: list[BuiltStep] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    cases: CaseFile | None = None
    read: Partial | None = None
    """A topology as far as it could be read."""

    @cached_property
    def index(self) -> Names:
        """The names of the file and of those that belong to it."""
        if self.cases is not None:
            return Names(self.cases.names)
        if self.read is None:
            return Names(())
        topics = self.model.topics.values() if self.model is not None else ()
        # Another name on the log stays as it is when that of the entry changes.
        routed = {topic.name for topic in topics if topic.topic == topic.name}
        return Names(self.read.names, self.read.expressions, self.read.routes, routed)

    @property
    def files(self) -> list[str]:
        """The file and those that it includes."""
        return [self.text.file, *(self.model.included if self.model is not None else ())]


def kind_of(file: str, text: str) -> str:
    """Return the kind of a file, by its name and its keys; a half-typed topology is one once it has `streamkit:`.

    >>> kind_of("a.yaml", "streamkit: 1"), kind_of("a.test.yaml", ""), kind_of("a.yaml", "topics:"), kind_of("a.yaml", "x: 1")
    ('topology', 'test', 'part', 'other')
    """
    if file.endswith(TEST_SUFFIXES):
        return TEST
    if HEAD.search(text.encode("utf-8", "surrogatepass")):
        return TOPOLOGY
    if _JOB.search(text):
        return JOB
    return PART if _SECTIONS.search(text) else OTHER


def analyse(
    text: Text,
    texts: Texts,
    environment: Mapping[str, str],
    rules: str = "all",
    cancelled: Cancelled = lambda: False,
) -> Analysis | None:
    """Return the analysis of a topology, a test or a job file; None if it was cancelled.

    rules: `all` or `mistakes`, of the linter. Raises nothing for any text.
    """
    analysis = Analysis(text, kind_of(text.file, text.text))
    try:
        if analysis.kind == TOPOLOGY:
            _topology(analysis, texts, environment, rules, cancelled)
        elif analysis.kind == TEST:
            _tests(analysis, texts, environment)
        elif analysis.kind == JOB:
            _job(analysis, texts, environment)
    except TopologyError as error:
        analysis.marks += map(Mark, error.problems)
    except StreamkitError as error:
        analysis.marks.append(Mark(Problem(_place_of(analysis, str(error)), str(error))))
    except (RecursionError, MemoryError):
        analysis.marks.append(Mark(Problem(Position(text.file, 1, 1), "the file is nested too deeply")))
    return None if cancelled() else analysis


def _place_of(analysis: Analysis, message: str) -> Position:
    """Return the place of an error without one: the setting that it names, else the beginning of the file."""
    entries = analysis.model.config if analysis.model is not None else {}
    named = [entry.position for name, entry in entries.items() if message.startswith(name) and entry.position]
    return named[0] if named else Position(analysis.text.file, 1, 1)


# -- Topologies ----------------------------------------------------------------------------------------------------


def _topology(
    analysis: Analysis, texts: Texts, environment: Mapping[str, str], rules: str, cancelled: Cancelled
) -> None:
    partial = _read(analysis, texts, environment)
    if partial is None or cancelled():
        return
    analysis.root, analysis.model, analysis.read = partial.root, partial.model, partial
    model = partial.model
    if model is None:
        return
    if partial.problems or analysis.left_out:
        _assemble(analysis, model)
        return
    analysis.marks += map(Mark, source_problems(model))
    if cancelled():
        return
    try:
        analysis.plan = plans.build(model, env=environment, observe=analysis.built.append)
    except TopologyError:
        _assemble(analysis, model)
        raise
    if cancelled() or analysis.marks:
        return
    chosen = EVERY_RULE if rules == "all" else MISTAKES
    analysis.marks += [
        Mark(
            Problem(finding.position, finding.message), "error" if finding.code in MISTAKES else "warning", finding.code
        )
        for finding in check(model, analysis.plan, chosen)
    ]


def _read(analysis: Analysis, texts: Texts, environment: Mapping[str, str]) -> Partial | None:
    """Read a file and note its problems; while it is malformed, read it without the lines at which the parser stops."""
    text, left_out = analysis.text.text, list[int]()
    first: list[Problem] = []
    while True:
        try:
            partial = load_partly(text, analysis.text.file, environment=environment, reading=texts.read)
            break
        except TopologyError as error:
            first = first or error.problems
            line = _broken_line(analysis.text, left_out, error.problems[-1].position.line - 1)
            if line is None or len(left_out) >= _REPAIRS:
                analysis.marks += map(Mark, first)
                return None
            left_out.append(line)
            start, width = analysis.text.line_offsets[line], len(analysis.text.line(line))
            text = text[:start] + " " * width + text[start + width :]
    analysis.left_out = tuple(left_out)
    problems = partial.problems
    if left_out:
        missing = "\n".join(map(analysis.text.line, left_out))
        problems = [problem for problem in problems if not _follows(problem, missing)]
    analysis.marks += map(Mark, [*first, *problems])
    return partial


def _broken_line(text: Text, left_out: Sequence[int], line: int) -> int | None:
    """Return the line to leave out: the line of the error, or the nearest line above it that has text."""
    line = min(line, len(text.line_offsets) - 1)
    while line >= 0 and (line in left_out or not text.line(line).strip()):
        line -= 1
    return line if line >= 0 else None


def _follows(problem: Problem, missing: str) -> bool:
    """Return whether a problem may come from the lines that were left out."""
    message = problem.message
    names = re.findall(r"There is no \w+ '([^']*)'", message)
    return " needs " in message or "empty" in message or any(name in missing for name in names)


def _assemble(analysis: Analysis, model: TopologyModel) -> None:
    """Find the types at the steps of a file with problems, as far as they are certain."""
    built: list[BuiltStep] = []
    try:
        config = Config(model.application, {}, overrides={}, environment={}, folder="")
        assembler = Assembler(model, StoreDefaults.of(config), built.append)
        try:
            assembler.build()
        finally:
            assembler.graph.release()
    except Exception:
        # The plan relies on checks that this model has not passed; what was built before the failure is right.
        pass
    analysis.built = built


# -- Tests and jobs ------------------------------------------------------------------------------------------------


class EditorPlans:
    """Plans of topologies as they are in the editor; implements testing.case_file.PlanOf."""

    def __init__(self, texts: Texts, variables: Mapping[str, str]):
        self.variables = variables
        self._texts = texts

    def __call__(self, topology: Path, environment: Mapping[str, str], settings: Mapping[str, Document]) -> Plan:
        """Return the plan of a topology. Raises TopologyError, UsageError, ConfigError."""
        variables = {**self.variables, **environment}
        name = str(topology)
        partial = load_partly(self._texts.read(name), name, environment=variables, reading=self._texts.read)
        if partial.problems or partial.model is None:
            raise TopologyError(partial.problems)
        plan = plans.build(partial.model, settings, variables)
        if plan.registry is not None:
            plan.registry.start_dry_run()
        return plan


def _tests(analysis: Analysis, texts: Texts, environment: Mapping[str, str]) -> None:
    from streamkit.testing.case_file import load

    analysis.root = yaml_root(analysis.text)
    analysis.cases = load(Path(analysis.text.file), EditorPlans(texts, environment), analysis.text.text)


def _job(analysis: Analysis, texts: Texts, environment: Mapping[str, str]) -> None:
    from streamkit.runtime.spark.submission.job_file import is_job_text, load_job

    if not is_job_text(analysis.text.text):
        analysis.kind = OTHER
        return
    of_files = EditorPlans(texts, environment)

    def plan_of(topology: str, settings: Mapping[str, str]) -> Plan:
        return of_files(Path(topology), {}, settings)

    load_job(analysis.text.file, plan_of, environment, analysis.text.text)


def yaml_root(text: Text) -> Node | None:
    """Return the root of a file's YAML without the lines at which the parser stops, None if there is none."""
    remaining, left_out = text.text, list[int]()
    while len(left_out) <= _REPAIRS:
        try:
            return compose(Source(remaining, text.file), [])
        except TopologyError as error:
            line = _broken_line(text, left_out, error.problems[-1].position.line - 1)
            if line is None:
                return None
            left_out.append(line)
            start, width = text.line_offsets[line], len(text.line(line))
            remaining = remaining[:start] + " " * width + remaining[start + width :]
    return None


_MOST_FILES = 5_000
"""YAML files of a repository in which topologies are searched for."""


def beside(file: str) -> list[str]:
    """Return the YAML files in the folder of a file and in the one above, at most 200."""
    folders = (os.path.dirname(file), os.path.dirname(os.path.dirname(file)))
    files = [file for folder in folders for file in _yaml_files(folder or ".", deep=False)]
    return files[:200]


def of_repository(file: str) -> list[str]:
    """Return the YAML files of the repository (`.git`) of a file, at most 5,000; without one, those beside it."""
    folder = os.path.dirname(os.path.abspath(file))
    while not os.path.exists(os.path.join(folder, ".git")):
        if os.path.dirname(folder) == folder:
            return beside(file)
        folder = os.path.dirname(folder)
    return list(dict.fromkeys([*beside(file), *islice(_yaml_files(folder, deep=True), _MOST_FILES)]))


def _yaml_files(folder: str, deep: bool) -> Iterator[str]:
    for path, folders, names in os.walk(folder):
        # Neither environments nor packages of others.
        folders[:] = sorted(name for name in folders if deep and name[0] != "." and name != "node_modules")
        yield from (os.path.join(path, name) for name in sorted(names) if name.endswith((".yaml", ".yml")))
