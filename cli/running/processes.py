"""`streamkit run --processes N`: the command lines of the instances, under one supervisor."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamkit.plan.model import Plan


def run_instances(plan: Plan, count: int, settings: list[str] | None) -> int:
    """Run `count` instances of a valid topology until they end; return the exit code.

    They get the settings of `--set` in their environment: all users of a machine can read command lines, and settings may be secrets.
    """
    from streamkit.runtime.local.instance.supervisor import Supervisor
    from streamkit_cli.loading import SETTINGS, overrides
    from streamkit_cli.running.serving import shifted
    from streamkit_cli.running.stop_signals import restarting, stopping

    arguments = without(without(sys.argv[1:], "--processes"), "--set")
    numbers = range(1, count + 1)
    commands = [[sys.executable, "-m", "streamkit_cli", *shifted(arguments, number)] for number in numbers]
    shared = overrides(settings)
    environments = [{SETTINGS: json.dumps({**shared, **own_settings(plan, number)})} for number in numbers]
    with stopping() as stop, restarting() as restart:
        return Supervisor(commands, sys.stdout.buffer, sys.stderr.buffer, environments).run(stop, restart)


def own_settings(plan: Plan, number: int) -> dict[str, str]:
    """Return the settings of one instance: above all its state directory.

    The first instance has `state.dir` itself, so that a change from and to one process keeps its state; the others
    have `instance-N` in it. All share the embedded log of the first.
    """
    config = plan.config
    state = Path(config["state.dir"])
    pairs = {}
    if number > 1:
        pairs["state.dir"] = str(state / f"instance-{number}")
        if config.embedded and list(config["bootstrap.servers"]) == ["embedded"]:
            pairs["bootstrap.servers"] = f"embedded:{state / 'embedded'}"
        static = config.get("group.instance.id")
        if static:
            pairs["group.instance.id"] = f"{static}-{number}"
    return pairs


def without(arguments: Sequence[str], option: str) -> list[str]:
    """Return a command line without an option and its values.

    >>> without(["run", "a.yaml", "--processes", "3", "--processes=2", "--until-idle"], "--processes")
    ['run', 'a.yaml', '--until-idle']
    """
    left, skip = [], False
    for argument in arguments:
        if not skip and argument != option and not argument.startswith(f"{option}="):
            left.append(argument)
        skip = not skip and argument == option
    return left
