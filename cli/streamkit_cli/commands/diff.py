"""`streamkit diff`: shows the effects of a new version of a topology on the state and the records of the old one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.changes.finding import Finding, Verdict, worst
from streamkit.errors import UsageError
from streamkit_cli.guard import FAILED
from streamkit_cli.loading import STDIN, load_plan, opened, require_file
from streamkit_cli.options import CiFormat, EnvFile, Problems, Settings
from streamkit_cli.problems import Annotation, show_annotations

if TYPE_CHECKING:
    from streamkit.changes.form import Form
    from streamkit.plan.model import Plan


Old = Annotated[
    str,
    typer.Argument(
        metavar="OLD",
        help="The running version: a topology file, or the output of describe() in Java.",
        show_default=False,
    ),
]
New = Annotated[
    str | None,
    typer.Argument(
        metavar="NEW",
        help="The next version; with --running and one file, OLD is the next version.",
        show_default=False,
    ),
]
Running = Annotated[
    bool, typer.Option("--running", help="Read the internal topics and the group on the log of the new version.")
]


def diff(
    old: Old,
    new: New = None,
    running: Running = False,
    shape: Problems = CiFormat.text,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int:
    """Compare two versions of a topology: their tasks, stores, changelogs and repartition topics.

    OLD and NEW are topology files, or texts of Topology.describe(); --running compares one file with the application's
    state on its log. Exit code 0: instances can be restarted one by one, 1: action is needed.

    Examples:
        streamkit diff orders-v1.yaml orders-v2.yaml
        streamkit diff --running orders.yaml --format json
    """
    if new is None and not running:
        raise UsageError("diff compares two versions: give NEW, or --running for what is on the log")
    if old == STDIN and new == STDIN:
        raise UsageError("only one of OLD and NEW can come from stdin")
    first, second = (old, new) if new is not None else (None, old)
    versions = [_read(file, settings, env_file) for file in (first, second) if file is not None]
    from streamkit.changes.compare_versions import compare

    if not running:
        before, after = (version.form for version in versions)
        findings = compare(before, after)
    else:
        before, after, findings = _on_log(versions)
    show(before.label, after, findings, shape.value)
    return FAILED if needs_action(findings) else 0


@dataclass(frozen=True)
class _Version:
    """A file of the command line; plan None: a description."""

    form: Form
    plan: Plan | None


def _read(file: str, settings: list[str] | None, env_file: str | None) -> _Version:
    from streamkit.changes.of_describe import is_description, parse_describe
    from streamkit.changes.of_plan import form_of

    if file == STDIN:
        plan = load_plan(file, settings, env_file)
        return _Version(form_of(plan, "stdin"), plan)
    require_file(file)
    try:
        text = Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        text = ""  # the reader of topologies reports the place
    if is_description(text):
        return _Version(parse_describe(text, file), None)
    plan = load_plan(file, settings, env_file)
    return _Version(form_of(plan, file), plan)


def _on_log(versions: list[_Version]) -> tuple[Form, Form, list[Finding]]:
    """Compare with the log of the new version; with two versions, findings then contain numbers of records."""
    from streamkit.changes.compare_versions import compare
    from streamkit.changes.of_log import form_on_log, read_log
    from streamkit.changes.of_plan import form_of
    from streamkit.runtime.operations.opening import address

    new = versions[-1]
    if new.plan is None:
        raise UsageError("--running needs the topology file of the new version, which says where its log is")
    old = versions[0].plan if len(versions) == 2 else None
    with opened(new.plan, creates=False) as transport:
        on_log, internal, counts = read_log(old or new.plan, transport)
    after = form_of(new.plan, new.form.label, counts)
    if len(versions) == 2:
        before = versions[0].form if old is None else form_of(old, versions[0].form.label, counts)
    else:
        before = form_on_log(new.plan, after, on_log, internal, f"the log at {address(new.plan)}")
        if not internal:
            return before, after, []
    return before, after, compare(before, after, on_log)


# The output of `streamkit diff`: a table, JSON or annotations.

_SEVERITIES = {
    Verdict.SAFE: "notice",
    Verdict.UNKNOWN: "warning",
    Verdict.STOP: "warning",
    Verdict.RESTORE: "warning",
}
"""Of annotations; the others are errors: state or records are lost."""


def needs_action(findings: Sequence[Finding]) -> bool:
    """Return whether the user must do something before the new version starts."""
    return any(finding.verdict is not Verdict.SAFE for finding in findings)


def show(old: str, new: Form, findings: list[Finding], form: str) -> None:
    """Print findings as text, json, github or gitlab."""
    if form == "json":
        document = {
            "old": old,
            "new": new.label,
            "application": new.application,
            "verdict": str(worst(findings)),
            "findings": [_data(finding) for finding in findings],
        }
        print(json.dumps(document, ensure_ascii=False, indent=2))
    elif form != "text":
        show_annotations(map(_annotation, findings), form)
    else:
        for finding in findings:
            print(f"{finding.position}: {finding.verdict}: {finding.message}")
            if finding.action:
                print(f"    {finding.action}")
        print(_summary(old, new.label, findings))


def _annotation(finding: Finding) -> Annotation:
    text = finding.message + (f"\n{finding.action}" if finding.action else "")
    return Annotation(_SEVERITIES.get(finding.verdict, "error"), str(finding.verdict), finding.position, text)


def _summary(old: str, new: str, findings: list[Finding]) -> str:
    if not findings:
        return f"{old} -> {new}: nothing changes that state or records depend on"
    if not needs_action(findings):
        return f"{old} -> {new}: safe, instances may be restarted one by one"
    counts = Counter(str(finding.verdict) for finding in findings)
    numbers = ", ".join(f"{counts[verdict]} {verdict}" for verdict in reversed(Verdict) if counts[verdict])
    return f"{old} -> {new}: {numbers}"


def _data(finding: Finding) -> dict[str, object]:
    position = {"file": finding.position.file, "line": finding.position.line, "column": finding.position.column}
    return {
        "verdict": str(finding.verdict),
        "subject": finding.subject,
        "name": finding.name,
        "old": finding.old,
        "pipeline": finding.pipeline,
        **position,
        "message": finding.message,
        "action": finding.action,
    }
