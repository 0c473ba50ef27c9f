"""The extension of VS Code: types, build, and its own tests with a real language server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.requirements import require

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "editors" / "vscode"


def test_the_extension_builds_and_passes_its_tests() -> None:
    require("npm")
    _run("npm", "ci")
    _run("npm", "run", "build")
    _run("npm", "test")


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((FOLDER / "package-lock.json").read_text(encoding="utf-8"))
    assert [name for name, each in lock["packages"].items() if "resolved" in each] == []


def _run(*command: str) -> None:
    environment = {
        **os.environ,
        "STREAMKIT": shutil.which("streamkit", path=str(Path(sys.executable).parent)) or "streamkit",
    }
    done = subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
