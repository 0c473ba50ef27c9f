"""An application that counts words under exactly-once, its input, and a process of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.broker.support import App, Log, application, kill
from tests.cli.support import LIMIT_S, command

KEYS = 8
TEXT = """\
topics:
  words: {topic: "{a}words", value: string}
  counts: {topic: "{a}counts", value: long}
pipelines:
  count:
    stream: words
    steps: [group_by_key, count: counts, to_stream]
    to: counts
"""


def counting(folder: Path, log: Log, text: str = TEXT, **config: object) -> App:
    settings = {"processing_guarantee": "exactly_once_v2", "num_stream_threads": 2, "statestore_cache_max_bytes": 0}
    app = application(folder, log, "faults", text, **{**settings, **config})
    log.create(app.topic("words"), 2)
    log.create(app.topic("counts"), 1)
    return app


def feed(app: App, rounds: int, value: bytes = b"v") -> None:
    app.log.write(
        (app.topic("words"), f"k{key}".encode(), value, 1000 + n, None, key % 2)
        for n in range(rounds)
        for key in range(KEYS)
    )


class Process:
    """A running application and what it says."""

    def __init__(self, app: App, folder: Path):
        self._said = folder / f"{app.application}.err"
        with self._said.open("ab") as err:
            self.process = subprocess.Popen(command("run", app.path), stdout=subprocess.DEVNULL, stderr=err)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        kill([self.process])

    @property
    def said(self) -> str:
        return self._said.read_text()

    def end(self) -> None:
        self.process.terminate()
        assert self.process.wait(LIMIT_S) == 0, self.said
        assert "Traceback" not in self.said
