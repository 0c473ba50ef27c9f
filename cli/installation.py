"""The packages of streamkit's extras that are installed, and Java."""

from __future__ import annotations

import operator
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from streamkit.distribution import DISTRIBUTION, install_command

_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w-]+)['"]""")
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")
_PYTHON = re.compile(r"""python_version\s*(<=|>=|==|<|>)\s*['"](\d+)\.(\d+)['"]""")
_COMPARE = {"<=": operator.le, ">=": operator.ge, "==": operator.eq, "<": operator.lt, ">": operator.gt}
_DEVELOPMENT = "dev"
_JAVA_SECONDS = 10.0


@dataclass(frozen=True)
class Extra:
    """An extra of the distribution: the versions of its packages by name, None where a package is missing."""

    name: str
    packages: dict[str, str | None]

    @property
    def missing(self) -> list[str]:
        """The packages that are not installed."""
        return [name for name, version in self.packages.items() if version is None]

    @property
    def command(self) -> str:
        """The command that installs it."""
        return install_command(self.name)


def version_of(distribution: str) -> str | None:
    """Return the version of an installed distribution, None where there is none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def extras() -> list[Extra]:
    """Return the extras that the installed distribution declares, without that of its own development."""
    found: dict[str, dict[str, str | None]] = {}
    for extra, name, nested in _optional(DISTRIBUTION):
        if extra == _DEVELOPMENT:
            continue
        packages = found.setdefault(extra, {})
        packages[name] = version_of(name)
        if packages[name] is not None and nested:
            # The packages of an extra of that package, where they are missing: confluent-kafka[schema-registry].
            theirs = [package for extra_of_it, package, _ in _optional(name) if extra_of_it in nested]
            packages.update({package: None for package in theirs if version_of(package) is None})
    return [Extra(name, packages) for name, packages in found.items()]


def _optional(distribution: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (extra, package, extras of the package) for each requirement of an extra on this Python."""
    for requirement in metadata.requires(distribution) or ():
        named, marker = _REQUIREMENT.match(requirement), _EXTRA.search(requirement)
        here = all(
            _COMPARE[how](sys.version_info[:2], (int(major), int(minor)))
            for how, major, minor in _PYTHON.findall(requirement)
        )
        if named is not None and marker is not None and here:
            yield marker[1], named[1], [each.strip() for each in (named[2] or "").split(",") if each.strip()]


def java_version() -> str | None:
    """Return the first line that `java -version` prints, None where Java is missing or does not start."""
    command = shutil.which("java")
    if command is None:
        return None
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = (done.stderr or done.stdout).splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None
