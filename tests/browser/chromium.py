"""Chromium without a window, driven over its own pipe (Chrome DevTools Protocol)."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.requirements import browser

LIMIT_S = 180.0


class Browser:
    """One browser with one page; every call has a limit."""

    def __init__(self, width: int = 1400, height: int = 1000, *, arguments: Sequence[str] = ()):
        """`arguments`: further ones of Chromium's command line."""
        command = browser()
        self._profile = tempfile.mkdtemp(prefix="chromium-")
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()

        def place() -> None:
            # The browser reads descriptor 3 and writes descriptor 4; the pipes' own numbers may be among these.
            read, write = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser, from_browser))
            os.dup2(read, 3)
            os.dup2(write, 4)

        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._profile}",
            f"--window-size={width},{height}",
            *arguments,
        ]
        self._process = subprocess.Popen(
            [command, *options],
            preexec_fn=place,
            pass_fds=(3, 4),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._last = 0
        self._session: str | None = None
        self._loads = 0
        self.errors: list[str] = []
        """What the page logged as errors, uncaught exceptions and what its policy has blocked included."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")
        self.resize(width, height)

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        """Set the page's size in pixels."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    def dark(self) -> None:
        """Have pages shown in dark colours."""
        feature = {"name": "prefers-color-scheme", "value": "dark"}
        self._call("Emulation.setEmulatedMedia", features=[feature])

    def press(self, key: str, times: int = 1) -> None:
        """Press and release a key, such as Tab, Enter or ArrowRight, or one character."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        for _ in range(times):
            for kind in ("keyDown", "keyUp"):
                self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key, text=text if kind == "keyDown" else "",
                    windowsVirtualKeyCode={"Tab": 9, "Enter": 13}.get(key, 0))  # fmt: skip

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse at a point, move it to another one, and release it."""
        self._mouse("mousePressed", start)
        for part in (0.3, 0.6, 1):
            self._mouse("mouseMoved", tuple(a + (b - a) * part for a, b in zip(start, end, strict=True)), buttons=1)
        self._mouse("mouseReleased", end)

    def click(self, selector: str) -> None:
        """Click the middle of the first element that a selector names."""
        middle = self.evaluate(
            f"(box => [box.x + box.width / 2, box.y + box.height / 2])(document.querySelector({selector!r}).getBoundingClientRect())"
        )
        self._mouse("mousePressed", middle)
        self._mouse("mouseReleased", middle)

    def _mouse(self, kind: str, at: Sequence[float], buttons: int = 0) -> None:
        pressed = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self._call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], buttons=buttons, **pressed)

    def offline(self) -> None:
        """Cut the page off from every network."""
        self._call(
            "Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0
        )

    def open(self, url: str) -> None:
        """Go to a page and wait until it is loaded."""
        self._call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def reload(self) -> None:
        """Load the page again, and wait until that is done."""
        before = self._loads
        self._call("Page.reload")
        # Nothing is evaluated meanwhile: the old page is no longer there, and the new one not yet.
        deadline = time.monotonic() + LIMIT_S
        while self._loads == before:
            assert time.monotonic() < deadline, "the page is never loaded again"
            self._read(0.05, lambda message: False)

    def evaluate(self, expression: str) -> Any:
        """Return what a JavaScript expression gives, as JSON would have it."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait until a JavaScript expression is true, and return what it gave."""
        deadline = time.monotonic() + LIMIT_S
        while not (found := self.evaluate(expression)):
            assert time.monotonic() < deadline, f"never: {expression}"
            self._read(0.05, lambda message: False)
        return found

    def screenshot(self, path: Path) -> None:
        """Write what is seen as PNG."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """End the browser."""
        self._session = None
        try:
            self._call("Browser.close")
        finally:
            os.close(self._out)
            os.close(self._in)
            try:
                self._process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            shutil.rmtree(self._profile, ignore_errors=True)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        number = self._last
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        answer = self._read(LIMIT_S, lambda found: found.get("id") == number)
        assert answer is not None, f"no answer to {method}"
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self, seconds: float, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
        """Return the first message that is wanted; events on the way are noted."""
        deadline = time.monotonic() + seconds
        while True:
            while b"\0" in self._buffer:
                text, _, self._buffer = self._buffer.partition(b"\0")
                message = json.loads(text)
                self._note(message)
                if wanted(message):
                    return message
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                return None
            data = os.read(self._in, 1 << 16)
            assert data, "the browser ended"
            self._buffer += data

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        self._loads += message.get("method") == "Page.loadEventFired"
        if message.get("method") == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif message.get("method") == "Runtime.consoleAPICalled" and parameters["type"] == "error":
            self.errors.append(" ".join(str(each.get("value")) for each in parameters["args"]))
        elif message.get("method") == "Log.entryAdded" and parameters["entry"]["source"] == "security":
            self.errors.append(parameters["entry"]["text"])
