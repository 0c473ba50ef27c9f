"""What tests need beside the packages of the extra `dev`: the JDK, Spark, Maven, a browser, a pseudo-terminal, LevelDB where it has no wheel.

A test that needs what is missing is skipped, with one line that names the command that installs it; where CI is set it fails.
"""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from streamkit.distribution import install_command
from streamkit.state.engines.open_maps import ENGINES, is_installed
from tests.marking import TESTS

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
POSTGRES = ("postgres", *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)))
HELM = "helm.sh/helm/v3/cmd/helm@v3.19.0"
_TOOLS = {
    "java": (("java",), "Java 17 or newer", "apt-get install default-jdk-headless"),
    "javac": (("javac",), "a JDK 17 or newer", "apt-get install default-jdk-headless"),
    "mvn": (("mvn",), "Maven", "apt-get install maven"),
    "curl": (("curl",), "curl", "apt-get install curl"),
    "openssl": (("openssl",), "OpenSSL", "apt-get install openssl"),
    "cc": (("cc",), "a C compiler", "apt-get install gcc libc6-dev"),
    "postgres": ((*POSTGRES,), "PostgreSQL", "apt-get install postgresql"),
    "browser": (BROWSERS, "a browser", "apt-get install chromium"),
    "helm": (("helm", str(Path.home() / "go" / "bin" / "helm")), "Helm", f"go install {HELM}"),
    "prometheus": (("prometheus",), "Prometheus", "apt-get install prometheus"),
    "npm": (("npm",), "Node 20 with npm", "apt-get install nodejs npm"),
    "promtool": (("promtool",), "promtool", "apt-get install prometheus"),
}
"""By name: the commands of which one must be on the path, what it is, and what installs it on Debian."""
_HEADERS = {"librdkafka/rdkafka.h": "apt-get install librdkafka-dev"}
"""By name: what installs a header of C on Debian."""

EVERY_ENGINE = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            not is_installed(name),
            reason=f"needs the state engine {name}: {install_command(name)}, or Python 3.12 and older, for which it has wheels",
        ),
    )
    for name in ENGINES
]
"""For parametrize: the engines of stores. LevelDB has no wheels beyond Python 3.12, so that even CI may have to do without."""


class MissingTool(RuntimeError):
    """A tool that a test needs is not on the path; the text says how to install it."""


class UnmarkedTool(AssertionError):
    """A test that is marked as fast starts a process."""


_fast: list[bool] = []


@contextmanager
def refusing() -> Iterator[None]:
    """Refuse tools and processes while a test runs that is marked as fast."""
    _fast.append(True)
    try:
        yield
    finally:
        _fast.pop()


def refuse_processes(event: str, arguments: tuple[object, ...]) -> None:
    """Raise UnmarkedTool where a fast test starts a process (a hook of sys.addaudithook).

    What streamkit starts by itself is fast, such as the compiler of Protobuf.
    """
    if _fast and event == "subprocess.Popen":
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename == subprocess.__file__:
            frame = frame.f_back
        if frame.f_code.co_filename.startswith(TESTS):
            raise UnmarkedTool(f"{arguments[0]} is started: mark the test with pytest.mark.process")


def require(*tools: str) -> None:
    """Raise MissingTool for the first of some tools (java, javac, mvn, curl, openssl, browser) that is not on the path.

    Raises UnmarkedTool in a test that is marked as fast.
    """
    if _fast:
        raise UnmarkedTool(f"a test that uses {tools[0]} takes the fixture broker, java, registry or browser")
    for tool in tools:
        commands, what, install = _TOOLS[tool]
        if not any(map(shutil.which, commands)):
            raise MissingTool(f"needs {what}: {install}")


def header(name: str) -> Path:
    """Return a header of C in the system's folders. Raises MissingTool."""
    require("cc")
    for folder in (Path("/usr/include"), Path("/usr/local/include")):
        if (folder / name).exists():
            return folder / name
    raise MissingTool(f"needs the header {name}: {_HEADERS[name]}")


def terminal() -> tuple[int, int]:
    """Open a pseudo-terminal; return the descriptors of both its sides. Raises MissingTool."""
    try:
        return pty.openpty()
    except OSError as error:
        raise MissingTool("needs a pseudo-terminal: mount -t devpts devpts /dev/pts") from error


def browser() -> str:
    """Return the browser's command. Raises MissingTool."""
    return tool("browser")


def tool(name: str) -> str:
    """Return the path of a tool's command. Raises MissingTool."""
    require(name)
    return str(next(filter(None, map(shutil.which, _TOOLS[name][0]))))


def postgres() -> Path:
    """Return the folder of PostgreSQL's commands. Raises MissingTool."""
    return Path(tool("postgres")).resolve().parent


def extension() -> Any:
    """Return the native extension; skip the module that calls this where it is not built, or raise MissingTool."""
    from streamkit.transport.kafka import native_client

    if not native_client.missing():
        return import_module("streamkit._native")
    need = "needs the native extension: apt-get install gcc libc6-dev python3-dev, then pip install --editable ."
    if may_skip():
        pytest.skip(need, allow_module_level=True)
    raise MissingTool(need)


def may_skip() -> bool:
    """Return whether a missing tool skips a test: continuous integration installs them all."""
    return os.environ.get("CI", "").lower() not in ("1", "true")
