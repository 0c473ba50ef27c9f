"""`streamkit run --processes N`: the command lines of the instances, under one supervisor."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamkit.plan.model import Plan


def run_instances(plan: Plan, count: int) -> int:
    """Run `count` instances of a valid topology until they end; return the exit code."""
    from streamkit.runtime.local.instance.supervisor import Supervisor
    from streamkit_cli.running.serving import shifted
    from streamkit_cli.running.stop_signals import restarting, stopping

    arguments = without_processes(sys.argv[1:])
    commands = [
        [
            sys.executable,
            "-m",
            "streamkit_cli",
            *shifted(arguments, number),
            *(part for pair in own_settings(plan, number) for part in ("--set", pair)),
        ]
        for number in range(1, count + 1)
    ]
    with stopping() as stop, restarting() as restart:
        return Supervisor(commands, sys.stdout.buffer, sys.stderr.buffer).run(stop, restart)


def own_settings(plan: Plan, number: int) -> list[str]:
    """Return the settings of one instance, as pairs of `--set`: above all its state directory.

    The first instance has `state.dir` itself, so that a change from and to one process keeps its state; the others
    have `instance-N` in it. All share the embedded log of the first.
    """
    config = plan.config
    state = Path(config["state.dir"])
    pairs = []
    if number > 1:
        pairs.append(f"state.dir={state / f'instance-{number}'}")
        if config.embedded and list(config["bootstrap.servers"]) == ["embedded"]:
            pairs.append(f"bootstrap.servers=embedded:{state / 'embedded'}")
        static = config.get("group.instance.id")
        if static:
            pairs.append(f"group.instance.id={static}-{number}")
    return pairs


def without_processes(arguments: Sequence[str]) -> list[str]:
    """Return a command line without its `--processes`.

    >>> without_processes(["run", "a.yaml", "--processes", "3", "--processes=2", "--until-idle"])
    ['run', 'a.yaml', '--until-idle']
    """
    left, skip = [], False
    for argument in arguments:
        if not skip and argument != "--processes" and not argument.startswith("--processes="):
            left.append(argument)
        skip = argument == "--processes"
    return left
