"""What tests need beside the packages of the extra `dev`: the JDK, Maven, a browser, LevelDB where it has no wheel.

A test that needs what is missing is skipped, with one line that names the command that installs it; where CI is set it fails.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streamkit.state.maps import ENGINES, is_installed

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_TOOLS = {
    "java": (("java",), "Java 17 or newer", "apt-get install default-jdk-headless"),
    "javac": (("javac",), "a JDK 17 or newer", "apt-get install default-jdk-headless"),
    "mvn": (("mvn",), "Maven", "apt-get install maven"),
    "openssl": (("openssl",), "OpenSSL", "apt-get install openssl"),
    "browser": (BROWSERS, "a browser", "apt-get install chromium"),
}
"""By name: the commands of which one must be on the path, what it is, and what installs it on Debian."""

EVERY_ENGINE = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            not is_installed(name),
            reason=f"needs the state engine {name}: pip install 'streamkit[{name}]', or Python 3.12 and older, for which it has wheels",
        ),
    )
    for name in ENGINES
]
"""For parametrize: the engines of stores. LevelDB has no wheels beyond Python 3.12, so that even CI may have to do without."""


class MissingTool(RuntimeError):
    """A tool that a test needs is not on the path; the text says how to install it."""


class UnmarkedTool(AssertionError):
    """A test without the fixture or marker of a tool starts it."""


_refused: list[bool] = []


@contextmanager
def refusing() -> Iterator[None]:
    """Make `require` refuse every tool for the time of a test that is marked as one that needs none."""
    _refused.append(True)
    try:
        yield
    finally:
        _refused.pop()


def require(*tools: str) -> None:
    """Raise MissingTool for the first of some tools (java, javac, mvn, openssl, browser) that is not on the path.

    Raises UnmarkedTool in a test that is marked as fast.
    """
    if _refused:
        raise UnmarkedTool(f"a test that uses {tools[0]} takes the fixture broker, java, registry or browser")
    for tool in tools:
        commands, what, install = _TOOLS[tool]
        if not any(map(shutil.which, commands)):
            raise MissingTool(f"needs {what}: {install}")


def browser() -> str:
    """Return the browser's command. Raises MissingTool."""
    require("browser")
    return next(filter(shutil.which, BROWSERS))


def may_skip() -> bool:
    """Return whether a missing tool skips a test: continuous integration installs them all."""
    return os.environ.get("CI", "").lower() not in ("1", "true")
