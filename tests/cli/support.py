"""Runs the real command in a process of its own: with `streamkit` to its end, with the line of `command` in any way."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.cli import forking

STREAMKIT = [sys.executable, "-m", "streamkit_cli"]
# Far beyond what anything here takes: a command that hangs must fail its test and not the whole run.
LIMIT_S = 300

UPPER = """\
streamkit: 1
application: upper
config: {{bootstrap.servers: embedded, state.dir: {state}, commit.interval.ms: 100}}
topics:
  words: {{topic: words-in, key: string, value: string, partitions: 2}}
  loud: {{topic: words-out, key: string, value: string, partitions: 2}}
pipelines:
  shout:
    stream: words
    steps:
      - map_values: {{value: value.upper(), value_serde: string}}
    to: loud
"""


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str


def command(*arguments: object) -> list[str]:
    """Return the command line of streamkit with these arguments."""
    return [*STREAMKIT, *map(str, arguments)]


def streamkit(*arguments: object, stdin: bytes | str = b"", cwd: Path | None = None, **variables: str) -> Done:
    """Run streamkit to its end, as a fork of a process that has imported it."""
    content = stdin.encode() if isinstance(stdin, str) else stdin
    code, out, err = forking.run([*map(str, arguments)], content, cwd, {**os.environ, **variables}, LIMIT_S)
    return Done(code, out.decode(), err.decode())


def assert_one_clear_line(done: Done, code: int, *words: object) -> None:
    """Assert that the command failed with a documented code and one line on stderr that has these words."""
    assert done.code == code, done
    assert "Traceback" not in done.err
    assert len(done.err.strip().splitlines()) == 1, done.err
    for word in words:
        assert str(word) in done.err
