"""Makes a failing case smaller: whatever can go while it still fails is dropped."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

from tests.fuzz.generate import Case


def shrink(case: Case, fails: Callable[[Case], bool], attempts: int = 250) -> Case:
    """Return a smaller case that still fails; `fails` is asked at most `attempts` times."""
    left = [attempts]

    def accept(candidate: Case) -> bool:
        left[0] -= 1
        return left[0] >= 0 and fails(candidate)

    changed = True
    while changed and left[0] > 0:
        changed = False
        for step in (smaller_topologies, smaller_inputs):
            case, smaller = greedy(case, step, accept)
            changed = changed or smaller
    return without_unused_topics(case, accept)


def greedy(case: Case, candidates, accept) -> tuple[Case, bool]:
    """Take the first candidate that still fails, again and again."""
    smaller = False
    while True:
        found = next((each for each in candidates(case) if accept(each)), None)
        if found is None:
            return case, smaller
        case, smaller = found, True


def smaller_inputs(case: Case) -> Iterator[Case]:
    size = len(case.input)
    chunk = size // 2 or 1
    while chunk:
        for start in range(0, size, chunk):
            yield Case(case.topology, case.input[:start] + case.input[start + chunk :])
        chunk //= 2


def smaller_topologies(case: Case) -> Iterator[Case]:
    """Without a pipeline, a step, an option, an ending or a setting."""
    for name in case.topology["pipelines"]:
        yield edited(case, lambda topology, name=name: topology["pipelines"].pop(name))
    for name in case.topology.get("config", {}):
        yield edited(case, lambda topology, name=name: topology["config"].pop(name))
    for name, body in case.topology["pipelines"].items():
        for key in ("to", "name", "store"):
            if key in body:
                yield edited(case, lambda topology, name=name, key=key: topology["pipelines"][name].pop(key))
        for path in step_paths(body.get("steps", []), ("pipelines", name, "steps")):
            yield edited(case, lambda topology, path=path: at(topology, path[:-1]).pop(path[-1]))


def step_paths(steps: list, path: tuple) -> Iterator[tuple]:
    """The paths of steps and of those of their options that can go, branches' steps included."""
    for index, step in reversed(list(enumerate(steps))):
        yield (*path, index)
        for kind, options in step.items() if isinstance(step, dict) else ():
            if not isinstance(options, dict):
                continue
            for option in (
                "name",
                "store",
                "grace",
                "emit",
                "default",
                "max_records",
                "max_bytes",
                "when_full",
                "partitions",
            ):
                if option in options:
                    yield (*path, index, kind, option)
            for branch, body in options.get("when", {}).items():
                yield (*path, index, kind, "when", branch)
                if isinstance(body, dict):
                    if "to" in body:
                        yield (*path, index, kind, "when", branch, "to")
                    yield from step_paths(body.get("steps", []), (*path, index, kind, "when", branch, "steps"))


def at(node, path: tuple):
    for part in path:
        node = node[part]
    return node


def edited(case: Case, edit: Callable[[dict], object]) -> Case:
    topology = copy.deepcopy(case.topology)
    edit(topology)
    return Case(topology, case.input)


def without_unused_topics(case: Case, accept) -> Case:
    """Without the topics that no text of the pipelines names; all at once, or not at all."""
    text = repr(case.topology["pipelines"])
    topics = {
        name: entry for name, entry in case.topology["topics"].items() if f"'{name}'" in text or f'"{name}"' in text
    }
    read = {entry.get("topic", name) for name, entry in topics.items()}
    lines = [line for line in case.input if "topic" not in line or line["topic"] in read]
    candidate = Case({**case.topology, "topics": topics}, lines)
    return candidate if accept(candidate) else case
