"""Problems in the forms of CI: annotations of GitHub Actions, and a Code Quality report of GitLab."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from streamkit.errors import Position

_FOLDERS = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
"""The variables with the folder of the repository, in GitHub Actions and in GitLab."""
_GITLAB = {"error": "major", "warning": "minor", "notice": "info"}


class Annotation(NamedTuple):
    """A problem beside a line of a file; severity: error, warning or notice."""

    severity: str
    title: str
    position: Position
    message: str


def show_annotations(found: Iterable[Annotation], form: str) -> None:
    """Print annotations; form: github or gitlab."""
    if form == "github":
        for each in found:
            print(_github(each))
    else:
        print(json.dumps(_code_quality(found), ensure_ascii=False, indent=2))


def _github(each: Annotation) -> str:
    """Return a workflow command, which GitHub shows beside the line of the file."""
    place = f"file={_property(_in_repository(each.position.file))},line={each.position.line},col={each.position.column}"
    return f"::{each.severity} {place},title={_property(each.title)}::{_escaped(each.message)}"


def _code_quality(found: Iterable[Annotation]) -> list[dict[str, object]]:
    """Return the report; a fingerprint says whether a problem is new, even if lines above it were added."""
    from hashlib import sha256

    seen: Counter[str] = Counter()
    report: list[dict[str, object]] = []
    for each in found:
        path = _in_repository(each.position.file)
        text = f"{path}\0{each.title}\0{each.message}"
        seen[text] += 1
        report.append(
            {
                "description": each.message,
                "check_name": each.title,
                "fingerprint": sha256(f"{text}\0{seen[text]}".encode("utf-8", "surrogateescape")).hexdigest(),
                "severity": _GITLAB[each.severity],
                "location": {"path": path, "lines": {"begin": each.position.line}},
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
