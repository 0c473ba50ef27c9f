"""`streamkit run --processes N`: the command lines of the instances, under one supervisor."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamkit.plan.model import Plan


def run_instances(plan: Plan, count: int) -> int:
    """Run so many instances of a topology that has been checked, until they end; return the exit code."""
    from streamkit.runtime.local.supervisor import Supervisor

    from .serving import shifted
    from .stop_signals import hang_up, stopping

    arguments = without_processes(sys.argv[1:])
    commands = [
        [
            sys.executable,
            "-m",
            __package__,
            *shifted(arguments, number),
            *(part for pair in own(plan, number) for part in ("--set", pair)),
        ]
        for number in range(1, count + 1)
    ]
    with stopping() as stop, hang_up() as renew:
        return Supervisor(commands, sys.stdout.buffer, sys.stderr.buffer).run(stop, renew)


def own(plan: Plan, number: int) -> list[str]:
    """Return what differs between instances, as pairs of `--set`: the state directory above all.

    The first instance has `state.dir` itself, so that the state survives a change from and to one process; the others
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
