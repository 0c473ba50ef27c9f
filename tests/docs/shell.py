"""A shell in which the commands of a page run one after the other, as in a reader's terminal."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cli.support import LIMIT_S
from tests.ports import free_ports

_END = "\x1e"


class Shell:
    """One bash in a folder; output and errors come together, as on a terminal. own_commands: streamkit is found."""

    def __init__(self, folder: Path, own_commands: bool = True):
        (port,) = free_ports(1)
        self.http = f"127.0.0.1:{port}"
        """An address that the page's commands may serve at."""
        environment = {key: value for key, value in os.environ.items() if key not in ("KAFKA", "STATE_DIR")}
        environment |= {"NO_COLOR": "1", "COLUMNS": "160"}
        if own_commands:
            environment |= {"PATH": f"{Path(sys.executable).parent}:{environment['PATH']}", "HOME": str(folder)}
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )

    def run(self, command: str, seconds: float = 3 * LIMIT_S) -> tuple[int, list[str]]:
        """Return a command's exit code and the lines that it wrote; fails where it takes far too long."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{{ {command}\n}} </dev/null; printf '{_END}%s\\n' $?\n".encode())
        self._process.stdin.flush()
        out = self._read_to_end(command, seconds)
        text, _, code = out.partition(_END)
        return int(code), text.splitlines()

    def _read_to_end(self, command: str, seconds: float) -> str:
        assert self._process.stdout is not None
        out, deadline = b"", time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not (_END.encode() in out and out.endswith(b"\n")):
                left = deadline - time.monotonic()
                assert left > 0, f"takes too long: {command}\n{out.decode(errors='replace')}"
                if selector.select(left):
                    chunk = os.read(self._process.stdout.fileno(), 65536)
                    assert chunk, f"the shell ended: {command}\n{out.decode(errors='replace')}"
                    out += chunk
        return out.decode()

    def close(self) -> None:
        """End the shell and whatever it has left running."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
