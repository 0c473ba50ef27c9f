"""Folders that a clone has beside `cli`, and that the package has where streamkit is installed from a wheel."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent


def _packaged(package: str, in_clone: str) -> Path:
    installed = _HERE / package
    return installed if installed.is_dir() else _HERE.parents[1] / in_clone


EXAMPLES = _packaged("examples", "topologies")
"""The folder of examples: one folder each."""
SCHEMA = _packaged("schemas", "schemas") / "topology.schema.json"
"""The JSON Schema of topology files."""
