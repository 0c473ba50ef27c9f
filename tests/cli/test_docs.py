"""`streamkit docs`: pages of the reference in the terminal."""

from __future__ import annotations

import os
import pty
import subprocess

import pytest

from streamkit_cli.reference import pages
from tests.cli.support import assert_one_clear_line, command, streamkit


@pytest.mark.parametrize(
    ("word", "first", "inside"),
    [
        ("group_by", "## `group_by`", "| `key_serde` |"),
        ("strptime", "## `strptime(text, format[, zone[, default]])`", "is `1738281600000`"),
        ("commit.interval.ms", "## `commit.interval.ms`", "STREAMKIT_COMMIT_INTERVAL_MS"),
        ("validate", "## `validate`", "Usage: streamkit validate"),
        ("short-grace", "## `short-grace`", "Instead of"),
        ("macros", "## `macros`", "| `expression` |"),
        ("COUNT", "## `count`", "- count: counts"),
    ],
)
def test_a_page_is_markdown_in_a_pipe(word: str, first: str, inside: str) -> None:
    done = streamkit("docs", word)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{first}\n")
    assert inside in done.out
    assert "](" not in done.out


def test_every_page_has_a_text_and_is_in_the_list() -> None:
    out = streamkit("docs").out
    for page in pages():
        assert f"\n{page.name} " in out
        if page.kind != "command":  # their texts are in docs/commands.md
            assert page.text().startswith(f"## `{page.name}")


def test_an_unknown_word_names_what_is_near_or_contains_it() -> None:
    assert_one_clear_line(streamkit("docs", "fliter"), 2, "there is no page 'fliter'; did you mean 'filter'?")
    assert_one_clear_line(streamkit("docs", "commit"), 2, "in these the word occurs: commit.interval.ms")
    assert_one_clear_line(streamkit("docs", "grace"), 2, "short-grace, no-grace, window, join, left_join, outer_join")
    assert_one_clear_line(streamkit("docs", "--", "--files"), 2, "in these the word occurs: submit")
    assert_one_clear_line(streamkit("docs", "zzz"), 2, "`streamkit docs` lists them")


def test_a_terminal_gets_a_page_that_is_laid_out() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(command("docs", "peek"), stdout=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:
            pass  # how a pseudo-terminal ends
        os.close(ours)
    assert process.returncode == 0
    assert b"\x1b[" in shown
    assert b"##" not in shown
    assert b"|---|" not in shown
