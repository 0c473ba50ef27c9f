"""`streamkit test`: the tests beside topologies."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.errors import Position, StateError, UsageError
from streamkit_cli.command_process import user_log, user_output
from streamkit_cli.guard import FAILED
from streamkit_cli.loading import environment, overrides
from streamkit_cli.options import CiFormat, EnvFile, Problems, Settings
from streamkit_cli.problems import Annotation, show_annotations

if TYPE_CHECKING:
    from streamkit.serdes.plain import Json
    from streamkit.testing.case_runner import Outcome
    from streamkit.testing.suite import FileResult, Session


Paths = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH", help="Test files, topologies, or folders; the current folder by default."),
]
Only = Annotated[
    str,
    typer.Option("--filter", metavar="TEXT", help="Run only tests whose file name or test name contains this text."),
]
Update = Annotated[bool, typer.Option("--update", help="Write the actual output into failing tests.")]
JUnit = Annotated[str | None, typer.Option("--junit", metavar="FILE", help="Write the results as JUnit XML.")]
Coverage = Annotated[bool, typer.Option("--coverage", help="List the steps and branches that no test reached.")]
Least = Annotated[
    float | None,
    typer.Option("--min-coverage", metavar="PERCENT", min=0, max=100, help="Fail below this share of reached steps."),
]
Simulate = Annotated[
    int,
    typer.Option(
        "--simulate", metavar="N", min=0, help="Play each test in N histories: other orders, restarts, crashes."
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="S", min=0, help="The seed of the first history of --simulate; 1 without it."),
]
NO_TESTS = 2
STYLES = {"same": "dim", "expected": "red", "came": "green", "detail": "yellow"}


def run_tests(
    paths: Paths = None,
    only: Only = "",
    update: Update = False,
    junit: JUnit = None,
    coverage: Coverage = False,
    least: Least = None,
    form: Problems = CiFormat.text,
    simulate: Simulate = 0,
    seed: Seed = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int:
    """Run the tests of topologies.

    Tests are in files *.test.yaml. Exit code 0: all tests pass, 1: a test fails or a file has a mistake, 2: there are
    no tests. --simulate plays each test that passes on several partitions and instances, in orders and with faults
    that are drawn from a seed; the output must stay the same.

    Examples:
        streamkit test
        streamkit test orders.test.yaml --filter 'adds up' --update
    """
    from streamkit.testing.suite import Plans, Session, find

    if simulate and update:
        raise UsageError("--simulate cannot be combined with --update: the expected output is that of a single order")
    if seed is not None and not simulate:
        raise UsageError("--seed has no effect without --simulate")
    plans = Plans(environment(env_file), overrides(settings))
    first = 1 if seed is None else seed
    session = Session(plans, only, update, coverage or least is not None, simulate, first)
    results = []
    for result in _quiet(session.run(find(paths or ["."]))):
        results.append(result)
        if form is CiFormat.text:
            _show(result)
    if junit is not None:
        _write_junit(junit, results)
    if form is CiFormat.json:
        return _print_json(session, results, least)
    if form is CiFormat.gitlab:
        # Standard output is the report.
        with user_output():
            code = _summary(results, only, _show_coverage(session, least))
    else:
        code = _summary(results, only, _show_coverage(session, least))
    if form is not CiFormat.text:
        show_annotations(_annotations(results), form.value)
    return code


def _annotations(results: list[FileResult]) -> Iterator[Annotation]:
    """Yield the mistakes in test files and the failures of tests, each with its line."""
    from streamkit.testing.failure_report import body

    for result in results:
        for problem in result.problems:
            yield Annotation("error", "invalid", problem.position, problem.message)
        for outcome in result.outcomes:
            for failure in outcome.failures:
                message = "\n".join([failure.what, *(line.text for line in body(failure))])
                yield Annotation("error", f"test failed: {outcome.case.name}", failure.position, message)


def _quiet(results: Iterator[FileResult]) -> Iterator[FileResult]:
    """Yield results; what user code prints meanwhile goes to stderr."""
    while True:
        with user_output(), user_log():
            result = next(results, None)
        if result is None:
            return
        yield result


def _print_json(session: Session, results: list[FileResult], least: float | None) -> int:
    """Print one JSON object with all results; return the exit code."""
    from streamkit.testing.failure_report import coverage

    covered = {topology: coverage(plan, reached) for topology, (plan, reached) in session.reached.items()}
    passed = not any(result.failed for result in results)
    enough = all(coverage_of.percent >= (least or 0) for coverage_of in covered.values())
    document = {
        "passed": passed and enough,
        "files": [_file_data(result) for result in results],
        "coverage": [
            {
                "topology": str(_relative(topology)),
                "steps": coverage_of.steps,
                "reached": coverage_of.reached,
                "gaps": [{**_place_data(gap.position), "message": gap.text} for gap in coverage_of.gaps],
            }
            for topology, coverage_of in covered.items()
        ],
    }
    print(json.dumps(document, ensure_ascii=False, indent=2))
    if not any(result.outcomes or result.problems for result in results):
        return NO_TESTS
    return 0 if document["passed"] else FAILED


def _file_data(result: FileResult) -> dict[str, Json]:
    from streamkit.testing.failure_report import text

    return {
        "file": str(result.path),
        "rewritten": result.rewritten,
        "problems": [{**_place_data(problem.position), "message": problem.message} for problem in result.problems],
        "tests": [
            {
                "name": outcome.case.name,
                **_place_data(outcome.case.position),
                "passed": not outcome.failures,
                "compares": outcome.case.compares,
                "seconds": round(outcome.seconds, 3),
                **_simulation_data(outcome),
                "failures": [
                    {**_place_data(failure.position), "message": text(failure)} for failure in outcome.failures
                ],
            }
            for outcome in result.outcomes
        ],
    }


def _simulation_data(outcome: Outcome) -> dict[str, Json]:
    simulated = outcome.simulated
    if simulated is None:
        return {}
    return {
        "simulation": {"histories": simulated.histories, "accepted": simulated.accepted, "skipped": simulated.skipped}
    }


def _simulation_note(outcome: Outcome) -> str:
    """Return the note after a test that passes in all histories, or the reason why none was played."""
    simulated = outcome.simulated
    if simulated is None:
        return ""
    if simulated.skipped is not None:
        return f"  (not simulated: {simulated.skipped})"
    accepted = f"; accepted: {', '.join(simulated.accepted)}" if simulated.accepted else ""
    return f"  ({simulated.histories} {'history' if simulated.histories == 1 else 'histories'}{accepted})"


def _place_data(position: Position) -> dict[str, Json]:
    return {"file": position.file, "line": position.line, "column": position.column}


def _summary(results: list[FileResult], only: str, enough: bool) -> int:
    """Show the last line; return the exit code."""
    ran = sum(len(result.outcomes) for result in results)
    failed = sum(bool(outcome.failures) for result in results for outcome in result.outcomes)
    mistaken = sum(bool(result.problems) for result in results)
    if not ran and not mistaken:
        _print_styled(f"no test has {only!r} in its name", "bold red")
        return NO_TESTS
    parts = []
    if ran:
        parts += [f"{ran} tests" if ran != 1 else "1 test", f"{failed} failed" if failed else "all passed"]
    if mistaken:
        parts.append(f"{mistaken} {'files' if mistaken > 1 else 'file'} with mistakes")
    good = not failed and not mistaken and enough
    _print_styled("\n" + ", ".join(parts), "bold green" if good else "bold red")
    return 0 if good else FAILED


def _show(result: FileResult) -> None:
    from streamkit.testing.failure_report import body, head

    if not result.outcomes and not result.problems:
        return
    _print_styled(f"{result.path}{'  (rewritten)' if result.rewritten else ''}", "bold")
    for problem in result.problems:
        _print_styled(f"  {problem}", "red")
    for outcome in result.outcomes:
        if not outcome.failures:
            hint = "" if outcome.case.compares else "  (nothing is compared; --update writes what comes out)"
            hint = _simulation_note(outcome) or hint
            _print_styled(f"  ok    {outcome.case.name}{hint}", "yellow" if hint else "green")
            continue
        _print_styled(f"  FAIL  {outcome.case.name}", "bold red")
        for failure in outcome.failures:
            _print_styled(f"        {head(failure)}", "")
            for line in body(failure):
                _print_styled(f"          {line.text}", STYLES[line.kind])


def _show_coverage(session: Session, least: float | None) -> bool:
    """Show the steps that no test reached; return whether the coverage suffices."""
    from streamkit.testing.failure_report import coverage

    enough = True
    for topology, (plan, reached) in session.reached.items():
        covered = coverage(plan, reached)
        short = least is not None and covered.percent < least
        enough = enough and not short
        _print_styled(
            f"\n{_relative(topology)}: {covered.reached} of {covered.steps} steps reached ({covered.percent:.0f} %)",
            "bold",
        )
        for gap in covered.gaps:
            _print_styled(f"  {gap}", "yellow")
        if short:
            _print_styled(f"  less than the {least:g} % required", "red")
    return enough


def _relative(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _write_junit(path: str, results: list[FileResult]) -> None:
    from streamkit.testing.failure_report import junit

    try:
        Path(path).write_bytes(junit(results))
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}") from error


def _print_styled(text: str, style: str) -> None:
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
