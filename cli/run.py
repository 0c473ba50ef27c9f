"""`streamkit run`: the application, until a signal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from streamkit.errors import DeserializationError, ProcessingError, StreamkitError, UsageError

from .loading import STDIN, load_plan
from .log_output import Form, Level, LogFormat, LogLevel, chosen_level, count_repeats, last_word, set_up
from .options import EnvFile, File, Settings

if TYPE_CHECKING:
    from streamkit.plan.model import Plan
    from streamkit.runtime.local.client import Application

UntilIdle = Annotated[bool, typer.Option("--until-idle", help="End when every input is read to its end and committed.")]

Force = Annotated[
    bool, typer.Option("--force", help="Start although changelogs hold rows that this version would misread.")
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes", metavar="N", min=1, help="Run N instances, each a process that is started again when it fails."
    ),
]


class _Behaviour(NamedTuple):
    """How a run ends, and whether it begins in any case."""

    until_idle: bool
    answer: Answer
    force: bool


class Answer(StrEnum):
    """What may follow when a stream thread fails."""

    replace_thread = "replace-thread"
    shutdown_client = "shutdown-client"
    shutdown_application = "shutdown-application"


OnFailure = Annotated[
    Answer,
    typer.Option(
        "--on-thread-failure",
        help="When a stream thread fails: have another take its tasks, end this instance, or end all.",
    ),
]
Http = Annotated[
    str | None,
    typer.Option(
        "--http", metavar="HOST:PORT", help="Answer over HTTP: a page, state, queries and metrics; /api lists all."
    ),
]
TokenFile = Annotated[
    str | None,
    typer.Option(
        "--http-token-file",
        metavar="FILE",
        help="The bearer token that --http asks for; by default that of STREAMKIT_HTTP_TOKEN, if any.",
    ),
]


Live = Annotated[
    bool | None,
    typer.Option(
        "--live/--no-live",
        help="Show rates, lag, tasks and restoring as a table; the default on a terminal.",
        show_default=False,
    ),
]


def command(
    context: typer.Context,
    file: File,
    until_idle: UntilIdle = False,
    force: Force = False,
    processes: Processes = None,
    on_thread_failure: OnFailure = Answer.shutdown_client,
    http: Http = None,
    http_token_file: TokenFile = None,
    live: Live = None,
    log_format: Form = LogFormat.text,
    log_level: Level = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int | None:
    """Run a topology on its log.

    The log is Kafka or the embedded one, as bootstrap.servers says. Ends in order by SIGTERM or SIGINT, exit code 0.
    With --processes, SIGHUP restarts the instances one after the other, and each has its own port of --http, one up.
    """
    level = chosen_level(context, log_level, until_idle)
    set_up(log_format, level)
    try:
        if processes is not None:
            from .processes import run_instances

            if file == STDIN:
                raise UsageError("--processes needs a topology file: stdin can be read only once")
            return run_instances(load_plan(file, settings, env_file), processes)
        drawn = _is_terminal(log_format) if live is None else live
        behaviour = _Behaviour(until_idle, on_thread_failure, force)
        _run(file, settings, env_file, (http, http_token_file), behaviour, level if drawn else None)
    except StreamkitError as error:
        if log_format is LogFormat.text:
            ways = _ways_on(error)
            if ways:
                error.add_note(ways)
            raise
        # Programs that collect lines of JSON expect the last one to be like the others.
        return last_word(error)
    finally:
        count_repeats()
    return None


def _ways_on(error: StreamkitError) -> str | None:
    """Return what lets an application go on that ends at the same record at each start; None for other errors."""
    skip = "or skip a record of each partition with reset-offsets --shift-by 1"
    if isinstance(error, DeserializationError):
        return f"to go on without it, set deserialization.exception.handler: continue, {skip}"
    if isinstance(error, ProcessingError):
        return f"to go on without it, set 'on_error' of the step or processing.exception.handler: continue, {skip}"
    return None


def _run(
    file: str,
    settings: list[str] | None,
    env_file: str | None,
    http: tuple[str | None, str | None],
    behaviour: _Behaviour,
    drawn: LogLevel | None,
) -> None:
    from .logs import opened
    from .serving import serving
    from .stop_signals import stopping

    # First of all, so that a signal during the start ends in order too.
    with stopping() as asked:
        from streamkit.runtime.collecting import collect_rarely, few_arenas
        from streamkit.runtime.local.client import Application
        from streamkit.runtime.local.supervisor import ENDS_ALL, watch_lifeline

        collect_rarely()
        few_arenas()
        supervised = watch_lifeline(asked)
        plan = load_plan(file, settings, env_file)
        with serving(plan, *http) as (plan, serve), opened(plan) as transport:
            application = Application(plan, transport)
            application.set_uncaught_exception_handler(lambda error: behaviour.answer.value)
            application.force = behaviour.force
            serve(application)
            with _watched(application, plan, drawn):
                try:
                    application.run(until_idle=behaviour.until_idle, stop=asked)
                except StreamkitError as error:
                    if supervised and application.ends_all:
                        error.exit_code = ENDS_ALL
                    raise


@contextmanager
def _watched(application: Application, plan: Plan, drawn: LogLevel | None) -> Iterator[None]:
    """Show the application on the terminal at this level of the log, or in lines of the log."""
    if drawn is None:
        from .summaries import summaries

        with summaries(application, plan.config["log.summary.interval.ms"]):
            yield
        return
    from rich.console import Console

    from . import live

    console = Console(stderr=True)
    set_up(LogFormat.text, drawn, live.ConsoleHandler(console))
    try:
        with live.table(application, console):
            yield
    finally:
        set_up(LogFormat.text, drawn)


def _is_terminal(form: LogFormat) -> bool:
    return form is LogFormat.text and sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
