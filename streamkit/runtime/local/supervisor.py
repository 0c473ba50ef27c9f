"""Runs several instances of an application as processes: restarts them, forwards stops, merges their output."""

from __future__ import annotations

import logging
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, cast

log = logging.getLogger(__name__)

LIFELINE = "STREAMKIT_LIFELINE"
"""The environment variable with the file descriptor by which a child detects that the supervisor has ended."""
FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 30.0
HEALTHY_S = 60.0
"""After this time without a failure, the failure count of an instance restarts at 0."""
MAX_FAILURES = 5
"""The number of consecutive failures of one instance after which all instances stop: further restarts would fail too."""
USAGE = 2
ENDS_ALL = 113
"""The exit code of an instance when all instances must stop (`shutdown_application`)."""
_CHECK_S = 0.1
_CHUNK = 65_536


class Instance:
    """One process of the application: its command line, additional environment variables, and its consecutive failures."""

    def __init__(self, number: int, command: Sequence[str], environment: Mapping[str, str]):
        self.number = number
        self.command = list(command)
        self.environment = environment
        self.process: subprocess.Popen[bytes] | None = None
        self.failures = 0
        self.started = 0.0
        self.start_at: float | None = 0.0
        """The time of the next start (time.monotonic); None: it runs, or will not be restarted."""
        self.renewing = False
        """Whether it was terminated in order to restart."""

    @property
    def running(self) -> bool:
        """Whether the process was started and its end has not been handled yet."""
        return self.process is not None


class Supervisor:
    """Keeps instances running until all have ended on their own, or `stop` is set.

    `out`, `err`: binary streams for the instances' lines, each prefixed with the number of its instance; `environments`:
    additional variables of each instance.
    """

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        out: IO[bytes],
        err: IO[bytes],
        environments: Sequence[Mapping[str, str]] = (),
    ):
        pairs = zip(commands, environments or [{} for _ in commands], strict=True)
        self._instances = [Instance(number, *pair) for number, pair in enumerate(pairs, 1)]
        self._streams = {"stdout": out, "stderr": err}
        self._selector = selectors.DefaultSelector()
        self._width = len(str(len(commands)))
        self._lifeline, self._lifeline_writer = os.pipe()
        self._turn: list[Instance] = []
        self._code = 0

    def run(self, stop: threading.Event, renew: threading.Event) -> int:
        """Return the exit code: 0, or that of the failure that made all instances stop.

        `stop` ends the instances cleanly; `renew` restarts them one after the other. An exception (a second interrupt)
        kills them.
        """
        stopping = False
        try:
            while any(instance.running or instance.start_at is not None for instance in self._instances):
                if (stop.is_set() or self._code) and not stopping:
                    stopping = True
                    self._terminate_all()
                if renew.is_set():
                    renew.clear()
                    self._turn = list(self._instances)
                if not stopping:
                    self._start_due()
                    self._renew_next()
                self._read(_CHECK_S)
                for instance in self._instances:
                    self._check(instance, stopping)
            return self._code
        finally:
            self._kill()
            self._selector.close()
            os.close(self._lifeline_writer)
            os.close(self._lifeline)

    # -- Starting and ending ------------------------------------------------------------------------------------------

    def _start_due(self) -> None:
        for instance in self._instances:
            if instance.start_at is not None and instance.start_at <= time.monotonic():
                self._start(instance)

    def _start(self, instance: Instance) -> None:
        # A new session: Ctrl-C in the terminal reaches only the supervisor, which forwards it once.
        instance.process = subprocess.Popen(
            instance.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=(self._lifeline,),
            env={**os.environ, **instance.environment, LIFELINE: str(self._lifeline)},
        )
        instance.start_at, instance.started = None, time.monotonic()
        for name in ("stdout", "stderr"):
            pipe = getattr(instance.process, name)
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(
                pipe, selectors.EVENT_READ, _LinePrefixer(self._prefix(instance), self._streams[name])
            )

    def _check(self, instance: Instance, stopping: bool) -> None:
        process = instance.process
        if process is None or process.poll() is None:
            return
        self._drain(process)
        instance.process = None
        code = process.returncode
        if instance.renewing and not stopping:
            instance.renewing, instance.start_at = False, 0.0
            return
        if code == 0 or stopping:
            # It was terminated (by the signal itself if it had no handler yet), or it has ended on its own.
            if code not in (0, -signal.SIGTERM):
                log.warning("instance %d ended with %s", instance.number, _reason(code))
            return
        lived = time.monotonic() - instance.started
        instance.failures = 1 if lived > HEALTHY_S else instance.failures + 1
        if code in (USAGE, ENDS_ALL) or instance.failures > MAX_FAILURES:
            why = "requested that all instances stop" if code == ENDS_ALL else f"ended with {_reason(code)}"
            log.error("instance %d %s; all instances stop", instance.number, why)
            self._code = code if code > 0 and code != ENDS_ALL else 1
            return
        pause = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2 ** (instance.failures - 1))
        log.warning("instance %d ended with %s; it restarts in %g s", instance.number, _reason(code), pause)
        instance.start_at = time.monotonic() + pause

    def _renew_next(self) -> None:
        """Terminate the next instance in turn, in order to restart it, once the previous one runs again."""
        if any(instance.renewing for instance in self._instances) or not self._turn:
            return
        instance = self._turn.pop(0)
        if instance.process is not None:
            instance.renewing = True
            instance.process.terminate()

    def _terminate_all(self) -> None:
        for instance in self._instances:
            instance.start_at = None
            if instance.process is not None:
                instance.process.terminate()

    def _kill(self) -> None:
        for instance in self._instances:
            if instance.process is not None:
                instance.process.kill()
                instance.process.wait()
                self._drain(instance.process)

    # -- Output -------------------------------------------------------------------------------------------------------

    def _prefix(self, instance: Instance) -> bytes:
        return f"{instance.number:>{self._width}} | ".encode()

    def _read(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            self._pass_on(cast("IO[bytes]", key.fileobj), key.data)  # only pipes are registered

    def _drain(self, process: subprocess.Popen[bytes]) -> None:
        for pipe in (process.stdout, process.stderr):
            if pipe is None or pipe.closed:
                continue
            prefixer = self._selector.get_key(pipe).data
            while self._pass_on(pipe, prefixer):
                pass

    def _pass_on(self, pipe: IO[bytes], prefixer: _LinePrefixer) -> bool:
        """Read once; return whether there may be more data."""
        try:
            data = os.read(pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        prefixer.take(data)
        if not data:
            self._selector.unregister(pipe)
            pipe.close()
        return bool(data)


class _LinePrefixer:
    """Writes complete lines of one pipe to a stream, each with a prefix; very long lines are written in parts."""

    def __init__(self, prefix: bytes, stream: IO[bytes]):
        self._prefix = prefix
        self._stream = stream
        self._rest = b""

    def take(self, data: bytes) -> None:
        """Write the lines in `data`; empty data means the end of the pipe."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._rest and (not data or len(self._rest) > _CHUNK):
            lines.append(self._rest)
            self._rest = b""
        if lines:
            self._stream.write(b"".join(self._prefix + line + b"\n" for line in lines))
            self._stream.flush()


def watch_lifeline(stop: threading.Event) -> bool:
    """Set `stop` when the supervisor that started this process has ended; return whether there is one."""
    descriptor = os.environ.pop(LIFELINE, None)
    if descriptor is None:
        return False

    def watch() -> None:
        # No process ever writes: the read returns when the write end is closed, also by the system after a kill.
        os.read(int(descriptor), 1)
        stop.set()

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
    return True


def _reason(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
