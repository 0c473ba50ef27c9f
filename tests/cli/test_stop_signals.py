"""Signals that come at awkward moments."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from streamkit.runtime.local.signal_handlers import set_from_handler
from streamkit_cli.main import main
from tests.cli.support import LIMIT_S

LATE = """\
import os, signal, sys
from streamkit_cli.command_process import stopping
with stopping() as asked:
    os.kill(os.getpid(), signal.SIGTERM)
    assert asked.wait(300)
os.kill(os.getpid(), signal.SIGTERM)
sys.exit(7)
"""


def test_sigterm_after_the_work_leaves_the_exit_code() -> None:
    assert subprocess.run([sys.executable, "-c", LATE], check=False, timeout=LIMIT_S).returncode == 7


def test_ctrl_c_while_modules_are_imported_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("streamkit_cli.command_line.import_module", interrupted)
    monkeypatch.setattr("streamkit_cli.main._utf8", lambda: None)
    monkeypatch.setattr("sys.argv", ["streamkit", "run", "topology.yaml"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "")


def test_a_signal_within_a_wait_does_not_wait_for_itself() -> None:
    asked = threading.Event()
    # What the main thread holds for a moment at each wait.
    with asked._cond:  # type: ignore[attr-defined]
        set_from_handler(asked)
    assert asked.wait(LIMIT_S)
