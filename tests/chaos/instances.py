"""The processes of the application: each with a state directory of its own, started, stopped and killed by number."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import IO

import yaml

from tests.broker.support import App
from tests.cli.support import command
from tests.java import build

END_S = 300


STREAMKIT, KAFKA_STREAMS, BOTH = "streamkit", "kafka-streams", "both"
JAVA_CLIENT = "java-"
"""What the client ids of instances of Kafka Streams begin with."""
Launch = Callable[[App, Path], list[str]]
"""Returns the command line of a process with this state directory."""


def streamkit_line(app: App, state: Path) -> list[str]:
    """Return the command line of `streamkit run`."""
    # At this level no failure that is answered shows its traceback, so that one in the file is a failure of its own.
    return command("run", app.path, "--log-level", "info", "--set", f"state.dir={state}")


def kafka_streams_line(kafka: str, app: App, state: Path) -> list[str]:
    """Return the command line of the same topology with the same settings on a version of Kafka Streams."""
    config = yaml.safe_load(app.path.read_text(encoding="utf-8"))["config"]
    settings = {
        **config,
        "application.id": app.application,
        "state.dir": state,
        "client.id": f"{JAVA_CLIENT}{state.name}",
    }
    options = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    line = build.command("chaos/java", "Workload", *options, kafka=kafka)
    return [*line, *(f"{name}={value}" for name, value in settings.items())]


def either_line(kafka: str, app: App, state: Path) -> list[str]:
    """Return the command line of one program or the other: instances with even numbers run Kafka Streams."""
    return kafka_streams_line(kafka, app, state) if int(state.name) % 2 == 0 else streamkit_line(app, state)


class Instance:
    """One process of the application: `streamkit run`, or the same topology on Kafka Streams."""

    def __init__(self, app: App, number: int, launch: Launch = streamkit_line):
        self.number = number
        self.state = app.state / str(number)
        self.said = app.state / f"{number}.log"
        self.stopped = False
        self.process: subprocess.Popen | None = None
        self._app = app
        self._launch = launch
        self._file: IO[bytes] | None = None

    def start(self) -> None:
        """Start the process; what it says goes to the end of its file."""
        self.said.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.said.open("ab")
        line = self._launch(self._app, self.state)
        self.process = subprocess.Popen(line, stdout=self._file, stderr=self._file, stdin=subprocess.DEVNULL)
        self.stopped = False

    @property
    def alive(self) -> bool:
        """Whether the process runs (or is stopped)."""
        return self.process is not None and self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to a process that lives."""
        assert self.process is not None
        self.process.send_signal(number)
        if number in (signal.SIGSTOP, signal.SIGCONT):
            self.stopped = number is signal.SIGSTOP

    def kill(self) -> None:
        """End the process at once."""
        if self.alive:
            assert self.process is not None
            self.process.kill()
            self.process.wait()
        self._close()

    def end(self) -> int | None:
        """End the process in order; return its exit code, None when it hung and had to be killed."""
        assert self.process is not None
        if self.stopped:
            self.signal(signal.SIGCONT)
        self.process.terminate()
        try:
            return self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return None
        finally:
            self._close()

    def wipe(self) -> None:
        """Delete the state directory."""
        shutil.rmtree(self.state, ignore_errors=True)

    def transactional_ids(self, threads: int) -> list[str]:
        """The ids of the threads' producers, once the process has chosen its own id."""
        file = self.state / self._app.application / "kafka-streams-process-metadata"
        try:
            process = json.loads(file.read_text())["processId"]
        except (OSError, ValueError):
            return []
        return [f"{self._app.application}-{process}-{number}" for number in range(1, threads + 1)]

    def last_words(self, lines: int = 3) -> str:
        """The end of what the process said."""
        return " / ".join(self.said.read_text(errors="replace").splitlines()[-lines:])

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def traces(app: App) -> list[str]:
    """Lines of all instances' files that begin a traceback, but for those in which kafka-python tells of a lost connection."""
    found = []
    for file in sorted(Path(app.state).glob("*.log")):
        lines = [*file.read_text(errors="replace").splitlines(), ""]
        for number, (line, following) in enumerate(pairwise(lines), 1):
            if line.startswith("Traceback") and "/kafka/net/" not in following:
                found.append(f"{file.name}:{number}")
    return found


def moment() -> float:
    """Seconds of a clock that only goes on."""
    return time.monotonic()
