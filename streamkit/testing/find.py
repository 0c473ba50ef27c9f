"""Finds test files, and builds their plans."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from streamkit.errors import UsageError
from streamkit.plan import load as load_plan
from streamkit.plan.model import Plan
from streamkit.serdes.plain import Json
from streamkit.testing.case_file import SUFFIXES

PASSED_OVER = ("node_modules", "__pycache__")


def find(paths: Iterable[str]) -> list[Path]:
    """Return the test files of paths: files as they are, those beside a topology, all below a folder; each once.

    Hidden folders are passed over. Raises UsageError for a path without any.
    """
    found: dict[Path, None] = {}
    for name in paths:
        path = Path(name)
        if path.is_dir():
            below = sorted(_below(path))
            if not below:
                raise UsageError(f"{path}: no tests below it; their names end in {SUFFIXES[0]}")
        elif not path.exists():
            raise UsageError(f"{path}: no such file or folder")
        elif path.name.endswith(SUFFIXES):
            below = [path]
        else:
            below = [path.with_name(path.stem + suffix) for suffix in SUFFIXES]
            below = [candidate for candidate in below if candidate.is_file()]
            if not below:
                raise UsageError(f"{path} has no tests: there is no {path.stem}{SUFFIXES[0]} beside it")
        found.update(dict.fromkeys(below))
    return list(found)


def _below(folder: Path) -> Iterable[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in PASSED_OVER]
        yield from (Path(root, name) for name in files if name.endswith(SUFFIXES))


class Plans:
    """The plans of topologies, each built once for the same settings.

    variables: for `${NAME}`, below those of a test file; overrides: settings that override those of the tests.
    """

    def __init__(self, variables: Mapping[str, str], overrides: Mapping[str, Json]):
        self._variables = variables
        self._overrides = overrides
        self._built: dict[tuple[Path, tuple[tuple[str, str], ...], str], Plan] = {}

    def __call__(self, topology: Path, environment: Mapping[str, str], settings: Mapping[str, Json]) -> Plan:
        """Return the plan of a topology. Raises TopologyError, UsageError, ConfigError."""
        wanted = {**settings, **self._overrides}
        key = (topology, tuple(sorted(environment.items())), repr(sorted(wanted.items(), key=lambda item: item[0])))
        if key not in self._built:
            plan = self._built[key] = load_plan(topology, {**self._variables, **environment}, wanted)
            if plan.registry is not None:
                # Before the records of a test are checked: that encodes them.
                plan.registry.start_dry_run()
        return self._built[key]
