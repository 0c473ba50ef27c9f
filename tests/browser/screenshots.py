"""Takes the pictures in docs/screenshots: a page and a terminal of a real application at work.

python -m tests.browser.screenshots DIRECTORY
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text

from streamkit.plan import load
from streamkit.plan.describe import describe
from streamkit.runtime.local.client import Application
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import NewTopic
from streamkit_cli.live import render
from tests.broker.support import until
from tests.browser.chromium import Browser
from tests.browser.dashboard import take_picture
from tests.browser.killed import killed_instance
from tests.browser.large import large_topology
from tests.http.support import served
from tests.requirements import MissingTool, require

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "topologies" / "word-count"
DRAWING = "topology.svg"
WIDTH, HEIGHT = 1440, 1200
COLUMNS, LINES = 110, 40
LINES_A_ROUND = 100
ROUND_SECONDS = 0.2
POINTS = 8
"""Points of the charts, one every five seconds."""
_PAGES = (
    (False, "page.png", (WIDTH, HEIGHT)),
    (True, "page-dark.png", (WIDTH, HEIGHT)),
    (False, "page-phone.png", (390, 1200)),
)


def main(directory: Path) -> None:
    """Write the pictures of the page and of the dashboard, topology.svg, run.svg and status.svg."""
    try:
        require("browser", "prometheus")
    except MissingTool as error:
        sys.exit(f"a picture {error}")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / DRAWING).write_text(drawing(), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, _at_work(Path(folder)) as (addresses, application):
        address = addresses[0]
        for dark, name, size in _PAGES:
            with _page(address, size, dark=dark) as browser:
                browser.screenshot(directory / name)
        command = ["streamkit", "status", f"http://{address}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        _terminal(directory / "status.svg", " ".join(command), Text(done.stdout))
        _terminal(directory / "run.svg", "streamkit run topology.yaml", render(application.status(), LINES))
        take_picture(addresses, Path(folder), directory / "dashboard.png")
    with tempfile.TemporaryDirectory() as folder:
        _killed(Path(folder), directory / "page-killed.png")
    with tempfile.TemporaryDirectory() as folder:
        _large(Path(folder), directory / "page-large.png")
    print(*sorted(path.name for path in directory.iterdir()))


def drawing() -> str:
    """Return the drawing of the example; its tips name the file as it is given, so from the folder of the project."""
    with chdir(ROOT):
        return describe(load((EXAMPLE / "topology.yaml").relative_to(ROOT)), "svg")


@contextmanager
def _page(address: str, size: tuple[int, int], *, dark: bool = False) -> Iterator[Browser]:
    """Give a browser that shows the overview of an application at work, with charts."""
    browser = Browser(*size)
    try:
        if dark:
            browser.dark()
        browser.open(f"http://{address}/")
        browser.until("document.querySelectorAll('#graph .line.busy').length >= 1")
        browser.until(f"Number((document.querySelector('.chart') || {{dataset: {{}}}}).dataset.points) >= {POINTS}")
        browser.evaluate("document.activeElement.blur()")
        yield browser
    finally:
        browser.close()


def _killed(folder: Path, path: Path) -> None:
    stop = threading.Event()

    def visit(write: Callable[[int], None]) -> None:
        while not stop.wait(ROUND_SECONDS):
            write(LINES_A_ROUND)

    with killed_instance(folder) as (left, killed, write):
        writer = threading.Thread(target=visit, args=(write,))
        writer.start()
        try:
            with _page(left.address, (WIDTH, HEIGHT)) as browser:
                killed.end(signal.SIGKILL)
                browser.until("document.querySelectorAll('#waiting tr.lost').length === 2")
                browser.until("byId('state').innerText === 'GONE' && current.lag > 2000")
                browser.screenshot(path)
        finally:
            stop.set()
            writer.join()


def _large(folder: Path, path: Path) -> None:
    log = EmbeddedTransport(folder / "log")
    stop = threading.Event()
    writer = threading.Thread(target=_sell, args=(log, stop))
    try:
        config = {"commit.interval.ms": 500}
        with served(folder / "a", log, text=large_topology(), **config) as (address, _):
            writer.start()
            with _page(address, (WIDTH, HEIGHT)) as browser:
                browser.until("document.querySelectorAll('#graph .line.busy').length >= 15")
                browser.screenshot(path)
            stop.set()
            writer.join()
    finally:
        stop.set()
        log.close()


def _sell(log: EmbeddedTransport, stop: threading.Event) -> None:
    producer = log.producer()
    first = 0
    while not stop.wait(ROUND_SECONDS):
        first += 40
        now = time.time_ns() // 1_000_000
        rows: list[tuple] = []
        for number in range(first, first + 40):
            user = b"u%d" % (number % 97)
            country = b'{"country": "%s"}' % (b"de", b"fr", b"pl")[number % 3]
            order = {
                "amount": number * 37 % 2000,
                "shop": f"shop-{number % 7}",
                "device": "web",
                "channel": "ads",
                "colour": "red",
            }
            rows.append(("orders", user, json.dumps(order).encode(), now, None, None))
            rows.append(
                (
                    "payments",
                    user,
                    json.dumps({"paid": number * 53 % 9000, "card": f"c{number % 5}"}).encode(),
                    now,
                    None,
                    None,
                )
            )
            rows.append(("customers", user, country, now, None, None))
        producer.send(rows)
        producer.flush()
    producer.close()


@contextmanager
def _at_work(folder: Path) -> Iterator[tuple[list[str], Application]]:
    """Run two instances of the example on the embedded log while lines arrive, and give their addresses and one of them."""
    log = EmbeddedTransport(folder / "log")
    text = (EXAMPLE / "topology.yaml").read_text(encoding="utf-8")
    stop = threading.Event()
    writer = threading.Thread(target=_write, args=(log, stop))
    try:
        config = {"commit.interval.ms": 500, "num.stream.threads": 1}
        with (
            served(folder / "a", log, text=text, **config) as (address, one),
            served(folder / "b", log, text=text, **config) as (other, two),
        ):
            writer.start()
            until(lambda: one.status().rate > 100 and two.status().rate > 100, "both instances count lines")
            yield [address, other], two
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
        now = time.time_ns() // 1_000_000
        rows = [("lines", None, lines[(number + at) % len(lines)], now, None, at % 2) for at in range(LINES_A_ROUND)]
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
        text = console.export_svg(title="streamkit", unique_id=path.stem)
        # A picture loads nothing: the viewer's own font is used.
        path.write_text(re.sub(r"@font-face {.*?}\s*", "", text, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
