"""Runs commands of streamkit as forks of one process that has imported them already.

Python and the imports take 0.2 s of CPU time, often more than the command itself, and the tests run several hundred commands.
Each command still has a process of its own, with its own arguments, environment, folder and standard streams, which ends as any
other does. What the interpreter or a library reads from the environment while it starts can't be passed to a fork:
tests of that use `tests.cli.support.command`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import streamkit
import streamkit_cli

# What only some commands need: libraries of the extras, Spark.
_NOT_IMPORTED = ("streamkit.http", "streamkit.runtime.spark", "streamkit.api.pytest_plugin")
_EXTRAS = (
    "streamkit.serdes.formats.avro",
    "streamkit.serdes.formats.protobuf",
    "streamkit.serdes.formats.json_schema",
    "streamkit.serdes.registry",
)
_LARGEST = 200_000
_CODE = 4
"""Bytes of a process's id, and of its exit code."""


# -- In the process that runs tests --


@cache
def _server() -> socket.socket:
    """Start this process's server, and return the connection with which it ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        line = [sys.executable, "-m", "tests.cli.forking", str(theirs.fileno())]
        root = Path(__file__).parents[2]
        process = subprocess.Popen(line, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, cwd=root)

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def run(
    arguments: list[str], stdin: bytes, folder: Path | None, environment: dict[str, str], seconds: float
) -> tuple[int, bytes, bytes]:
    """Run a command to its end; return its exit code, stdout and stderr. Raises subprocess.TimeoutExpired."""
    request = {"arguments": arguments, "folder": str(folder or Path.cwd()), "environment": environment}
    (their_in, our_in), (our_out, their_out), (our_err, their_err), (our_end, their_end) = (os.pipe() for _ in range(4))
    theirs = [their_in, their_out, their_err, their_end]
    try:
        socket.send_fds(_server(), [json.dumps(request).encode()], theirs)
    finally:
        for each in theirs:
            os.close(each)
    # A command that does not read its input must not hold up the reader of its output.
    threading.Thread(target=_feed, args=(our_in, stdin), daemon=True).start()
    end, out, err = _read([our_end, our_out, our_err], arguments, seconds)
    assert len(end) == 2 * _CODE, "the process that starts commands ended; stderr has its reason"
    return int.from_bytes(end[_CODE:], "little", signed=True), out, err


def _feed(descriptor: int, content: bytes) -> None:
    # The command may end, or close its input, before it has read all.
    with contextlib.suppress(BrokenPipeError), open(descriptor, "wb", buffering=0) as stream:
        stream.write(content)


def _read(descriptors: list[int], arguments: list[str], seconds: float) -> list[bytes]:
    """Return what is written to some pipes up to their ends; the first begins with the process's id."""
    found = {each: bytearray() for each in descriptors}
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for each in descriptors:
            selector.register(each, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(deadline - time.monotonic())
            if not ready:
                number = int.from_bytes(found[descriptors[0]][:_CODE], "little")
                if number:  # else it has not started; 0 is the group of this process
                    os.kill(number, signal.SIGKILL)
                raise subprocess.TimeoutExpired(arguments, seconds, *map(bytes, list(found.values())[1:]))
            for key, _ in ready:
                chunk = os.read(key.fd, 65536)
                found[key.fd] += chunk
                if not chunk:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return [bytes(each) for each in found.values()]


# -- In the server --


def _serve(requests: socket.socket) -> None:
    """Fork for each request; return in the fork, whose process is set up as the request says."""
    ends: dict[int, tuple[int, int]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd in ends:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    pid, end = ends.pop(key.fd)
                    _write(end, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                    os.close(end)
                    continue
                message, received, *_ = socket.recv_fds(requests, _LARGEST, 4)
                if not message:
                    sys.exit()
                *streams, end = received
                pid = os.fork()
                if not pid:
                    requests.close()
                    for each in (end, *ends, *(other for _, other in ends.values())):
                        os.close(each)
                    _become(json.loads(message), streams)
                    return
                for each in streams:
                    os.close(each)
                _write(end, pid)
                watched = os.pidfd_open(pid)
                ends[watched] = (pid, end)
                selector.register(watched, selectors.EVENT_READ)


def _write(descriptor: int, number: int) -> None:
    # The test may have run into its limit.
    with contextlib.suppress(BrokenPipeError):
        os.write(descriptor, number.to_bytes(_CODE, "little", signed=True))


def _become(request: dict[str, object], streams: list[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # As Python makes them; the server's own know what its descriptors led to.
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), "utf-8")
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), "utf-8")
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), "utf-8", "backslashreplace", line_buffering=True)
    os.chdir(str(request["folder"]))
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    sys.argv = [str(Path(streamkit_cli.__file__).with_name("__main__.py")), *request["arguments"]]  # type: ignore[misc]
    gc.enable()


def _import() -> None:
    for package in (streamkit, streamkit_cli):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith((*_NOT_IMPORTED, *_EXTRAS)) and not module.name.endswith("__main__"):
                import_module(module.name)
    # The parser of options imports more when it is first used.
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        import_module("streamkit_cli.command_line").application(["config"])(args=["config", "--help"])
    # What is there before the forks is neither looked at by their collections nor copied for that.
    gc.collect()
    gc.freeze()
    gc.disable()


if __name__ == "__main__":
    _import()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    from streamkit_cli.main import main

    main()
