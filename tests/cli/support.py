"""Runs the real command in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

STREAMKIT = [sys.executable, "-m", "streamkit_cli"]
# Far beyond what anything here takes: a command that hangs must fail its test and not the whole run.
LIMIT_S = 120

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
    """Run streamkit to its end."""
    done = subprocess.run(
        command(*arguments),
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        check=False,
        cwd=cwd,
        env={**os.environ, **variables},
        timeout=LIMIT_S,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def assert_one_clear_line(done: Done, code: int, *words: object) -> None:
    """Assert that the command failed with a documented code and one line on stderr that has these words."""
    assert done.code == code, done
    assert "Traceback" not in done.err
    assert len(done.err.strip().splitlines()) == 1, done.err
    for word in words:
        assert str(word) in done.err
