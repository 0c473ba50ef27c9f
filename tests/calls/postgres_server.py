"""A PostgreSQL server of its own for a test, on a socket in a folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.requirements import postgres

USER = "postgres"


@contextmanager
def postgres_server() -> Iterator[str]:
    """Start a server; yield the folder of its socket."""
    commands = postgres()
    # PostgreSQL refuses to run as root; the path of a socket is short.
    as_user = ["runuser", "-u", USER, "--"] if os.geteuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="streamkit-pg-"))
    if as_user:
        shutil.chown(folder, USER)
    data = str(folder / "data")

    def call(command: str, *arguments: str) -> None:
        done = subprocess.run(
            [*as_user, str(commands / command), *arguments], capture_output=True, text=True, check=False, cwd=folder
        )
        assert done.returncode == 0, done.stdout + done.stderr

    try:
        call("initdb", "-D", data, "-U", USER, "-A", "trust", "--no-sync")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        call("pg_ctl", "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield str(folder)
        finally:
            call("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
