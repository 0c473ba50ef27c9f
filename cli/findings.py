"""The output of `streamkit diff`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamkit.changes.finding import Verdict, worst
from streamkit_cli.annotations import Annotation, show_annotations

if TYPE_CHECKING:
    from streamkit.changes.finding import Finding
    from streamkit.changes.forms.form import Form

_SEVERITIES = {
    Verdict.SAFE: "notice",
    Verdict.UNKNOWN: "warning",
    Verdict.STOP: "warning",
    Verdict.RESTORE: "warning",
}
"""Of annotations; the others are errors: state or records are lost."""


def needs_action(found: Sequence[Finding]) -> bool:
    """Return whether the user must do something before the new version starts."""
    return any(each.verdict is not Verdict.SAFE for each in found)


def show(old: str, new: Form, found: list[Finding], form: str) -> None:
    """Print findings as text, json, github or gitlab."""
    if form == "json":
        document = {
            "old": old,
            "new": new.label,
            "application": new.application,
            "verdict": str(worst(found)),
            "findings": [_data(each) for each in found],
        }
        print(json.dumps(document, ensure_ascii=False, indent=2))
    elif form != "text":
        show_annotations(map(_annotation, found), form)
    else:
        for each in found:
            print(f"{each.position}: {each.verdict}: {each.message}")
            if each.action:
                print(f"    {each.action}")
        print(_summary(old, new.label, found))


def _annotation(each: Finding) -> Annotation:
    text = each.message + (f"\n{each.action}" if each.action else "")
    return Annotation(_SEVERITIES.get(each.verdict, "error"), str(each.verdict), each.position, text)


def _summary(old: str, new: str, found: list[Finding]) -> str:
    if not found:
        return f"{old} -> {new}: nothing changes that state or records depend on"
    if not needs_action(found):
        return f"{old} -> {new}: safe, instances may be restarted one by one"
    counts = Counter(str(each.verdict) for each in found)
    numbers = ", ".join(f"{counts[verdict]} {verdict}" for verdict in reversed(Verdict) if counts[verdict])
    return f"{old} -> {new}: {numbers}"


def _data(each: Finding) -> dict[str, object]:
    place = {"file": each.position.file, "line": each.position.line, "column": each.position.column}
    return {
        "verdict": str(each.verdict),
        "subject": each.subject,
        "name": each.name,
        "old": each.old,
        "pipeline": each.pipeline,
        **place,
        "message": each.message,
        "action": each.action,
    }
