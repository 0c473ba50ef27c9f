"""The command `migrate`: exit codes, formats and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.support import Done, assert_one_clear_line, streamkit

OLD = """\
streamkit: 1
application: words
config: {bootstrap.servers: embedded, state.dir: state}
topics: {lines: {value: string, partitions: 1}, counts: {value: long, partitions: 1}}
pipelines:
  words:
    stream: lines
    steps: [{group_by: {key: value, name: by-word}}, {count: words}, to_stream]
    to: counts
"""
NEW = OLD.replace("count: words", "count: totals")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two versions, of which the old one has counted a word."""
    (tmp_path / "old.yaml").write_text(OLD, encoding="utf-8")
    (tmp_path / "new.yaml").write_text(NEW, encoding="utf-8")
    assert streamkit("produce", "old.yaml", "lines", "--lines", cwd=tmp_path, stdin="tea\n").code == 0
    assert streamkit("run", "old.yaml", "--until-idle", cwd=tmp_path).code == 0
    return tmp_path


def migrate(folder: Path, *arguments: object) -> Done:
    return streamkit("migrate", *arguments, cwd=folder)


def test_steps_are_listed_taken_and_then_done(folder: Path) -> None:
    text = "copy words-words-changelog to words-totals-changelog"
    done = migrate(folder, "old.yaml", "new.yaml")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"words: nothing is changed without --execute\n  1. to do: {text} (1)\n"
    for _ in range(2):
        done = migrate(folder, "old.yaml", "new.yaml", "--execute")
        assert (done.code, done.err, done.out) == (0, "", f"words: all steps are done\n  1. done: {text}\n")
    done = migrate(folder, "new.yaml", "new.yaml", "--execute")
    assert done.out == "words: nothing is left to do\n"


def test_json_has_each_step(folder: Path) -> None:
    document = json.loads(migrate(folder, "old.yaml", "new.yaml", "--format", "json").out)
    assert (document["application"], document["executed"], document["members"]) == ("words", False, [])
    (step,) = document["steps"]
    assert (step["kind"], step["subject"], step["count"], step["state"]) == ("copy", "totals", 1, "to do")


def test_what_is_refused_is_named_and_ends_with_1(folder: Path) -> None:
    windowed = NEW.replace("{count: totals}", "{window: {tumbling: 10s}}, {count: words}").replace(
        "to_stream", "{to_stream: {key: key.key}}"
    )
    (folder / "new.yaml").write_text(windowed, encoding="utf-8")
    done = migrate(folder, "old.yaml", "new.yaml")
    assert (done.code, done.err) == (1, "")
    assert "1. refused: copy its changelog\n     words: it held rows by key, holds windows\n" in done.out
    assert_one_clear_line(migrate(folder, "old.yaml", "new.yaml", "--execute"), 1, "copy words: it held rows by key")


def test_what_no_step_solves_is_left(folder: Path) -> None:
    in_memory = OLD.replace("count: words", "count: {store: {name: words, persistent: false}}")
    (folder / "new.yaml").write_text(in_memory, encoding="utf-8")
    done = migrate(folder, "old.yaml", "new.yaml")
    assert done.code == 0
    assert "Left to you:\n  restore: store words: it is in memory now" in done.out


def test_what_is_declined_is_not_advised(folder: Path) -> None:
    done = migrate(folder, "old.yaml", "new.yaml", "--store", "words=")
    assert done.code == 0
    assert "renamed: store totals (was words) starts empty" in done.out
    assert "write `store: words`" in done.out
    assert "streamkit migrate" not in done.out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("none.yaml", "new.yaml"), 2, "none.yaml: no such file"),
        (("-", "new.yaml"), 2, "migrate reads both versions from files"),
        (("describe.txt", "new.yaml"), 2, "describe.txt: migrate needs a topology file"),
        (("old.yaml", "new.yaml", "--store", "words"), 2, "--store words: expected OLD=NEW"),
        (("old.yaml", "new.yaml", "--store", "word=totals"), 2, "the old version has no store 'word'"),
        (("old.yaml", "elsewhere.yaml"), 2, "both versions must use the same log"),
    ],
)
def test_bad_input(folder: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    (folder / "describe.txt").write_text(streamkit("describe", "old.yaml", cwd=folder).out, encoding="utf-8")
    (folder / "elsewhere.yaml").write_text(
        NEW.replace("servers: embedded", "servers: embedded:there"), encoding="utf-8"
    )
    assert_one_clear_line(migrate(folder, *arguments), code, message)
