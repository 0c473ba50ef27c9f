"""A file system that is really full: the application ends with one line, and goes on where it was once there is space."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from streamkit.transport.embedded import EmbeddedTransport
from tests.broker.support import until
from tests.cli.support import LIMIT_S
from tests.requirements import EVERY_ENGINE
from tests.runtime.counting import PARTITIONS, TEXT, by_key, rows

pytestmark = pytest.mark.process

KEYS = 300
LENGTH = 3_000
"""Of a key: all of them take a tenth of the disk, and a commit of them more than what is left of a block."""
MEGABYTES = 24


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that has little space."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"needs to mount a file system: {error}")
    if done.returncode:
        pytest.skip(f"needs to mount a file system, which takes root: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def send(log: EmbeddedTransport) -> None:
    """Write every key once."""
    producer = log.producer()
    keys = (b"%0*d" % (LENGTH, number) for number in range(KEYS))
    producer.send([("words", key, b"v", 1, None, place % PARTITIONS) for place, key in enumerate(keys)])
    producer.flush()
    producer.close()


def fill(disk: Path) -> None:
    """Leave no space."""
    with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while file.write(b"x" * size) == size:
                    pass


def counted(log: EmbeddedTransport, to: int) -> bool:
    return [count for _, count in rows(log, "counts")].count(to) == KEYS


class Application:
    """`streamkit run` with its state on the disk and its log elsewhere."""

    def __init__(self, folder: Path, disk: Path, engine: str, guarantee: str):
        file = folder / "count.yaml"
        file.write_text(TEXT.format(partitions=PARTITIONS, persistent="true"))
        settings = {"bootstrap.servers": f"embedded:{folder / 'log'}", "state.dir": disk, "state.engine": engine}
        settings |= {"processing.guarantee": guarantee, "commit.interval.ms": 50, "statestore.cache.max.bytes": 0}
        sets = [f"--set={name}={value}" for name, value in settings.items()]
        self._command = [sys.executable, "-m", "streamkit_cli", "run", str(file), *sets]

    def start(self) -> subprocess.Popen[str]:
        environment = {**os.environ, "STREAMKIT_LOG_LEVEL": "warning"}
        return subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True, env=environment)

    def run(self) -> tuple[int, str]:
        """Run until all is read; return the exit code, and what it said."""
        done = subprocess.run([*self._command, "--until-idle"], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_a_commit_without_space_loses_and_doubles_nothing(
    disk: Path, log: EmbeddedTransport, tmp_path: Path, engine: str, guarantee: str
) -> None:
    application = Application(tmp_path, disk, engine, guarantee)
    send(log)
    process = application.start()
    try:
        until(lambda: counted(log, 1), "the first counts")
        fill(disk)
        send(log)
        _, said = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1, said
    assert len(said.splitlines()) == 1, said
    assert "No space is left for" in said
    # As long as there is none, a start says so too, and changes nothing.
    code, said = application.run()
    assert code == 1, said
    assert len(said.splitlines()) == 1, said
    assert "No space is left for" in said
    (disk / "filler").unlink()
    send(log)
    code, said = application.run()
    assert (code, said) == (0, "")
    counts = by_key(rows(log, "counts"))
    assert len(counts) == KEYS
    assert set(map(tuple, counts.values())) == {(1, 2, 3)}
