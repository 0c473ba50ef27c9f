"""Renames the directories of tasks whose sub-topology has another number, so that their state is not restored."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from streamkit.plan.model import Plan
from streamkit.record import TaskId
from streamkit.state.engines.open_maps import ENGINES
from streamkit.state.files.directory import stored
from streamkit.state.files.mark import translated

_MOVING = ".moving-"
"""The prefix of the name of a directory between its old and its new name: two directories may change places."""


def find_moves(plan: Plan, directory: Path) -> dict[str, str]:
    """Return the new names of task directories by their present ones. Raises StateError.

    The stores in a directory decide, so that a repeated migration moves nothing twice. A directory stays where it is if its
    stores are none of the plan's, and if its new name is taken by one that stays.
    """
    homes = {store: sub.id for sub in plan.sub_topologies if not sub.is_global for store in sub.stores}
    with translated(directory):
        names = [name for name in stored(directory) if name[0].isdigit() and any((directory / name).iterdir())]
    moves = {}
    for name in names:
        task = TaskId.parse(name)
        ids = {homes[store] for store in _stores(directory / name) if store in homes}
        if len(ids) == 1 and task.sub_topology not in ids:
            moves[name] = str(TaskId(ids.pop(), task.partition))
    with translated(directory):
        left = {path.name: path.name.removeprefix(_MOVING) for path in directory.glob(f"{_MOVING}*")}
    return _free({**left, **moves}, set(names))


def move(directory: Path, moves: Mapping[str, str]) -> None:
    """Rename directories. It may be repeated after a crash. Raises StateError."""
    with translated(directory):
        for name, target in moves.items():
            if not name.startswith(_MOVING):
                between = directory / f"{_MOVING}{target}"
                if between.exists():
                    shutil.rmtree(between)  # the old version has restored the task since it was left there
                (directory / name).rename(between)
        for target in dict.fromkeys(moves.values()):
            if (directory / target).exists():
                (directory / target).rmdir()  # an empty one, by `find_moves`
            (directory / f"{_MOVING}{target}").rename(directory / target)


def _free(moves: dict[str, str], names: set[str]) -> dict[str, str]:
    """Return the moves whose target is free, or becomes free by another move."""
    while blocked := [name for name, target in moves.items() if target in names and target not in moves]:
        for name in blocked:
            del moves[name]
    return moves


def _stores(task: Path) -> set[str]:
    with translated(task):
        return {path.name for engine in ENGINES for path in (task / engine).glob("*") if path.is_dir()}
