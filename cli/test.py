"""`streamkit test`: the tests beside topologies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.errors import StateError

from .loading import environment, overrides
from .options import EnvFile, Settings

if TYPE_CHECKING:
    from streamkit.testing.session import FileResult, Session

Paths = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PATH…]", help="Test files, topologies, or folders; the present folder without one."),
]
Only = Annotated[
    str, typer.Option("--filter", metavar="TEXT", help="Run only tests whose file or name has this text in it.")
]
Update = Annotated[bool, typer.Option("--update", help="Write what came out into the tests that fail.")]
JUnit = Annotated[str | None, typer.Option("--junit", metavar="FILE", help="Write the results as JUnit XML.")]
Coverage = Annotated[bool, typer.Option("--coverage", help="Name the steps and branches that no test reached.")]
Least = Annotated[
    float | None,
    typer.Option("--min-coverage", metavar="PERCENT", min=0, max=100, help="Fail below this share of reached steps."),
]
STYLES = {"same": "dim", "expected": "red", "came": "green", "detail": "yellow"}


def command(
    paths: Paths = None,
    only: Only = "",
    update: Update = False,
    junit: JUnit = None,
    coverage: Coverage = False,
    least: Least = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int:
    """Run the tests of topologies.

    Tests stand in files *.test.yaml. Exit code 0 when all pass, 1 when one fails or is mistaken, 2 when there are none.
    """
    from streamkit.testing.find import Plans, find
    from streamkit.testing.session import Session

    plans = Plans(environment(env_file), overrides(settings))
    session = Session(plans, only, update, coverage or least is not None)
    results = []
    for result in session.run(find(paths or ["."])):
        results.append(result)
        _show(result)
    if junit is not None:
        _write_junit(junit, results)
    enough = _show_coverage(session, least)
    return _summary(results, only, enough)


def _summary(results: list[FileResult], only: str, enough: bool) -> int:
    """Show the last line; return the exit code."""
    ran = sum(len(result.outcomes) for result in results)
    failed = sum(bool(outcome.failures) for result in results for outcome in result.outcomes)
    mistaken = sum(bool(result.problems) for result in results)
    if not ran and not mistaken:
        _say(f"no test has {only!r} in its name", "bold red")
        return 2
    parts = []
    if ran:
        parts += [f"{ran} tests" if ran != 1 else "1 test", f"{failed} failed" if failed else "all passed"]
    if mistaken:
        parts.append(f"{mistaken} {'files' if mistaken > 1 else 'file'} with mistakes")
    good = not failed and not mistaken and enough
    _say("\n" + ", ".join(parts), "bold green" if good else "bold red")
    return 0 if good else 1


def _show(result: FileResult) -> None:
    from streamkit.testing.report import body, head

    if not result.outcomes and not result.problems:
        return
    _say(f"{result.path}{'  (rewritten)' if result.rewritten else ''}", "bold")
    for problem in result.problems:
        _say(f"  {problem}", "red")
    for outcome in result.outcomes:
        if not outcome.failures:
            hint = "" if outcome.case.compares else "  (nothing is compared; --update writes what comes out)"
            _say(f"  ok    {outcome.case.name}{hint}", "yellow" if hint else "green")
            continue
        _say(f"  FAIL  {outcome.case.name}", "bold red")
        for failure in outcome.failures:
            _say(f"        {head(failure)}", "")
            for line in body(failure):
                _say(f"          {line.text}", STYLES[line.kind])


def _show_coverage(session: Session, least: float | None) -> bool:
    """Show what was never reached; return whether enough was."""
    from streamkit.testing.coverage import coverage

    enough = True
    for topology, (plan, reached) in session.reached.items():
        found = coverage(plan, reached)
        short = least is not None and found.percent < least
        enough = enough and not short
        _say(f"\n{_relative(topology)}: {found.reached} of {found.steps} steps reached ({found.percent:.0f} %)", "bold")
        for gap in found.gaps:
            _say(f"  {gap}", "yellow")
        if short:
            _say(f"  less than the {least:g} % asked for", "red")
    return enough


def _relative(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _write_junit(path: str, results: list[FileResult]) -> None:
    from streamkit.testing.junit import junit

    try:
        Path(path).write_bytes(junit(results))
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}") from error


def _say(text: str, style: str) -> None:
    if sys.stdout.isatty():
        for line in _styled(text, style):
            print(line)
    else:
        print(text)


def _styled(text: str, style: str) -> Iterator[str]:
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True)
    with console.capture() as captured:
        console.print(Text(text, style=style), end="")
    yield captured.get()
