"""The contracts of validate, describe and try: exit codes, what goes to stdout and what to stderr, hostile input."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.support import UPPER, assert_one_clear_line, command, streamkit

EXAMPLE = Path(__file__).parent.parent.parent / "topologies/word-count/topology.yaml"


@pytest.fixture
def upper(tmp_path: Path) -> Path:
    """A valid topology file with state of its own."""
    path = tmp_path / "upper.yaml"
    path.write_text(UPPER.format(state=tmp_path / "state"))
    return path


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A topology file with two mistakes."""
    path = tmp_path / "broken.yaml"
    path.write_text(UPPER.format(state=tmp_path).replace("stream: words", "stream: wodrs") + "stroes: {}\n")
    return path


def test_validate_prints_nothing_for_a_valid_file(upper: Path) -> None:
    done = streamkit("validate", upper)
    assert (done.code, done.out, done.err) == (0, "", "")


def test_validate_prints_every_problem_with_its_place(broken: Path) -> None:
    done = streamkit("validate", broken)
    assert (done.code, done.err) == (1, "")
    lines = done.out.splitlines()
    assert len(lines) == 2
    for line in lines:
        file, row, column, message = line.split(":", 3)
        assert file == str(broken)
        assert int(row) > 0
        assert int(column) > 0
        assert message.startswith(" ")
    assert any("words" in line for line in lines), lines
    assert any("stores" in line for line in lines), lines


def test_validate_shows_an_excerpt_on_request(broken: Path) -> None:
    done = streamkit("validate", "--excerpt", broken)
    assert done.code == 1
    assert "wodrs" in done.out
    assert "^" in done.out
    assert done.out.startswith(f"{broken}:")


def test_validate_takes_several_files(upper: Path, broken: Path) -> None:
    done = streamkit("validate", upper, broken, EXAMPLE)
    assert done.code == 1
    assert [line for line in done.out.splitlines() if not line.startswith(f"{broken}:")] == []


def test_validate_of_a_missing_file_still_reports_the_others(broken: Path, tmp_path: Path) -> None:
    done = streamkit("validate", tmp_path / "none.yaml", broken)
    assert_one_clear_line(done, 2, tmp_path / "none.yaml")
    assert len(done.out.splitlines()) == 2


@pytest.mark.parametrize("name", ["describe", "run"])
def test_a_directory_is_no_topology(name: str, tmp_path: Path) -> None:
    assert_one_clear_line(streamkit(name, tmp_path), 2, tmp_path, "directory")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00\x01",
        b"streamkit: 1\napplication: caf\xe9\n",
        b"\x00" * 100,
        b"[" * 5000,
        b"{a: " * 5000,
        b"- - - -\n" * 50,
        b"a: &a [*a]\n",
        b"a: &a {b: *a}\nstreamkit: 1\n",
        b"%YAML 9.9\n---\nstreamkit: 1\n",
        b"streamkit: 1\n---\nstreamkit: 1\n",
        b"!!python/object/apply:os.system ['true']\n",
        b"streamkit: 1\napplication: a\ntopics: 5\npipelines: x\n",
        b"streamkit: 99999999999999999999999999\n",
        b"? [1, 2]\n: 3\n",
        b"\xef\xbb\xbfstreamkit: 1\napplication: a\n\tx: 1\n",
    ],
)
def test_hostile_files_are_problems_with_positions(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "hostile.yaml"
    path.write_bytes(content)
    done = streamkit("validate", path)
    assert (done.code, done.err) == (1, "")
    for line in done.out.splitlines():
        assert line.startswith(f"{path}:")
        assert [part for part in line.removeprefix(f"{path}:").split(":")[:2] if not part.isdigit()] == []


def test_an_alias_bomb_is_refused(tmp_path: Path) -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join(levels))
    done = streamkit("validate", path)
    assert (done.code, done.err) == (1, "")


def test_settings_that_do_not_exist_are_named(upper: Path) -> None:
    done = streamkit("describe", upper, "--set", "comit.interval.ms=5")
    assert done.code == 2
    assert "comit.interval.ms" in done.err
    assert "Traceback" not in done.err


def test_a_setting_without_a_value_is_wrong_usage(upper: Path) -> None:
    assert_one_clear_line(streamkit("describe", upper, "--set", "application.id"), 2, "KEY=VALUE")


def test_the_environment_goes_before_the_env_file(tmp_path: Path) -> None:
    path = tmp_path / "named.yaml"
    path.write_text(UPPER.format(state=tmp_path).replace("words-in", '"${FIRST}-${SECOND}"'))
    variables = tmp_path / "variables"
    variables.write_text("# names\nexport FIRST='one'\nSECOND=\"two\"\n")
    done = streamkit("describe", path, "--env-file", variables, SECOND="2")
    assert done.code == 0, done
    assert "one-2" in done.out


def test_an_env_file_with_a_bad_line_is_named_with_its_line(upper: Path, tmp_path: Path) -> None:
    variables = tmp_path / "variables"
    variables.write_text("A=1\nnonsense\n")
    assert_one_clear_line(streamkit("describe", upper, "--env-file", variables), 1, f"{variables}:2")


def test_problems_go_to_stderr_for_all_other_commands(broken: Path) -> None:
    for name in ("describe", "run"):
        done = streamkit(name, broken)
        assert (done.code, done.out) == (1, "")
        assert done.err.count(f"{broken}:") == 2
        assert "Traceback" not in done.err


@pytest.mark.parametrize("form", ["text", "json", "mermaid", "dot", "svg", "html", "python"])
def test_describe_writes_every_format(form: str) -> None:
    done = streamkit("describe", EXAMPLE, "--format", form)
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("\n")
    if form == "json":
        json.loads(done.out)
    if form == "python":
        compile(done.out, "described", "exec")


def test_unknown_formats_and_commands_are_wrong_usage(upper: Path) -> None:
    for arguments in (("describe", upper, "--format", "png"), ("destroy", upper), ("try", upper), ("validate",)):
        done = streamkit(*arguments)
        assert (done.code, done.out) == (2, "")
        assert "Traceback" not in done.err


def test_the_help_names_every_command() -> None:
    done = streamkit("--help")
    assert done.code == 0
    assert [name for name in ("validate", "describe", "try", "run", "produce", "consume") if name not in done.out] == []


def test_try_reads_stdin_and_prints_only_records(upper: Path) -> None:
    lines = '{"topic": "words-in", "key": "k", "value": "straße"}\n\n{"topic": "words-in", "value": null}\n'
    done = streamkit("try", upper, "--input", "-", stdin=lines.replace(', "value": null', ', "value": "b"'))
    assert (done.code, done.err) == (0, "")
    assert [json.loads(line)["value"] for line in done.out.splitlines()] == ["STRASSE", "B"]


def test_try_prints_what_came_before_a_failing_record(upper: Path, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    records.write_text('{"topic": "words-in", "value": "a"}\n{"topic": "words-in", "value": null}\n')
    done = streamkit("try", upper, "--input", records)
    assert [json.loads(line)["value"] for line in done.out.splitlines()] == ["A"]
    assert_one_clear_line(done, 1, f"{records}:2", "shout", "map_values")


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b"[1, 2]",
        b'{"key": "a"}',
        b'{"topic": "nowhere", "value": "a"}',
        b'{"topic": "words-in", "value": "a", "timestamp": "noon"}',
        b'{"topic": "words-in", "value": 5}',
        b'{"topic": "words-in", "value": "a", "surprise": 1}',
        b'{"topic": "words-in", "value": "a", "headers": 7}',
        b'{"topic": "words-in", "value": "a", "headers": [["\\ud800", "x"]]}',
        b'{"topic": "words-in", "value": "a", "timestamp": 9223372036854775808}',
        b'{"advance_wall_clock": "sideways"}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_bad_line_is_named_with_its_number(line: bytes, upper: Path, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    records.write_bytes(b'{"topic": "words-in", "value": "a"}\n' + line + b"\n")
    done = streamkit("try", upper, "--input", records)
    assert json.loads(done.out)["value"] == "A"
    assert_one_clear_line(done, 1, f"{records}:2: ")


def test_try_of_records_that_are_not_there(upper: Path, tmp_path: Path) -> None:
    assert_one_clear_line(streamkit("try", upper, "--input", tmp_path / "none"), 2, tmp_path / "none")
    assert_one_clear_line(streamkit("try", upper, "--input", tmp_path), 2, tmp_path)


def test_try_needs_a_place_for_its_stores(upper: Path, tmp_path: Path) -> None:
    done = streamkit("try", upper, "--input", "-", "--stores", tmp_path / "none" / "stores.json")
    assert_one_clear_line(done, 1, tmp_path / "none" / "stores.json")


def test_try_leaves_nothing_on_the_disk(upper: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    streamkit("try", upper, "--input", "-", stdin='{"topic": "words-in", "value": "a"}\n', cwd=tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command("describe", EXAMPLE), stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr.decode().count("\n") == 1
    assert b"Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(command("describe", EXAMPLE), stdout=pipe, stderr=subprocess.PIPE, check=False)
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--max", "many", "expected a whole number, not 'many'"),
        ("--max", "-1", "expected a value greater than or equal to 0, not '-1'"),
        ("--format", "yaml", "'yaml' is not one of 'text', 'json'."),
    ],
)
def test_a_wrong_value_of_an_option_is_named_with_what_is_expected(
    option: str, value: str, reason: str, upper: Path
) -> None:
    done = streamkit("lag", upper, option, value)
    assert (done.code, done.err.splitlines()[-1]) == (2, f"Error: Invalid value for '{option}': {reason}")
