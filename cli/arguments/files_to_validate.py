"""The files that `streamkit validate` checks: files as they are, patterns, and all topologies and tests below a folder."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator

from streamkit.errors import UsageError

_ENDINGS = (".yaml", ".yml")
_TESTS = (".test.yaml", ".test.yml")
_PASSED_OVER = ("node_modules", "__pycache__")
_TOPOLOGY = re.compile(rb"""^\s*\{?\s*["']?streamkit["']?\s*:""", re.MULTILINE)
"""In a file of a folder: other programs keep YAML files in the same folders."""


def is_test_file(file: str) -> bool:
    """Return whether a file has tests rather than a topology."""
    return file.endswith(_TESTS)


def files_of(path: str) -> list[str]:
    """Return the files of an argument. Raises UsageError where a folder or a pattern has none.

    Of a folder these are the YAML files below it that have the key `streamkit`, and test files; hidden folders are
    passed over.
    """
    if os.path.isdir(path):
        found = sorted(_below(path))
        if not found:
            raise UsageError(f"{path}: no topology below it; it has the key 'streamkit', in a file *.yaml or *.yml")
        return found
    if glob.has_magic(path) and not os.path.exists(path):
        found = sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))
        if not found:
            raise UsageError(f"{path}: no file matches")
        return found
    return [path]


def _below(folder: str) -> Iterator[str]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _PASSED_OVER]
        for name in files:
            # Without ./, as the tests of a topology name it: its mistakes are shown once.
            path = os.path.normpath(os.path.join(root, name))
            if name.endswith(_TESTS) or (name.endswith(_ENDINGS) and _is_topology(path)):
                yield path


def _is_topology(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return _TOPOLOGY.search(file.read()) is not None
    except OSError:
        return True  # its validation reports the reason
