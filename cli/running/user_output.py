"""Where the user's Python code writes: stdout is for what a command prints, so `print` and the log of a processor go to stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TextIO

USER_LOG = "streamkit.user"


@contextmanager
def user_output() -> Iterator[TextIO]:
    """Redirect what user code prints to stderr while the block runs; yield the command's own stdout."""
    stdout = sys.stdout
    with redirect_stdout(sys.stderr):
        yield stdout


@contextmanager
def user_log() -> Iterator[None]:
    """Write lines of `context.log` from level info to stderr, for commands that have no log of their own."""
    log, handler = logging.getLogger(USER_LOG), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    level, propagates = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagates
