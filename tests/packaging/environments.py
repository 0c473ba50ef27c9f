"""Commands that run outside of the environment of the tests, and what is no source of the project."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = (
    ".venv",
    "build",
    "dist",
    "__pycache__",
    "*.egg-info",
    "*.so",
    "failures",
    ".*_cache",
    ".hypothesis",
    ".git",
)


def run(*command: str | Path, cwd: Path | None = None) -> str:
    # What this process was started with must not reach into the environment under test.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "STREAMKIT_"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout
