"""`streamkit doctor`: the parts of this installation that are present or missing, and the state of a file's log."""

from __future__ import annotations

import json
import platform
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit import __version__
from streamkit.errors import ConfigError, StreamkitError, TopologyError, UnreachableError
from streamkit_cli.guard import FAILED
from streamkit_cli.loading import load_plan
from streamkit_cli.packaged_files import SCHEMA
from streamkit_cli.shared_options import EnvFile, Format, Settings, Shown

if TYPE_CHECKING:
    from streamkit.plan.model import Plan
    from streamkit.serdes.plain import Json

Place = Annotated[
    str | None, typer.Argument(metavar="[FILE]", help="A topology file, whose log and state are looked at too.")
]

EXAMPLES = (
    "streamkit doctor",
    "streamkit doctor orders.yaml --format json",
)
"""The examples of the help."""


def command(file: Place = None, form: Shown = Format.text, settings: Settings = None, env_file: EnvFile = None) -> int:
    """Show Python, the engines of stores, the native extension, extras found and missing, Java, and whether a file's log can be reached.

    Each thing that is missing comes with the command that installs it. Exit code 1 where what FILE needs is missing.
    """
    found = installation()
    if file is not None:
        found["file"] = {"path": file, **_of_file(file, settings, env_file)}
    print(json.dumps(found, indent=2, ensure_ascii=False) if form is Format.json else _text(found))
    return FAILED if file is not None and not found["file"]["ok"] else 0


def installation() -> dict[str, Json]:
    """Return what is installed, as plain data."""
    from streamkit.state.engines.open_maps import ENGINES, default_engine, is_installed
    from streamkit.transport.kafka import native_client
    from streamkit_cli.installation import extras, java_version

    return {
        "streamkit": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "schema": SCHEMA.as_uri(),
        "engines": {name: {"installed": is_installed(name), "default": name == default_engine()} for name in ENGINES},
        "extras": [
            {"name": each.name, "packages": each.packages, "install": each.command if each.missing else None}
            for each in extras()
        ],
        "native": {"used": not native_client.missing(), "reason": native_client.missing()},
        "java": java_version(),
    }


def _of_file(file: str, settings: list[str] | None, env_file: str | None) -> dict[str, Json]:
    """Return whether a topology can be loaded, opens its engine, and reaches its log; and why not."""
    from streamkit.runtime.operations.opening import address
    from streamkit.state.engines.open_maps import check_engine, default_engine
    from streamkit.transport.reachability import connection_attempts

    try:
        plan = load_plan(file, settings, env_file)
    except TopologyError as error:
        return {"ok": False, "problem": f"{len(error.problems)} mistakes: streamkit validate {file}"}
    engine = plan.config["state.engine"] or default_engine()
    found: dict[str, Json] = {"ok": True, "log": address(plan), "state.dir": str(plan.config["state.dir"])}
    try:
        check_engine(engine)
        found["engine"] = engine
    except ConfigError as error:
        found.update({"ok": False, "engine": str(error)})
    try:
        found["reached"] = _reach(plan)
    except StreamkitError as error:
        found.update({"ok": False, "reached": str(error)})
        if isinstance(error, UnreachableError):
            found["brokers"] = connection_attempts(address(plan))
    return found


def _reach(plan: Plan) -> str:
    from streamkit_cli.logs import opened

    with opened(plan, creates=False) as transport:
        topics = transport.admin().topics()
    known = {topic.name for topic in plan.external_topics.values()}
    return f"{len(topics)} topics, {len(known & set(topics))} of the {len(known)} that the file names"


def _text(found: dict[str, Json]) -> str:
    engines = ", ".join(
        f"{name} {'(default)' if each['default'] else ''}".strip()
        for name, each in found["engines"].items()
        if each["installed"]
    )
    lines = [
        f"streamkit  {found['streamkit']}",
        f"Python     {found['python']} ({found['executable']})",
        f"Platform   {found['platform']}",
        f"Schema     {found['schema']}",
        f"Stores     {engines or 'no engine is installed'}",
        f"Native     {_about_native(found['native'])}",
        f"Java       {found['java'] or 'not found; submit needs Java 17 or newer: apt-get install default-jre-headless'}",
        "Extras",
    ]
    for extra in found["extras"]:
        packages = ", ".join(f"{name} {version}" for name, version in extra["packages"].items() if version)
        missing = [name for name, version in extra["packages"].items() if version is None]
        lack = f"missing {', '.join(missing)}: {extra['install']}" if missing else ""
        lines.append(f"  {extra['name']:<12} {'; '.join(filter(None, [packages, lack]))}")
    if "file" in found:
        lines += ["", found["file"]["path"], *_about_file(found["file"])]
    return "\n".join(lines)


def _about_native(found: dict[str, Json]) -> str:
    return f"the extension is not in use: {found['reason']}" if found["reason"] else "the extension is in use"


def _about_file(found: dict[str, Json]) -> list[str]:
    if "problem" in found:
        return [f"  {found['problem']}"]
    return [
        f"  Log      {found['log']}: {found['reached']}",
        *(f"           {server}: {what}" for server, what in found.get("brokers", {}).items()),
        f"  State    {found['state.dir']}",
        f"  Engine   {found['engine']}",
    ]
