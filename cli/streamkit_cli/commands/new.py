"""`streamkit new` creates an application from a template, `streamkit demo` runs an example; both come with the package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from streamkit.errors import StateError, UsageError
from streamkit.suggestions import did_you_mean, number_of
from streamkit_cli.loading import load_plan
from streamkit_cli.tables import table

_HERE = Path(__file__).parents[1]


def _packaged(package: str, in_clone: str) -> Path:
    installed = _HERE / package
    return installed if installed.is_dir() else _HERE.parents[1] / in_clone


EXAMPLES = _packaged("examples", "topologies")
"""The folder of examples: one folder each."""
SCHEMA = _packaged("schemas", "schemas") / "topology.schema.json"
"""The JSON Schema of topology files."""
TEMPLATES = _HERE / "templates"
_PLACE = "NAME"
_SCHEMA = "topology.schema.json"


class Template(StrEnum):
    """What the topology does, until it is changed."""

    FILTER = "filter"
    COUNT = "count"
    WINDOW = "window"
    JOIN = "join"
    PROCESSOR = "processor"


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The name of the application and of its new folder; . is the current folder.",
        show_default=False,
    ),
]
Chosen = Annotated[
    Template,
    typer.Option(
        "--template",
        help="filter: no state; count: by key; window: by key and minute; join: a stream with a table; processor: in Python.",
    ),
]


def new(name: Name, template: Chosen = Template.COUNT) -> None:
    """Create a folder with a topology and its test.

    The topology names its JSON Schema, so that editors can complete and check it. It is the installed schema, which
    needs no network; doctor shows its path on another machine. If plugins are installed, a schema with their steps is
    created beside the topology.

    Examples:
        streamkit new orders
        streamkit new visits --template window
    """
    from streamkit.spec.yaml_reader import kafka_name_mistake

    if not name.strip():
        raise UsageError("NAME is empty; expected the name of the application, or . for this folder")
    folder = Path(name)
    target = folder.resolve()
    is_here, application = target == Path.cwd(), target.name
    if not application:
        raise UsageError(f"{target} has no name that the application could have")
    mistake = kafka_name_mistake(application)
    if mistake:
        raise UsageError(f"{application!r} {mistake}")
    if folder.exists() and not is_here:
        raise UsageError(f"{folder} already exists")
    files = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted((TEMPLATES / template.value).iterdir())
        if path.is_file()
    }
    files["topology.yaml"] = files["topology.yaml"].replace(_PLACE, application, 1)
    schema = _schema_with_plugins()
    if schema is None:
        files["topology.yaml"] = files["topology.yaml"].replace(_SCHEMA, SCHEMA.as_uri(), 1)
    else:
        files[_SCHEMA] = schema
    if not (folder / ".gitignore").exists():
        files[".gitignore"] = ".streamkit/\n"
    for file in files:
        if (folder / file).exists():
            raise UsageError(f"{folder / file} already exists")
    try:
        folder.mkdir(parents=True, exist_ok=is_here)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StateError(f"{folder}: {error.strerror}") from error
    step = "" if is_here else f"  cd {folder}\n"
    print(
        f"Created {folder / 'topology.yaml'} and its test. Next:\n{step}  streamkit test\n  streamkit run topology.yaml"
    )


def _schema_with_plugins() -> str | None:
    """Return the JSON Schema if plugins add to the installed one; else None."""
    from streamkit.spec.topology_schema import with_plugins

    schema = with_plugins()
    return None if schema == json.loads(SCHEMA.read_text(encoding="utf-8")) else json.dumps(schema, indent=1) + "\n"


# `streamkit demo`: an example from nothing to its results, on the embedded log.


SHOWN = 5
"""Records of each output topic that are shown."""
_FILE = "topology.yaml"
_SERVICE = "price_service.py"
_CHART = "top.py"
_TEXT = "lines.txt"

Example = Annotated[
    str, typer.Argument(metavar="EXAMPLE", help="The example, as --list names it.", show_default="word-count")
]
Listed = Annotated[bool, typer.Option("--list", help="List the examples with a description of each.")]


def demo(example: Example = "word-count", listed: Listed = False) -> int:
    """Run an example: its tests, its input and the application, and show the records that it wrote.

    It needs no broker and works on a copy in a temporary folder. Each command is shown before it runs.

    Examples:
        streamkit demo
        streamkit demo click-stream
    """
    folders = {path.parent.name: path.parent for path in sorted(EXAMPLES.glob(f"*/{_FILE}"))}
    if listed:
        print(table(("EXAMPLE", "WHAT IT DOES"), [(name, _description(path)) for name, path in folders.items()]))
        return 0
    if example not in folders:
        raise UsageError(f"there is no example {example!r}{did_you_mean(example, list(folders), '--list names them')}")
    with tempfile.TemporaryDirectory(prefix="streamkit-demo-") as temporary:
        copy = Path(temporary, example)
        shutil.copytree(folders[example], copy, ignore=shutil.ignore_patterns("__pycache__"))
        code = _Player(copy).play()
    if not code:
        _say("Next")
        print(f"  the files of this example: {folders[example]}")
        print("  other examples: streamkit demo --list; a topology of your own: streamkit new NAME")
    return code


def _description(folder: Path) -> str:
    from streamkit.spec import load

    return load(str(folder / _FILE)).description or ""


class _Step(NamedTuple):
    """A command: its description, its arguments, its input file, and whether only the end of its output is shown."""

    title: str
    arguments: tuple[str, ...]
    records: str | None = None
    shortened: bool = False


class _Player:
    """Runs the commands of an example in its folder."""

    def __init__(self, folder: Path):
        self._folder = folder
        # A broker in the environment must not turn the demo into writes to it.
        inherited = {
            name: value for name, value in os.environ.items() if name not in ("KAFKA", "STREAMKIT_BOOTSTRAP_SERVERS")
        }
        self._environment = {**inherited, "STATE_DIR": str(folder.parent / "state")}
        python = [sys.executable, "-P"]
        # The service that an example calls serves as long as a command runs.
        self._command = [*([*python, _SERVICE] if (folder / _SERVICE).exists() else []), *python, "-m", "streamkit_cli"]

    def play(self) -> int:
        """Run all commands; return the exit code of the first that fails, else 0."""
        steps = [
            _Step("The tests pass", ("test", _FILE)),
            *self._rounds(),
            *(_Step(topic, ("consume", _FILE, topic, "--until-idle"), shortened=True) for topic in self._outputs()),
        ]
        for step in steps:
            code = self._run(step)
            if code:
                return code
        return 0

    def _rounds(self) -> list[_Step]:
        """Return the steps that write each file of input, and process it."""
        steps = []
        text = [_TEXT] if (self._folder / _TEXT).exists() else []
        for records in text or sorted(path.name for path in self._folder.glob("records*.jsonl")):
            to = (Path(records).stem, "--lines") if text else ()
            count = len((self._folder / records).read_bytes().splitlines())
            steps.append(
                _Step(
                    f"The input, {number_of(count, 'record')}, goes into its topics", ("produce", _FILE, *to), records
                )
            )
            steps.append(_Step("The application processes them", ("run", _FILE, "--until-idle")))
        return steps

    def _outputs(self) -> list[str]:
        """Return the topics with results: those that the application only writes, without dead letters."""
        from streamkit.runtime.execution.dead_letters import dead_letter_topics

        plan = load_plan(str(self._folder / _FILE), None, None)
        letters = set(dead_letter_topics(plan))
        return [
            name
            for name, topic in plan.external_topics.items()
            if topic.written and not topic.read and topic.name not in letters
        ]

    def _run(self, step: _Step) -> int:
        shown = " ".join(["streamkit", *step.arguments])
        chart = step.shortened and (self._folder / _CHART).exists()
        if not step.shortened or chart:
            piped = f" < {step.records}" if step.records else f" | python {_CHART}" if chart else ""
            _say(f"{'The result' if chart else step.title}: {shown}{piped}")
        with open(self._folder / step.records if step.records else os.devnull, "rb") as records:
            done = subprocess.run(
                [*self._command, *step.arguments],
                stdin=records,
                stdout=subprocess.PIPE if step.shortened else None,
                cwd=self._folder,
                env=self._environment,
                check=False,
            )
        if done.returncode or not step.shortened:
            return done.returncode
        if chart:
            line = [sys.executable, "-P", _CHART]
            return subprocess.run(line, input=done.stdout, cwd=self._folder, check=False).returncode
        lines = done.stdout.decode().splitlines()
        if lines:
            _say(f"The last {min(SHOWN, len(lines))} of {len(lines)} records: {shown}")
            print("\n".join(lines[-SHOWN:]), flush=True)
        return 0


def _say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)
