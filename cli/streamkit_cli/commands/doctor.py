"""`streamkit doctor`: the parts of this installation that are present or missing, and the state of a file's log."""

from __future__ import annotations

import json
import operator
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.distribution import DISTRIBUTION, install_command, installed_version
from streamkit.errors import ConfigError, StreamkitError, TopologyError, UnreachableError
from streamkit.suggestions import number_of
from streamkit_cli.commands.new import SCHEMA
from streamkit_cli.guard import FAILED
from streamkit_cli.loading import load_plan, opened
from streamkit_cli.options import EnvFile, Format, Settings, Shown

if TYPE_CHECKING:
    from streamkit.plan.model import Plan
    from streamkit.serdes.plain import Document


Place = Annotated[
    str | None, typer.Argument(metavar="FILE", help="A topology file, whose log and state are also checked.")
]


def doctor(file: Place = None, form: Shown = Format.text, settings: Settings = None, env_file: EnvFile = None) -> int:
    """Show Python, store engines, the native extension, installed and missing extras, Java, and whether a file's log can be reached.

    Each missing part is shown with the command that installs it. Exit code 1 if a part that FILE needs is missing.

    Examples:
        streamkit doctor
        streamkit doctor orders.yaml --format json
    """
    facts = installation()
    if file is not None:
        facts["file"] = {"path": file, **_of_file(file, settings, env_file)}
    print(json.dumps(facts, indent=2, ensure_ascii=False) if form is Format.json else _text(facts))
    return FAILED if file is not None and not facts["file"]["ok"] else 0


def installation() -> dict[str, Document]:
    """Return what is installed, as plain data."""
    from streamkit.state.engines.open_maps import DEFAULT_ENGINE, ENGINES, is_installed
    from streamkit.transport.kafka import native_client

    return {
        "streamkit": installed_version(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "schema": SCHEMA.as_uri(),
        "engines": {name: {"installed": is_installed(name), "default": name == DEFAULT_ENGINE} for name in ENGINES},
        "extras": [
            {"name": extra.name, "packages": extra.packages, "install": extra.command if extra.missing else None}
            for extra in extras()
        ],
        "native": {"used": not native_client.missing(), "reason": native_client.missing()},
        "java": java_version(),
    }


def _of_file(file: str, settings: list[str] | None, env_file: str | None) -> dict[str, Document]:
    """Return whether a topology loads, its engine opens and its log answers, with the reason if one of them does not."""
    from streamkit.runtime.operations.opening import address, connection_attempts
    from streamkit.state.engines.open_maps import DEFAULT_ENGINE, check_engine

    try:
        plan = load_plan(file, settings, env_file)
    except TopologyError as error:
        return {"ok": False, "problem": f"{number_of(len(error.problems), 'mistake')}: streamkit validate {file}"}
    engine = plan.config.state_engine or DEFAULT_ENGINE
    facts: dict[str, Document] = {"ok": True, "log": address(plan), "state.dir": plan.config.state_dir}
    try:
        check_engine(engine)
        facts["engine"] = engine
    except ConfigError as error:
        facts.update({"ok": False, "engine": str(error)})
    try:
        facts["reached"] = _reach(plan)
    except StreamkitError as error:
        facts.update({"ok": False, "reached": str(error)})
        if isinstance(error, UnreachableError):
            facts["brokers"] = connection_attempts(address(plan))
    return facts


def _reach(plan: Plan) -> str:
    with opened(plan, creates=False) as transport:
        topics = transport.admin().topics()
    known = {topic.name for topic in plan.external_topics.values()}
    return f"{number_of(len(topics), 'topic')}, {len(known & set(topics))} of the {len(known)} that the file names"


def _text(facts: dict[str, Document]) -> str:
    engines = ", ".join(
        f"{name} {'(default)' if engine['default'] else ''}".strip()
        for name, engine in facts["engines"].items()
        if engine["installed"]
    )
    lines = [
        f"streamkit  {facts['streamkit']}",
        f"Python     {facts['python']} ({facts['executable']})",
        f"Platform   {facts['platform']}",
        f"Schema     {facts['schema']}",
        f"Stores     {engines or 'no engine is installed'}",
        f"Native     {_about_native(facts['native'])}",
        f"Java       {facts['java'] or 'not found; submit needs Java 17 or newer: apt-get install default-jre-headless'}",
        "Extras",
    ]
    for extra in facts["extras"]:
        packages = ", ".join(f"{name} {version}" for name, version in extra["packages"].items() if version)
        missing = [name for name, version in extra["packages"].items() if version is None]
        lack = f"missing {', '.join(missing)}: {extra['install']}" if missing else ""
        lines.append(f"  {extra['name']:<12} {'; '.join(filter(None, [packages, lack]))}")
    if "file" in facts:
        lines += ["", facts["file"]["path"], *_about_file(facts["file"])]
    return "\n".join(lines)


def _about_native(native: dict[str, Document]) -> str:
    return f"the extension is not in use: {native['reason']}" if native["reason"] else "the extension is in use"


def _about_file(facts: dict[str, Document]) -> list[str]:
    if "problem" in facts:
        return [f"  {facts['problem']}"]
    return [
        f"  Log      {facts['log']}: {facts['reached']}",
        *(f"           {server}: {what}" for server, what in facts.get("brokers", {}).items()),
        f"  State    {facts['state.dir']}",
        f"  Engine   {facts['engine']}",
    ]


# The packages of streamkit's extras that are installed, and Java.

_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w-]+)['"]""")
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")
_PYTHON = re.compile(r"""python_version\s*(<=|>=|==|<|>)\s*['"](\d+)\.(\d+)['"]""")
_COMPARE = {"<=": operator.le, ">=": operator.ge, "==": operator.eq, "<": operator.lt, ">": operator.gt}
_DEVELOPMENT = "dev"
_JAVA_SECONDS = 10.0


@dataclass(frozen=True)
class Extra:
    """An extra of the distribution: the versions of its packages by name, None if a package is missing."""

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
    """Return the version of an installed distribution, None if there is none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def extras() -> list[Extra]:
    """Return the extras that the installed distribution declares, without the one for its own development."""
    packages_of: dict[str, dict[str, str | None]] = {}
    for extra, name, nested in _optional(DISTRIBUTION):
        if extra == _DEVELOPMENT:
            continue
        packages = packages_of.setdefault(extra, {})
        packages[name] = version_of(name)
        if packages[name] is not None and nested:
            # The packages of an extra of that package, if they are missing: confluent-kafka[schema-registry].
            theirs = [package for extra_of_it, package, _ in _optional(name) if extra_of_it in nested]
            packages.update({package: None for package in theirs if version_of(package) is None})
    return [Extra(name, packages) for name, packages in packages_of.items()]


def _optional(distribution: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (extra, package, extras of the package) for each requirement of an extra on this Python."""
    for requirement in metadata.requires(distribution) or ():
        named, marker = _REQUIREMENT.match(requirement), _EXTRA.search(requirement)
        here = all(
            _COMPARE[how](sys.version_info[:2], (int(major), int(minor)))
            for how, major, minor in _PYTHON.findall(requirement)
        )
        if named is not None and marker is not None and here:
            yield marker[1], named[1], [name.strip() for name in (named[2] or "").split(",") if name.strip()]


def java_version() -> str | None:
    """Return the first line that `java -version` prints, None if Java is missing or does not start."""
    command = shutil.which("java")
    if command is None:
        return None
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = (done.stderr or done.stdout).splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None
