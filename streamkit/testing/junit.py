"""Results as JUnit XML, the form that CI systems read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree as xml

from streamkit.testing.failure_report import head, text
from streamkit.testing.suite import FileResult

# What XML 1.0 can't hold.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(results: Iterable[FileResult]) -> bytes:
    """Return the document: a suite a file, a case a test; a file that can't be read is one case with an error."""
    root = xml.Element("testsuites")
    totals = {"tests": 0, "failures": 0, "errors": 0}
    for result in results:
        suite = xml.SubElement(root, "testsuite", name=str(result.path))
        counts = _suite(suite, result)
        for name, count in counts.items():
            suite.set(name, str(count))
            totals[name] += count
        suite.set("time", f"{sum(outcome.seconds for outcome in result.outcomes):.3f}")
    for name, count in totals.items():
        root.set(name, str(count))
    xml.indent(root)
    text: bytes = xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _suite(suite: xml.Element, result: FileResult) -> dict[str, int]:
    for problem in result.problems:
        case = xml.SubElement(suite, "testcase", classname=str(result.path), name=str(problem.position))
        xml.SubElement(case, "error", message=_legal(problem.message)).text = _legal(str(problem))
    failures = 0
    for outcome in result.outcomes:
        case = xml.SubElement(suite, "testcase", classname=str(result.path), name=_legal(outcome.case.name))
        case.set("file", str(result.path))
        case.set("line", str(outcome.case.position.line))
        case.set("time", f"{outcome.seconds:.3f}")
        if outcome.failures:
            failures += 1
            message = _legal(head(outcome.failures[0]))
            details = "\n\n".join(map(text, outcome.failures))
            xml.SubElement(case, "failure", message=message).text = _legal(details)
    tests = len(result.outcomes) + len(result.problems)
    return {"tests": tests, "failures": failures, "errors": len(result.problems)}


def _legal(value: str) -> str:
    return _ILLEGAL.sub("�", value)
