"""The installed distribution: its name and version, and the command that adds an extra to this copy of it."""

# `streamkit validate` imports this module at each start: what only messages need is imported by functions.
from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "streamkit-kafka"
"""The name on package indexes; the imported package and the command are called streamkit."""
_EXTRAS = re.compile(r"\[([^\]]*)\]$")


class _Copy(NamedTuple):
    """The facts of an installation that decide how an extra is added to it; source: a path or URL, None for an index."""

    installer: str
    source: str | None
    editable: bool


def installed_version() -> str:
    """Return the version of the installed distribution."""
    from importlib.metadata import version

    return version(DISTRIBUTION)


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this copy, by the tool that installed it: pip, uv or pipx."""
    copy = _installed_copy()
    prefix = Path(sys.prefix)
    receipt, pipx = prefix / "uv-receipt.toml", prefix / "pipx_metadata.json"
    if receipt.is_file():
        return f"uv tool install --force {_whole(copy, {*_extras_of_uv(receipt), extra})}"
    if pipx.is_file():
        whole = _whole(copy, {*_extras_of_pipx(pipx), extra})
        installed = prefix.parent.name == "venvs"
        return f"pipx install --force {whole}" if installed else f"pipx run --spec {whole} streamkit"
    if "uv" in prefix.parts and "archive-v0" in prefix.parts:
        return f"uvx --from {_whole(copy, {extra})} streamkit"
    if copy.editable and copy.source is not None:
        return f"{_pip(copy.installer)} -e {shlex.quote(f'{copy.source}[{extra}]')}"
    # The distribution is already installed: pip and uv then install only the missing packages of the extra, wherever it came from.
    return f"{_pip(copy.installer)} '{DISTRIBUTION}[{extra}]'"


def _installed_copy() -> _Copy:
    from importlib import metadata

    for distribution in metadata.distributions(name=DISTRIBUTION):
        installer = distribution.read_text("INSTALLER")
        # A clone has a folder *.egg-info of a build, which is on the path if the clone is the working directory.
        if installer is not None:
            origin = json.loads(distribution.read_text("direct_url.json") or "{}")
            url = urlsplit(origin.get("url", ""))
            source = unquote(url.path) if url.scheme == "file" else origin.get("url")
            return _Copy(installer.strip(), source, bool(origin.get("dir_info", {}).get("editable")))
    return _Copy("pip", None, False)


def _whole(copy: _Copy, extras: set[str]) -> str:
    """Return the requirement of the whole distribution, for tools that build its environment again."""
    name = f"{DISTRIBUTION}[{','.join(sorted(extras))}]"
    return shlex.quote(name if copy.source is None else f"{name} @ {_url(copy.source)}")


def _url(source: str) -> str:
    return Path(source).as_uri() if source.startswith("/") else source


def _pip(installer: str) -> str:
    """Return `pip install` for this environment, even if another environment's pip is the one on the path."""
    import shutil

    if installer == "uv":
        return f"uv pip install --python {shlex.quote(sys.executable)}"
    on_path = shutil.which("pip")
    if on_path is not None and os.path.dirname(on_path) == os.path.join(sys.prefix, "bin"):
        return "pip install"
    return f"{shlex.quote(sys.executable)} -m pip install"


def _extras_of_uv(receipt: Path) -> list[str]:
    import tomllib

    wanted = tomllib.loads(receipt.read_text(encoding="utf-8")).get("tool", {}).get("requirements", [])
    return [
        extra
        for requirement in wanted
        if requirement.get("name") == DISTRIBUTION
        for extra in requirement.get("extras", ())
    ]


def _extras_of_pipx(file: Path) -> list[str]:
    package = json.loads(file.read_text(encoding="utf-8")).get("main_package", {}).get("package_or_url") or ""
    match = _EXTRAS.search(package.partition(" @ ")[0])
    return [extra.strip() for extra in match[1].split(",")] if match else []
