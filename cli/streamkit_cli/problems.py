"""The implementation of `streamkit validate`, without typer, because importing it would delay an editor at each save."""

from __future__ import annotations

import glob
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from streamkit.config.settings import ALIASES
from streamkit.config.values import is_secret
from streamkit.errors import Position, Problem, StreamkitError, TopologyError, UsageError
from streamkit_cli.guard import print_message
from streamkit_cli.loading import (
    STDIN,
    environment,
    load_model,
    overrides,
    require_file,
    stdin_text,
    wrong_settings,
)

if TYPE_CHECKING:
    from streamkit.plan.model import Plan
    from streamkit.spec.topology_model import TopologyModel

ERROR, WARNING = "error", "warning"
INVALID = "invalid"
"""The code of a mistake that is not a lint rule."""


@dataclass(frozen=True)
class CheckOptions:
    """The options of validate. excerpt None: on a terminal; form: text, json, github or gitlab.

    online: whether to check against the schema registry too; imports: whether to import the Python code of the file.
    """

    excerpt: bool | None = None
    settings: list[str] | None = None
    env_file: str | None = None
    strict: bool = False
    ignored: frozenset[str] = frozenset()
    form: str = "text"
    online: bool = False
    imports: bool = False


@dataclass(frozen=True)
class ReportLine:
    """A line of the report."""

    severity: str
    code: str
    position: Position
    message: str


def validate_files(files: Sequence[str], options: CheckOptions | None = None) -> int:
    """Print the problems of all files; return the exit code."""
    chosen = options or CheckOptions()
    code = 0
    lines: dict[ReportLine, None] = {}
    for path in files:
        try:
            for file in files_of(path):
                # A test file has the problems of its topology, which may be one of the files too.
                lines.update(dict.fromkeys(_problems_of(file, chosen)))
        except UsageError as error:
            print_message(str(error))
            code = error.exit_code
    _print(list(lines), chosen)
    return max(code, 1 if lines else 0)


def _problems_of(file: str, options: CheckOptions) -> list[ReportLine]:
    if file == STDIN:
        return _stdin_problems(options)
    if is_test_file(file):
        return _test_problems(file, options)
    return _job_problems(file, options) if is_job(file) else _problems(file, options)


def _stdin_problems(options: CheckOptions) -> list[ReportLine]:
    """Return the problems of the standard input, which holds a topology or a job file."""
    try:
        text = stdin_text()
    except TopologyError as error:
        return _report_lines(error.problems)
    return _job_problems("stdin", options, text) if _is_job_text(text) else _problems(STDIN, options, text)


def _test_problems(file: str, options: CheckOptions) -> list[ReportLine]:
    from streamkit.testing.case_file import load
    from streamkit.testing.suite import Plans

    require_file(file)
    try:
        load(Path(file), Plans(environment(options.env_file), overrides(options.settings)))
    except TopologyError as error:
        return _report_lines(error.problems)
    return []


def _job_problems(file: str, options: CheckOptions, text: str | None = None) -> list[ReportLine]:
    from streamkit.plan import load
    from streamkit.runtime.spark.submission.job_file import load_job

    variables, chosen = environment(options.env_file), overrides(options.settings)
    try:
        load_job(file, lambda topology, own: load(topology, variables, {**own, **chosen}), variables, text)
    except TopologyError as error:
        return _report_lines(error.problems)
    return []


def _report_lines(problems: Sequence[Problem]) -> list[ReportLine]:
    ordered = sorted(problems, key=lambda problem: (problem.position.line, problem.position.column))
    return [ReportLine(ERROR, INVALID, problem.position, problem.message) for problem in ordered]


def _problems(file: str, options: CheckOptions, text: str | None = None) -> list[ReportLine]:
    from streamkit.plan import build

    problems: list[Problem] = []
    try:
        variables = environment(options.env_file)
        model = load_model(file, variables, text)
        if options.imports:
            from streamkit.spec.import_check import import_problems
            from streamkit_cli.command_process import user_output

            with user_output():
                problems = import_problems(model)
        else:
            from streamkit.spec.import_check import source_problems

            problems = source_problems(model)
        with wrong_settings():
            plan = build(model, overrides(options.settings), variables, options.online)
    except TopologyError as error:
        return _report_lines([*problems, *error.problems])
    except UsageError:
        raise
    except StreamkitError as error:
        # An error without a place in the file, such as one in the environment, is one of the problems too.
        return [ReportLine(ERROR, INVALID, Position(file, 1, 1), str(error))]
    for warning in _warnings(model, plan):
        print_message(warning)
    if problems:
        return _report_lines(problems)
    from streamkit.lint import EVERY_RULE, MISTAKES, check

    return [
        ReportLine(ERROR if finding.code in MISTAKES else WARNING, finding.code, finding.position, finding.message)
        for finding in check(model, plan, EVERY_RULE if options.strict else MISTAKES)
        if finding.code not in options.ignored
    ]


def _warnings(model: TopologyModel, plan: Plan) -> list[str]:
    """Return the warnings of the settings, with their positions if they are set in the file."""
    entries = {ALIASES.get(name, name): entry for name, entry in model.config.items()}
    places = {name: f"{entry.position}: " for name, entry in entries.items() if entry.position is not None}
    return [
        (places.get(line.split()[0], "") if plan.config.origin(line.split()[0]) == "file" else "") + line
        for line in plan.config.warnings
    ]


def _print(lines: list[ReportLine], options: CheckOptions) -> None:
    if options.form == "json":
        print(json.dumps([_data(line) for line in lines], ensure_ascii=False, indent=2))
    elif options.form != "text":
        show_annotations(
            (Annotation(line.severity, line.code, line.position, line.message) for line in lines), options.form
        )
    elif lines:
        _print_text(lines, sys.stdout.isatty() if options.excerpt is None else options.excerpt)


def _print_text(lines: list[ReportLine], excerpt: bool) -> None:

    # Text that is not UTF-8 is one of the problems, not another error.
    names = {line.position.file for line in lines if line.position.file not in ("stdin", STDIN)} if excerpt else set()
    texts = {name: Path(name).read_text(encoding="utf-8", errors="replace") for name in names}
    problems = [
        Problem(line.position, line.message if line.code == INVALID else f"{line.message} [{line.code}]")
        for line in lines
    ]
    print(render(problems, texts, excerpt))


def _data(line: ReportLine) -> dict[str, object]:
    position = {"file": line.position.file, "line": line.position.line, "column": line.position.column}
    return {**position, "severity": line.severity, "code": line.code, "message": line.message}


# The files that `streamkit validate` checks: files as they are, patterns, and all topologies and tests below a folder.

_ENDINGS = (".yaml", ".yml")
_TESTS = (".test.yaml", ".test.yml")
_PASSED_OVER = ("node_modules", "__pycache__")
_JOB = re.compile(rb"""^["']?topology["']?\s*:""", re.MULTILINE)


def is_test_file(file: str) -> bool:
    """Return whether a file has tests rather than a topology."""
    return file.endswith(_TESTS)


def is_job(file: str) -> bool:
    """Return whether a file is a job file; a quick look at its keys spares the imports for topologies."""
    if _is_topology(file):
        return False
    from streamkit.runtime.spark.submission.job_file import is_job_file

    return is_job_file(file)


def _is_job_text(text: str) -> bool:
    from streamkit.spec.topology_file import HEAD

    if HEAD.search(text.encode()):
        return False
    from streamkit.runtime.spark.submission.job_file import is_job_text

    return is_job_text(text)


def files_of(path: str) -> list[str]:
    """Return the files of an argument. Raises UsageError if a folder or a pattern has none.

    In a folder, these are all YAML files below it that have the key `streamkit`, job files and test files; hidden folders
    are skipped.
    """
    if os.path.isdir(path):
        files = sorted(_below(path))
        if not files:
            raise UsageError(f"{path}: no topology below it; it has the key 'streamkit', in a file *.yaml or *.yml")
        return files
    if glob.has_magic(path) and not os.path.exists(path):
        files = sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))
        if not files:
            raise UsageError(f"{path}: no file matches")
        return files
    return [path]


def _below(folder: str) -> Iterator[str]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _PASSED_OVER]
        for name in files:
            # Without ./, as the tests of a topology name it: its mistakes are shown once.
            path = os.path.normpath(os.path.join(root, name))
            if name.endswith(_TESTS) or (name.endswith(_ENDINGS) and (_is_topology(path) or _names_topology(path))):
                yield path


def _is_topology(path: str) -> bool:
    from streamkit.spec.topology_file import HEAD

    return _has(path, HEAD)


def _names_topology(path: str) -> bool:
    """Return whether a file in a folder is a job file; there may be files of other programs with similar keys."""
    return _has(path, _JOB) and is_job(path)


def _has(path: str, key: re.Pattern[bytes]) -> bool:
    try:
        with open(path, "rb") as file:
            return key.search(file.read()) is not None
    except OSError:
        return True  # its validation reports the reason


# Problems as text: `FILE:LINE:COL: message`, with the line of the file and a caret below it if requested.

MAX_WIDTH = 160
_NAME = re.compile(r"[\w.-]+(?=[\"']?\s*:)")
"""Finds names of settings: a line with the name of a secret is not shown."""


def render(problems: Iterable[Problem], texts: Mapping[str, str] | None = None, excerpt: bool = False) -> str:
    """Return the problems in their order, one in each line.

    With `excerpt` the source line and a caret follow each; `texts` has the contents of files by name.
    """
    lines = []
    for problem in problems:
        lines.append(str(problem))
        text = (texts or {}).get(problem.position.file)
        if excerpt and text is not None:
            lines.extend(_excerpt(problem, text))
    return "\n".join(lines)


def _excerpt(problem: Problem, text: str) -> list[str]:
    rows = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    line, column = problem.position.line, problem.position.column
    if not 1 <= line <= len(rows):
        return []
    row = rows[line - 1]
    if any(is_secret(name) for name in _names_of(rows, line - 1)):
        return []
    first = max(0, column - MAX_WIDTH // 2)
    shown = row[first : first + MAX_WIDTH]
    # Tabs stay tabs in the second line, so that the caret is under its character in any terminal.
    pad = "".join("\t" if character == "\t" else " " for character in row[first : column - 1])
    margin = f"{line:>5} | "
    return [margin + shown, " " * (len(margin) - 2) + "| " + pad + "^"]


def _names_of(rows: list[str], at: int) -> list[str]:
    """Return the names in a row; if it has none, as in an item of a list, the names of the nearest row above that has any."""
    while at > 0 and not _NAME.search(rows[at]):
        at -= 1
    return _NAME.findall(rows[at])


# Problems in the forms of CI: annotations of GitHub Actions, and a Code Quality report of GitLab.


_FOLDERS = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
"""The variables with the folder of the repository, in GitHub Actions and in GitLab."""
_GITLAB = {"error": "major", "warning": "minor", "notice": "info"}


class Annotation(NamedTuple):
    """A problem beside a line of a file; severity: error, warning or notice."""

    severity: str
    title: str
    position: Position
    message: str


def show_annotations(annotations: Iterable[Annotation], form: str) -> None:
    """Print annotations; form: github or gitlab."""
    if form == "github":
        for annotation in annotations:
            print(_github(annotation))
    else:
        print(json.dumps(_code_quality(annotations), ensure_ascii=False, indent=2))


def _github(annotation: Annotation) -> str:
    """Return a workflow command, which GitHub shows beside the line of the file."""
    place = f"file={_property(_in_repository(annotation.position.file))},line={annotation.position.line},col={annotation.position.column}"
    return f"::{annotation.severity} {place},title={_property(annotation.title)}::{_escaped(annotation.message)}"


def _code_quality(annotations: Iterable[Annotation]) -> list[dict[str, object]]:
    """Return the report; a fingerprint says whether a problem is new, even if lines above it were added."""
    from hashlib import sha256

    seen: Counter[str] = Counter()
    report: list[dict[str, object]] = []
    for annotation in annotations:
        path = _in_repository(annotation.position.file)
        text = f"{path}\0{annotation.title}\0{annotation.message}"
        seen[text] += 1
        report.append(
            {
                "description": annotation.message,
                "check_name": annotation.title,
                "fingerprint": sha256(f"{text}\0{seen[text]}".encode("utf-8", "surrogateescape")).hexdigest(),
                "severity": _GITLAB[annotation.severity],
                "location": {"path": path, "lines": {"begin": annotation.position.line}},
            }
        )
    return report


def _in_repository(file: str) -> str:
    """Return a path as the CI system knows the file: relative to the repository if that is known."""
    path = os.path.abspath(file)
    for folder in filter(None, map(os.environ.get, _FOLDERS)):
        if path.startswith(os.path.abspath(folder) + os.sep):
            return os.path.relpath(path, folder)
    return file


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
