"""What is installed beside streamkit: extras, engines of stores, Java."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata

DISTRIBUTION = "streamkit"
_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w-]+)['"]""")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
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
        return f"pip install '{DISTRIBUTION}[{self.name}]'"


def version_of(distribution: str) -> str | None:
    """Return the version of an installed distribution, None where there is none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def extras() -> list[Extra]:
    """Return the extras that the installed distribution declares, without that of its own development."""
    found: dict[str, dict[str, str | None]] = {}
    for requirement in metadata.requires(DISTRIBUTION) or ():
        name, marker = _NAME.match(requirement), _EXTRA.search(requirement)
        if name is not None and marker is not None and marker[1] != _DEVELOPMENT:
            found.setdefault(marker[1], {})[name[0]] = version_of(name[0])
    return [Extra(name, packages) for name, packages in found.items()]


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
