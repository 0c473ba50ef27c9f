"""Commands for authors of topologies: new, validate --strict, config, topics, completion, and stdin."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from streamkit.spec.language_reference import examples_of_rules
from streamkit_cli.commands.new import TEMPLATES, Template
from tests.cli.support import UPPER, assert_one_clear_line, command, streamkit


@pytest.fixture
def upper(tmp_path: Path) -> Path:
    path = tmp_path / "upper.yaml"
    path.write_text(UPPER.format(state=tmp_path / "state"))
    return path


# -- new ------------------------------------------------------------------------------------------------------------


def test_every_template_is_offered() -> None:
    assert {each.value for each in Template} == {path.name for path in TEMPLATES.iterdir()}


def test_every_template_is_valid_tested_and_clean(tmp_path: Path) -> None:
    for each in Template:
        done = streamkit("new", f"my-{each.value}", "--template", each.value, cwd=tmp_path)
        assert (done.code, done.err) == (0, "")
    files = sorted(tmp_path.glob("*/topology.yaml"))
    strict = streamkit("validate", "--strict", *files)
    assert (strict.code, strict.out, strict.err) == (0, "", "")
    tested = streamkit("test", tmp_path)
    assert (tested.code, tested.err) == (0, "")
    first = files[0].read_text().splitlines()
    schema = first[0].removeprefix("# yaml-language-server: $schema=file://")
    assert json.loads(Path(schema).read_text())["type"] == "object"
    assert not list(tmp_path.glob("*/*.json"))
    assert first[2] == f"application: {files[0].parent.name}"


def test_new_in_the_present_folder(tmp_path: Path) -> None:
    here = tmp_path / "orders"
    here.mkdir()
    (here / ".gitignore").write_text("mine\n")
    done = streamkit("new", ".", cwd=here)
    assert (done.code, done.err) == (0, "")
    assert "cd " not in done.out
    assert "application: orders" in (here / "topology.yaml").read_text()
    assert (here / ".gitignore").read_text() == "mine\n"
    assert streamkit("test", cwd=here).code == 0
    assert_one_clear_line(streamkit("new", ".", cwd=here), 2, "already exists")
    assert_one_clear_line(streamkit("new", ".", cwd=Path("/")), 2, "has no name")
    assert_one_clear_line(streamkit("new", "", cwd=here), 2, "NAME is empty")


def test_new_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert_one_clear_line(streamkit("new", "mine", cwd=tmp_path), 2, "mine", "already exists")
    assert_one_clear_line(streamkit("new", "a b", cwd=tmp_path), 2, "a b")


# -- validate --strict ----------------------------------------------------------------------------------------------


def test_plain_validate_reports_what_is_certainly_a_mistake(upper: Path) -> None:
    upper.write_text(examples_of_rules()["window-size"]["bad"])
    done = streamkit("validate", upper)
    assert (done.code, "size: 60000ms; records hold" in done.err + done.out) == (1, True)
    upper.write_text(examples_of_rules()["debug-print"]["bad"])
    assert streamkit("validate", upper).code == 0


def test_strict_reports_rules_and_plain_validate_does_not(upper: Path) -> None:
    upper.write_text(upper.read_text().replace("    to: loud\n", ""))
    assert streamkit("validate", upper).code == 0
    done = streamkit("validate", "--strict", upper)
    assert done.code == 1
    assert [line.rsplit(" ", 1)[-1] for line in done.out.splitlines()] == ["[unused-topic]", "[unused-pipeline]"]
    assert done.out.startswith(f"{upper}:6:3: ")
    less = streamkit("validate", "--strict", "--ignore", "unused-topic", "--ignore", "unused-pipeline", upper)
    assert (less.code, less.out) == (0, "")
    assert_one_clear_line(streamkit("validate", "--ignore", "nonsense", upper), 2, "nonsense", "unused-topic")
    assert_one_clear_line(streamkit("validate", "--ignore", "no-grce", upper), 2, "did you mean 'no-grace'?")


def test_problems_as_json_and_as_annotations(upper: Path) -> None:
    upper.write_text(upper.read_text().replace("stream: words", "stream: wodrs"))
    (problem,) = json.loads(streamkit("validate", "--format", "json", upper).out)
    assert (problem["file"], problem["line"], problem["severity"], problem["code"]) == (
        str(upper),
        9,
        "error",
        "invalid",
    )
    github = streamkit("validate", "--format", "github", upper).out
    assert github.startswith(f"::error file={upper},line=9,col=")
    assert "wodrs" in github
    assert streamkit("validate", "--format", "json", upper.parent / "none.yaml").code == 2


def test_the_topology_comes_from_stdin(upper: Path) -> None:
    text = upper.read_text()
    assert streamkit("validate", "-", stdin=text).code == 0
    wrong = streamkit("validate", "-", stdin=text.replace("stream: words", "stream: wodrs"))
    assert (wrong.code, wrong.out.split(":")[0]) == (1, "stdin")
    assert streamkit("describe", "-", stdin=text).out == streamkit("describe", upper).out
    records = upper.parent / "records.jsonl"
    records.write_text('{"topic": "words-in", "key": "k", "value": "a"}\n')
    assert '"A"' in streamkit("try", "-", "--input", records, stdin=text).out
    assert_one_clear_line(streamkit("try", "-", "--input", "-", stdin=text), 2, "stdin")
    assert_one_clear_line(streamkit("produce", "-", "words", stdin=text), 2, "stdin")
    assert streamkit("validate", "-", stdin=b"\xff\xfe\x00").code == 1


# -- config ---------------------------------------------------------------------------------------------------------


def test_every_setting_has_a_default_and_a_meaning() -> None:
    rows = json.loads(streamkit("config", "--format", "json").out)
    threads = next(row for row in rows if row["name"] == "num.stream.threads")
    assert threads == {
        "name": "num.stream.threads",
        "type": "int",
        "default": "1",
        "meaning": "Threads that process records.",
        "variable": "STREAMKIT_NUM_STREAM_THREADS",
    }
    assert len(rows) > 30
    assert [row for row in rows if not row["meaning"]] == []
    assert "num.stream.threads" in streamkit("config").out


def test_each_value_is_shown_with_its_origin(upper: Path, tmp_path: Path) -> None:
    env_file = tmp_path / "prod.env"
    env_file.write_text("STREAMKIT_POLL_MS=7\nSTREAMKIT_NUM_STREAM_THREADS=2\nSTREAMKIT_COMMIT_INTERVAL_MS=1\n")
    done = streamkit(
        "config", upper, "--format", "json", "--env-file", env_file, "--set", "commit.interval.ms=9",
        STREAMKIT_NUM_STREAM_THREADS="3",
    )  # fmt: skip
    found = {row["name"]: (row["value"], row["origin"]) for row in json.loads(done.out)}
    assert found["commit.interval.ms"] == ("9", "--set")
    assert found["num.stream.threads"] == ("3", "STREAMKIT_NUM_STREAM_THREADS")
    assert found["poll.ms"] == ("7", f"{env_file}: STREAMKIT_POLL_MS")
    assert found["bootstrap.servers"] == ("embedded", f"{upper}:3")
    assert found["max.task.idle.ms"] == ("0", "default")
    changed = streamkit("config", upper, "--changed").out.splitlines()
    assert [line.split()[0] for line in changed[1:]] == ["bootstrap.servers", "commit.interval.ms", "state.dir"]
    assert_one_clear_line(streamkit("config", upper, "--set", "num.threads=1"), 2, "--set: There is no setting")
    assert_one_clear_line(streamkit("config", "--set", "num.stream.threads=1"), 2, "--set needs a FILE")


def test_a_variable_that_is_no_setting_is_named(upper: Path) -> None:
    done = streamkit("config", upper, STREAMKIT_NUM_STREAM_THREAD="3")
    assert done.code == 0
    assert "STREAMKIT_NUM_STREAM_THREAD is no setting" in done.err
    assert "STREAMKIT_LOG_LEVEL" not in done.err


# -- topics ---------------------------------------------------------------------------------------------------------


def test_topics_are_listed_and_created(upper: Path) -> None:
    before = json.loads(streamkit("topics", "list", upper, "--format", "json").out)
    assert {row["topic"]: (row["kind"], row["partitions"], row["declared"]) for row in before} == {
        "words-in": ("input", None, 2),
        "words-out": ("output", None, 2),
    }
    created = streamkit("topics", "create", upper)
    assert created.code == 0
    assert [line.split() for line in created.out.splitlines()[1:]] == [
        ["words-in", "input", "2", "2"],
        ["words-out", "output", "2", "2"],
    ]
    assert streamkit("topics", "create", upper).out == created.out
    text = upper.read_text().replace("topics:", "topics:\n  failed: {topic: words-dead, partitions: 1}")
    upper.write_text(text.replace("config: {", "config: {errors.dead.letter.queue.topic.name: words-dead, "))
    shown = streamkit("topics", "list", upper).out.splitlines()
    assert [line.split("  ")[1] for line in shown if line.startswith("words-dead")] == ["dead letters"]


# -- completion -----------------------------------------------------------------------------------------------------


def completed(line: str) -> list[str]:
    words = line.split(" ")
    asked = {"_STREAMKIT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(command(), capture_output=True, text=True, env={**os.environ, **asked}, check=False)
    return done.stdout.split()


def test_commands_options_and_choices_are_completed() -> None:
    assert completed("streamkit val") == ["validate"]
    assert "--to-earliest" in completed("streamkit reset-offsets --to-e")
    assert completed("streamkit describe --format mer") == ["mermaid"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    done = streamkit("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert "_STREAMKIT_COMPLETE" in done.out


def test_a_bash_that_sources_the_script_completes() -> None:
    script = streamkit("completion", "bash").out
    call = (
        f'{script}\nCOMP_WORDS=(streamkit val); COMP_CWORD=1; _streamkit_completion streamkit; echo "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(["bash", "-c", call], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["validate"]


def test_a_mistyped_set_does_not_repeat_its_value(upper: Path) -> None:
    assert_one_clear_line(done := streamkit("describe", upper, "--set", "sasl.password:hunter2"), 2, "sasl.password")
    assert "hunter2" not in done.err
