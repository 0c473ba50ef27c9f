"""`streamkit demo`: an example from nothing to its results, on the embedded log."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from streamkit.errors import UsageError
from streamkit.suggestions import did_you_mean
from streamkit_cli.loading import load_plan
from streamkit_cli.packaged_files import EXAMPLES as FOLDER
from streamkit_cli.tables import table

SHOWN = 5
"""Records of each output topic that are shown."""
_FILE = "topology.yaml"
_SERVICE = "price_service.py"
_CHART = "top.py"
_TEXT = "lines.txt"

Example = Annotated[
    str, typer.Argument(metavar="[EXAMPLE]", help="The example, as --list names it.", show_default="word-count")
]
Listed = Annotated[bool, typer.Option("--list", help="List the examples with a description of each.")]

EXAMPLES = (
    "streamkit demo",
    "streamkit demo click-stream",
)
"""The examples of the help."""


def command(example: Example = "word-count", listed: Listed = False) -> int:
    """Run an example: its tests, its input and the application, and show the records that it wrote.

    It needs no broker and works on a copy in a temporary folder. Each command is shown before it runs.
    """
    folders = {path.parent.name: path.parent for path in sorted(FOLDER.glob(f"*/{_FILE}"))}
    if listed:
        print(table(("EXAMPLE", "WHAT IT DOES"), [(name, _description(path)) for name, path in folders.items()]))
        return 0
    if example not in folders:
        raise UsageError(f"there is no example {example!r}{did_you_mean(example, list(folders))}; --list names them")
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
    """A command: what it shows, its arguments, the file of its input, and whether only the end of its output is shown."""

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
            steps.append(_Step(f"{count} records go into their topics", ("produce", _FILE, *to), records))
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
