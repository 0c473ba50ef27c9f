"""A job that counts the words of many lines: Spark's page of its stages, and its progress on a terminal and in a log.

python -m tests.browser.spark_page DIRECTORY
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from urllib.request import urlopen

from tests.broker.support import until
from tests.browser.chromium import Browser
from tests.cli.support import command
from tests.packaging.environments import ROOT
from tests.ports import free_ports

EXAMPLE = ROOT / "topologies" / "word-count"
SIZE = (1440, 640)
LONG_S = 900
FILES, COPIES = 4, 150
"""Files of lines, and the copies of the example's lines in each."""


class RunningJob:
    """A job whose standard error is a terminal, or else a pipe. text: what it has written there."""

    def __init__(self, folder: Path, *, terminal: bool):
        [port] = free_ports(1)
        self.address = f"http://127.0.0.1:{port}"
        self.text = ""
        reader, writer = pty.openpty() if terminal else os.pipe()
        line = command(
            *(
                "submit",
                "topologies/word-count/topology.yaml",
                "--master",
                "local[2]",
                "--conf",
                f"spark.ui.port={port}",
            ),
            *("--input", f"lines={folder}/lines", "--output", f"word-counts={folder}/counts", "--overwrite"),
        )
        variables = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
        self._process = subprocess.Popen(line, stderr=writer, cwd=ROOT, env=variables)
        os.close(writer)
        self._reader = threading.Thread(target=self._read, args=(reader,))
        self._reader.start()

    def _read(self, reader: int) -> None:
        # A terminal whose last writer has ended fails in place of an end.
        with contextlib.suppress(OSError):
            while data := os.read(reader, 1 << 16):
                self.text += data.decode()
        os.close(reader)

    def wait(self) -> None:
        """Wait for the end of the job."""
        code = self._process.wait()
        self._reader.join()
        assert code == 0, self.text


def write_lines(folder: Path) -> None:
    """Write the files of lines."""
    lines = [line for line in (EXAMPLE / "lines.txt").read_text(encoding="utf-8").splitlines() if line]
    records = "".join(json.dumps({"value": line, "timestamp": at}) + "\n" for at, line in enumerate(lines))
    (folder / "lines").mkdir()
    for number in range(FILES):
        (folder / f"lines/{number}.jsonl").write_text(records * COPIES, encoding="utf-8")


def at_work(address: str) -> bool:
    """Return whether the last stage of the job runs."""
    try:
        with urlopen(f"{address}/api/v1/applications") as answer:
            [application] = json.load(answer)
        with urlopen(f"{address}/api/v1/applications/{application['id']}/stages") as answer:
            stages = json.load(answer)
    except (OSError, ValueError):  # before it answers, and before it has the application
        return False
    return any(stage["status"] == "ACTIVE" and "sub-topology 1" in stage["name"] for stage in stages)


def record(folder: Path, *, terminal: bool, picture: Path | None = None) -> str:
    """Run a job, and return what it has written; write the page of its stages to `picture`."""
    if picture is None:
        job = RunningJob(folder, terminal=terminal)
    else:
        browser = Browser(*SIZE)
        try:
            job = RunningJob(folder, terminal=terminal)
            until(lambda: at_work(job.address), "the last stage runs", LONG_S)
            browser.open(f"{job.address}/stages/")
            browser.screenshot(picture)
        finally:
            browser.close()
    job.wait()
    return job.text


def lines_of(text: str) -> list[str]:
    """Return what a terminal has shown, a line for each that differs from the one before by more than seconds."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    shown = (line.strip() for line in re.split(r"[\r\n]+", plain))
    found = {re.sub(r"^[\u2800-\u28ff] |, [\d,]+/s.*", "", line): line for line in shown if line}
    return list(found.values())


def main(directory: Path) -> None:
    """Write spark-stages.png to a directory, and print both recordings."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_lines(folder)
        for terminal, picture in ((True, directory / "spark-stages.png"), (False, None)):
            print("on a terminal" if terminal else "in a log")
            print("\n".join(lines_of(record(folder, terminal=terminal, picture=picture))), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
