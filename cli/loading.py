"""Topologies from files, with what the command line and the environment say.

Without typer, which takes as long to import as validating a file takes.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from streamkit.errors import UsageError

if TYPE_CHECKING:
    from streamkit.plan.model import Plan
    from streamkit.spec.model import TopologyModel


STDIN = "-"
"""What stands for a topology that is read from the standard input."""


def load_plan(file: str, settings: list[str] | None, env_file: str | None) -> Plan:
    """Return the plan of a topology file. Raises UsageError for no such file, TopologyError for its problems."""
    from streamkit.plan import build

    variables = environment(env_file)
    return build(load_model(file, variables), overrides(settings), variables)


def load_model(file: str, variables: Mapping[str, str]) -> TopologyModel:
    """Return what a topology file says, `-` being the standard input. Raises UsageError, TopologyError."""
    from streamkit import spec

    if file == STDIN:
        text = sys.stdin.buffer.read()
        return spec.load_text(spec.decode(text, "stdin"), "stdin", environment=variables)
    require_file(file)
    return spec.load(file, environment=variables)


def refuse_stdin(file: str) -> None:
    """Raise UsageError where the topology would come from the standard input, which holds the command's records."""
    if file == STDIN:
        raise UsageError("the topology can't come from stdin, where the records come from")


def require_file(file: str) -> None:
    """Raise UsageError unless the file exists and is one that can be read at all."""
    if not os.path.exists(file):
        raise UsageError(f"{file}: no such file")
    if os.path.isdir(file):
        raise UsageError(f"{file}: is a directory, not a topology file")


def overrides(settings: list[str] | None) -> dict[str, str]:
    """Return the pairs of `--set`. Raises UsageError.

    >>> overrides(["a.b=c=d"])
    {'a.b': 'c=d'}
    """
    found = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            # What follows the name may be a secret.
            begin = re.match(r"[\w.-]*", setting)
            raise UsageError(f"--set {begin[0] if begin else ''}: expected KEY=VALUE")
        found[name.strip()] = value
    return found


def environment(env_file: str | None) -> Mapping[str, str]:
    """Return the variables that a topology may use: those of the process, over those of the file."""
    if env_file is None:
        return os.environ
    from streamkit.config import read_env_file

    return {**read_env_file(env_file), **os.environ}
