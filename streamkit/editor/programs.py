"""Runs `try` and `test` in separate processes, because they run code of the user; shows their commands and the values of each line."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lsprotocol import types as lsp

from streamkit.editor.analysis import TEST, TEST_SUFFIXES, TOPOLOGY, Analysis, kind_of, yaml_root
from streamkit.editor.drawings import Data, range_data
from streamkit.editor.project import Hint, Project, path_of
from streamkit.editor.texts import Text
from streamkit.errors import StreamkitError, UsageError
from streamkit.plan.describe import FORMATS
from streamkit.serdes.plain import Document
from streamkit.spec.yaml_nodes import Node

_LONGEST = 60
_MOST_VALUES = 3
"""Values of one line that are shown; the others are in its tool tip."""
_MOST_DETAILS = 20


@dataclass(frozen=True)
class Ended:
    """A process that has ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Data:
        """The result of a command."""
        return {"text": "\n".join(filter(None, (self.out.rstrip(), self.err.rstrip()))), "ok": self.code == 0}


async def _run(folder: str, *arguments: str, entered: str = "") -> Ended:
    """Run a command of streamkit; if the request is cancelled, the process is killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "streamkit_cli", *arguments,
        cwd=folder or None,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = await process.communicate(entered.encode())
    except asyncio.CancelledError:
        process.kill()
        raise
    assert process.returncode is not None
    return Ended(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


# -- Tests -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FoundTest:
    """A test of a file, by the node of its name."""

    name: str
    key: Node
    body: Node


def _test_file(uri: str) -> str:
    """Return the test file itself, or the one beside a topology. Raises UsageError if there is none."""
    path = Path(path_of(uri))
    if not path.name:
        raise UsageError("the request names no file")
    if path.name.endswith(TEST_SUFFIXES):
        return str(path)
    for suffix in TEST_SUFFIXES:
        candidate = path.with_name(path.stem + suffix)
        if candidate.is_file():
            return str(candidate)
    raise UsageError(f"there is no {path.stem}{TEST_SUFFIXES[0]} beside {path.name}")


def found_tests(root: Node | None) -> list[FoundTest]:
    """Return the tests of a file, also of one with mistakes."""
    entries = root.value if root is not None and root.kind == "mapping" else []
    tests = next((value for key, value in entries if key.value == "tests" and value.kind == "mapping"), None)
    pairs = tests.value if tests is not None else []
    return [FoundTest(key.value, key, body) for key, body in pairs if key.kind == "scalar"]


def tests(project: Project, uri: str) -> Data:
    """Return the tests of a file with their ranges (`streamkit/tests`)."""
    try:
        file = _test_file(uri)
        text = project.texts.get(file, project.encoding)
    except StreamkitError as error:
        return {"tests": [], "message": str(error)}
    offered = [
        {
            "id": f"{file}::{test.name}",
            "name": test.name,
            "uri": project.uri(file),
            "range": range_data(text.span(test.key.start, max(test.key.end, test.body.end))),
        }
        for test in found_tests(yaml_root(text))
    ]
    return {"tests": offered, "message": None}


async def run_test(project: Project, uri: str, name: str | None) -> Data:
    """Run the tests of a file, or one by its id (`streamkit/runTest`)."""
    try:
        file = _test_file(uri)
    except StreamkitError as error:
        return {"results": [], "message": str(error)}
    chosen = name.partition("::")[2] if name else ""
    ended = await _run(os.path.dirname(file), "test", file, "--format", "json", "--filter", chosen)
    try:
        document = json.loads(ended.out)
    except ValueError:
        return {"results": [], "message": ended.err.strip() or ended.out.strip()}
    results, problems = list[Data](), list[str]()
    for suite in document["files"]:
        problems += [f"{p['file']}:{p['line']}:{p['column']}: {p['message']}" for p in suite["problems"]]
        # The filter is a part of a name, which other tests may have too.
        results += [_result(project, file, test) for test in suite["tests"] if chosen in ("", test["name"])]
    return {"results": results, "message": "\n".join(problems) or None}


def _result(project: Project, file: str, test: Mapping[str, Document]) -> Data:
    failures = []
    for failure in test["failures"]:
        text = project.texts.get(os.path.join(os.path.dirname(file), failure["file"]), project.encoding)
        start = text.position(failure["line"] - 1, failure["column"] - 1)
        place = {"line": start.line, "character": start.character}
        failures.append(
            {"message": failure["message"], "uri": project.uri(text.file), "range": {"start": place, "end": place}}
        )
    named = {"id": f"{file}::{test['name']}", "name": test["name"]}
    return {**named, "passed": test["passed"], "seconds": test["seconds"], "failures": failures}


# -- Commands --------------------------------------------------------------------------------------------------------


def describe_file(project: Project, uri: str, form: str | None) -> Data:
    """Return the description of the last valid version of a file; runs no code."""
    valid = project.valid(uri)
    if form not in (None, *FORMATS):
        return {"text": f"there is no format {form!r}; known: {', '.join(FORMATS)}", "ok": False}
    if valid is None or valid.plan is None:
        return {"text": "the file has mistakes, or is no topology", "ok": False}
    return {"text": FORMATS[form or "text"](valid.plan), "ok": True}


async def test_file(project: Project, uri: str, name: str | None) -> Data:
    """Run the tests of a file, print their results, and keep the values of the first one's records."""
    try:
        file = _test_file(uri)
    except StreamkitError as error:
        return {"text": str(error), "ok": False}
    chosen = name.partition("::")[2] if name else ""
    ended = await _run(os.path.dirname(file), "test", file, "--filter", chosen)
    analysis = project.analyses.get(os.path.realpath(file))
    if analysis is not None and analysis.cases is not None:
        records = "".join(f"{json.dumps(record)}\n" for record in _given(analysis, chosen))
        topology = str(analysis.cases.topology)
        await _keep_values(project, topology, "-", records)
    return ended.data


def _given(analysis: Analysis, name: str) -> Iterator[Mapping[str, Document]]:
    """Yield the records of a test, the first one if there is no name, as the input of `try`."""
    assert analysis.cases is not None
    cases = [case for case in analysis.cases.cases if name in ("", case.name)]
    for phase in cases[0].phases if cases else ():
        for part in phase.given:
            if part.record is not None:
                yield part.record
            elif part.advance_ms is not None:
                yield {"advance_wall_clock": part.advance_ms}


async def try_file(project: Project, uri: str, records: str | None) -> Data:
    """Run a topology over records, print the trace, and keep the values."""
    file = path_of(uri)
    chosen = records or _records_beside(file)
    if chosen is None:
        return {"text": f"there are no records (*.jsonl) beside {os.path.basename(file)}", "ok": False}
    ended = await _run(os.path.dirname(file), "try", file, "--input", chosen, "--trace")
    await _keep_values(project, file, chosen, "")
    return ended.data


def _records_beside(file: str) -> str | None:
    folder = Path(file).parent
    names = sorted(path.name for path in folder.glob("*.jsonl"))
    for name in ("records.jsonl", f"{Path(file).stem}.jsonl", *names):
        if name in names:
            return str(folder / name)
    return None


# -- Values beside lines ---------------------------------------------------------------------------------------------


async def _keep_values(project: Project, file: str, records: str, entered: str) -> None:
    """Run `try` and keep what each step made of the records, as inlay hints."""
    ended = await _run(
        os.path.dirname(file), "try", file, "--input", records, "--trace", "--format", "json", entered=entered
    )
    values: dict[tuple[str, int], list[str]] = {}
    for line in ended.out.splitlines():
        try:
            _collect(json.loads(line).get("steps", []), values)
        except (ValueError, AttributeError):
            continue  # a line that the user's code has printed
    project.hints.clear()
    for (place, number), shown in values.items():
        path = os.path.join(os.path.dirname(file), place)
        text = ", ".join(shown[:_MOST_VALUES]) + (f" … {len(shown)} in all" if len(shown) > _MOST_VALUES else "")
        detail = "\n".join(shown[:_MOST_DETAILS])
        project.hints.setdefault(os.path.realpath(path), []).append(Hint(number, text, detail))


def _collect(steps: list[Mapping[str, Document]], values: dict[tuple[str, int], list[str]]) -> None:
    for step in steps:
        if step.get("file"):
            shown = values.setdefault((step["file"], step["line"]), [])
            sent = [f"{_short(out['key'])}: {_short(out['value'])}" for out in step["out"]]
            shown += sent or [f"{step['result']}" + (f" ({step['reason']})" if step.get("reason") else "")]
        _collect(step.get("steps", []), values)


def _short(value: Document) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


# Code lenses, and inlay hints with the values of the last `try` or test.


TRY, TEST_COMMAND, DESCRIBE = COMMANDS = ("streamkit.try", "streamkit.test", "streamkit.describe")


def code_lenses(uri: str, text: Text) -> list[lsp.CodeLens]:
    """Return `try`, `test` and `describe` above the pipelines of a topology, `test` above each test."""
    kind = kind_of(text.file, text.text)
    if kind == TEST:
        return [
            _lens(text.of(test.key), "test", TEST_COMMAND, {"uri": uri, "id": f"{text.file}::{test.name}"})
            for test in found_tests(yaml_root(text))
        ]
    line = next((number for number, row in enumerate(text.all_lines) if row.startswith("pipelines:")), None)
    if kind != TOPOLOGY or line is None:
        return []
    at = lsp.Range(text.position(line, 0), text.position(line, len("pipelines")))
    stem = os.path.splitext(text.file)[0]
    has_tests = any(os.path.isfile(stem + ending) for ending in (".test.yaml", ".test.yml"))
    chosen = [("try", TRY), *([("test", TEST_COMMAND)] if has_tests else []), ("describe", DESCRIBE)]
    return [_lens(at, title, command, {"uri": uri}) for title, command in chosen]


def _lens(at: lsp.Range, title: str, command: str, argument: dict[str, str]) -> lsp.CodeLens:
    return lsp.CodeLens(at, lsp.Command(title, command, arguments=[argument]))


def inlay_hints(project: Project, text: Text, shown: lsp.Range) -> list[lsp.InlayHint]:
    """Return the values of the lines that are shown."""
    return [
        lsp.InlayHint(
            position=text.position(hint.line - 1, len(text.line(hint.line - 1))),
            label=hint.text,
            tooltip=hint.detail,
            padding_left=True,
        )
        for hint in project.hints.get(os.path.realpath(text.file), [])
        if shown.start.line <= hint.line - 1 <= shown.end.line
    ]
