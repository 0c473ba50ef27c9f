"""`streamkit test`: found, run, shown, written, counted; exit codes that a script can use."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.support import LIMIT_S, assert_one_clear_line, command, streamkit
from tests.requirements import terminal
from tests.testing.support import case, write

GOOD = case("given: {orders: [{key: a, value: {cents: 5}}]}\nexpect: {totals: [{key: a, value: 5}]}")
BAD = GOOD.replace("value: 5}]}", "value: 6}]}").replace("t:", "adds <up> & more:", 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two topologies, one with a test that passes and one with a test that fails."""
    for name, tests in (("good", GOOD), ("bad", BAD)):
        (tmp_path / name).mkdir()
        write(tmp_path / name, tests)
    return tmp_path


def test_all_tests_below_a_folder_are_run(folder: Path) -> None:
    done = streamkit("test", folder)
    assert done.code == 1
    assert done.err == ""
    assert "ok    t\n" in done.out
    assert f"  FAIL  adds <up> & more\n        {folder}/bad/topology.test.yaml:4:23: totals: records" in done.out
    assert "          - {key: a, value: 6}   (line 4)\n          + {key: a, value: 5}\n" in done.out
    assert done.out.endswith("\n2 tests, 1 failed\n")


def test_without_a_path_the_present_folder_is_meant(folder: Path) -> None:
    done = streamkit("test", cwd=folder / "good")
    assert (done.code, done.err) == (0, "")
    assert done.out == "topology.test.yaml\n  ok    t\n\n1 test, all passed\n"


@pytest.mark.parametrize("name", ["topology.yaml", "topology.test.yaml", "."])
def test_a_topology_a_test_file_or_a_folder_may_be_named(folder: Path, name: str) -> None:
    assert streamkit("test", folder / "good" / name).code == 0


def test_paths_without_tests_are_wrong_usage(folder: Path) -> None:
    (folder / "none").mkdir()
    (folder / "none/other.yaml").write_text("")
    assert_one_clear_line(streamkit("test", folder / "none"), 2, "no tests below it")
    assert_one_clear_line(streamkit("test", folder / "nowhere"), 2, "no such file or folder")
    assert_one_clear_line(streamkit("test", folder / "none/other.yaml"), 2, "there is no other.test.yaml beside it")


def test_a_filter_chooses_tests_by_file_or_name(folder: Path) -> None:
    done = streamkit("test", folder, "--filter", "GOOD/")
    assert (done.code, done.out.splitlines()[-1]) == (0, "1 test, all passed")
    done = streamkit("test", folder, "--filter", "nothing")
    assert (done.code, done.out.strip()) == (2, "no test has 'nothing' in its name")


def test_update_writes_what_came_out(folder: Path) -> None:
    done = streamkit("test", folder, "--update")
    assert done.code == 0
    assert f"{folder}/bad/topology.test.yaml  (rewritten)" in done.out
    assert f"{folder}/good/topology.test.yaml\n" in done.out
    assert streamkit("test", folder).code == 0


def test_results_are_written_as_junit_xml(folder: Path) -> None:
    (folder / "bad/broken.test.yaml").write_text("tests: {t: {gven: []}}")
    report = folder / "report.xml"
    assert streamkit("test", folder, "--junit", report).code == 1
    root = ElementTree.parse(report).getroot()
    assert {name: root.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
    }
    failure = root.find(".//testcase[@name='adds <up> & more']/failure")
    assert failure is not None
    assert "expected 6, came 5" in (failure.text or "")
    assert len(root.findall("testsuite")) == 3
    assert_one_clear_line(streamkit("test", folder / "good", "--junit", folder / "no/where.xml"), 1, "No such file")


def test_results_are_printed_as_json(folder: Path) -> None:
    (folder / "bad/broken.test.yaml").write_text("tests: {t: {gven: []}}")
    done = streamkit("test", folder, "--format", "json", "--min-coverage", 82)
    found = json.loads(done.out)
    assert (done.code, done.err, found["passed"]) == (1, "", False)
    files = {Path(each["file"]).parent.name + "/" + Path(each["file"]).name: each for each in found["files"]}
    (failed,) = files["bad/topology.test.yaml"]["tests"]
    assert (failed["name"], failed["passed"]) == ("adds <up> & more", False)
    assert "expected 6, came 5" in failed["failures"][0]["message"]
    assert failed["failures"][0]["line"] == 4
    (problem,) = files["bad/broken.test.yaml"]["problems"]
    assert "'gven'" in problem["message"]
    good = next(each for each in found["coverage"] if each["topology"].endswith("good/topology.yaml"))
    assert (good["reached"], good["steps"]) == (9, 11)
    assert any("no record took the branch 'refund'" in gap["message"] for gap in good["gaps"])
    assert streamkit("test", folder / "good", "--format", "json").code == 0
    assert streamkit("test", folder / "good", "--format", "json", "--min-coverage", 82).code == 1
    assert streamkit("test", folder / "good", "--format", "json", "--filter", "nothing").code == 2


def test_mistakes_fail_with_their_place(folder: Path) -> None:
    path = folder / "good/topology.test.yaml"
    path.write_text(GOOD.replace("expect", "expcet"))
    done = streamkit("test", folder / "good")
    assert done.code == 1
    assert f"{path}:4:5: The test 't' has no key 'expcet'; did you mean 'expect'?" in done.out
    assert done.out.endswith("\n1 file with mistakes\n")


def test_coverage_is_shown_and_may_be_required(folder: Path) -> None:
    done = streamkit("test", folder / "good", "--coverage")
    assert done.code == 0
    assert "9 of 11 steps reached (82 %)" in done.out
    assert "no record took the branch 'refund'" in done.out
    assert streamkit("test", folder / "good", "--min-coverage", 80).code == 0
    done = streamkit("test", folder / "good", "--min-coverage", 82)
    assert done.code == 1
    assert "less than the 82 % required" in done.out


def test_a_setting_goes_before_those_of_the_tests(folder: Path) -> None:
    done = streamkit("test", folder / "good", "--set", "processing.exception.handler=never")
    assert done.code == 1
    assert "not 'never'" in done.out


def test_a_test_that_compares_nothing_is_reported(folder: Path) -> None:
    (folder / "good/topology.test.yaml").write_text(case("given: []"))
    assert "nothing is compared" in streamkit("test", folder / "good").out


def test_on_a_terminal_the_diff_has_colours(folder: Path) -> None:
    ours, theirs = terminal()
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(command("test", folder), stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:
        pass  # the end of a terminal whose other side is closed
    os.close(ours)
    assert process.wait(LIMIT_S) == 1
    assert b"\x1b[31m          - {key: a, value: 6}   (line 4)" in shown
    assert b"\x1b[32m          + {key: a, value: 5}" in shown
