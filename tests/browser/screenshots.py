"""Takes the pictures in docs/screenshots: a page and a terminal of a real application at work.

python -m tests.browser.screenshots DIRECTORY
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text
from streamkit_cli.live import render

from streamkit.plan import load
from streamkit.plan.describe import describe
from streamkit.runtime.local.client import Application
from streamkit.transport.base import NewTopic
from streamkit.transport.embedded import EmbeddedTransport
from tests.broker.support import until
from tests.browser.chromium import Browser
from tests.http.support import served
from tests.requirements import MissingTool, require

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "topologies" / "word-count"
WIDTH, HEIGHT = 1440, 1200
COLUMNS, LINES = 110, 40
LINES_A_ROUND = 300
ROUND_SECONDS = 0.2


def main(directory: Path) -> None:
    """Write page.png, page-dark.png, topology.svg, run.svg and status.svg."""
    try:
        require("browser")
    except MissingTool as error:
        sys.exit(f"a picture {error}")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "topology.svg").write_text(describe(load(EXAMPLE / "topology.yaml"), "svg"), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, _at_work(Path(folder)) as (address, application):
        for dark, name in ((False, "page.png"), (True, "page-dark.png")):
            _page(address, directory / name, dark=dark)
        command = ["streamkit", "status", f"http://{address}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        _terminal(directory / "status.svg", " ".join(command), Text(done.stdout))
        _terminal(directory / "run.svg", "streamkit run topology.yaml", render(application.status(), LINES))
    print(*sorted(path.name for path in directory.iterdir()))


def _page(address: str, path: Path, *, dark: bool) -> None:
    browser = Browser(WIDTH, HEIGHT)
    try:
        if dark:
            browser.dark()
        browser.open(f"http://{address}/")
        browser.until("document.querySelectorAll('#graph .line.busy').length >= 3")
        browser.until("byId('instances-total').innerText === '2' && byId('tasks-total').innerText === '4'")
        browser.evaluate("byId('kind').value = 'prefix'; fields(); byId('q-prefix').value = 'st'")
        browser.evaluate("byId('query').requestSubmit()")
        browser.until("document.querySelectorAll('#answer tbody tr').length > 2")
        browser.evaluate("document.activeElement.blur()")
        browser.screenshot(path)
    finally:
        browser.close()


@contextmanager
def _at_work(folder: Path) -> Iterator[tuple[str, Application]]:
    """Run two instances of the example on the embedded log while lines arrive, and give one and its address."""
    log = EmbeddedTransport(folder / "log")
    text = (EXAMPLE / "topology.yaml").read_text(encoding="utf-8")
    stop = threading.Event()
    writer = threading.Thread(target=_write, args=(log, stop))
    try:
        config = {"commit.interval.ms": 500, "num.stream.threads": 1}
        with (
            served(folder / "a", log, text=text, **config) as (address, one),
            served(folder / "b", log, text=text, **config) as (_, two),
        ):
            writer.start()
            until(lambda: one.status().rate > 100 and two.status().rate > 100, "both instances count lines")
            yield address, two
            stop.set()
            writer.join()
    finally:
        stop.set()
        log.close()


def _write(log: EmbeddedTransport, stop: threading.Event) -> None:
    lines = [line.encode() for line in (EXAMPLE / "lines.txt").read_text(encoding="utf-8").splitlines() if line]
    admin = log.admin()
    admin.create_topics([NewTopic("lines", 2)])
    admin.close()
    producer = log.producer()
    number = 0
    while not stop.wait(ROUND_SECONDS):
        rows = [
            ("lines", None, lines[(number + at) % len(lines)], 1 + number + at, None, at % 2)
            for at in range(LINES_A_ROUND)
        ]
        producer.send(rows)
        producer.flush()
        number += LINES_A_ROUND
    producer.close()


def _terminal(path: Path, command: str, shown: RenderableType) -> None:
    """Write what a command shows as a picture of a terminal."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        console.print(Text(f"$ {command}", style="bold"))
        console.print(shown)
        path.write_text(console.export_svg(title="streamkit", unique_id=path.stem), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
