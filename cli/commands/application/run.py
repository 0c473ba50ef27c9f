"""`streamkit run`: the application, until a signal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from streamkit.errors import (
    DeserializationError,
    EventLoopError,
    ProcessingError,
    ProcessorStartError,
    StreamkitError,
    UsageError,
)
from streamkit_cli.loading import STDIN, load_plan
from streamkit_cli.running.log_output import (
    Form,
    Level,
    LogFormat,
    LogLevel,
    chosen_level,
    count_repeats,
    log_end,
    name_applications,
    set_up,
)
from streamkit_cli.running.serving import NO_HTTP, HttpOptions, serving
from streamkit_cli.running.user_output import user_output
from streamkit_cli.shared_options import EnvFile, Settings

if TYPE_CHECKING:
    from streamkit.http.overview import Served
    from streamkit.plan.model import Plan
    from streamkit.runtime.local.instance.client import Application

Files = Annotated[list[str], typer.Argument(metavar="FILE…", help="Topology files; - is stdin.", show_default=False)]
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
    """The options that decide how a run starts and ends."""

    until_idle: bool
    response: FailureResponse
    force: bool


class FailureResponse(StrEnum):
    """The responses to a failure of a stream thread (StreamThreadExceptionResponse)."""

    replace_thread = "replace-thread"
    shutdown_client = "shutdown-client"
    shutdown_application = "shutdown-application"


OnFailure = Annotated[
    FailureResponse,
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
Hosts = Annotated[
    str | None,
    typer.Option(
        "--http-hosts",
        metavar="NAME,NAME",
        help="Host names by which clients address --http; other names are refused. Loopback is always accepted.",
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

EXAMPLES = (
    "streamkit run orders.yaml --http 127.0.0.1:8080",
    "streamkit run orders.yaml payments.yaml --set bootstrap.servers=localhost:9092 --until-idle",
)
"""The examples of the help."""


def command(
    context: typer.Context,
    files: Files,
    until_idle: UntilIdle = False,
    force: Force = False,
    processes: Processes = None,
    on_thread_failure: OnFailure = FailureResponse.shutdown_client,
    http: Http = None,
    http_token_file: TokenFile = None,
    http_hosts: Hosts = None,
    live: Live = None,
    log_format: Form = LogFormat.text,
    log_level: Level = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int | None:
    """Run a topology on its log, or several in one process.

    bootstrap.servers names the log: Kafka, or the embedded one. After SIGTERM or SIGINT it commits and ends, exit code 0.
    With --processes, SIGHUP restarts the instances one after the other, and each has its own port of --http, one up.
    Several topologies are separate applications, which end together; --http is then a page of all, and each of them has
    its own port, one up.
    """
    level = chosen_level(context, log_level, until_idle)
    set_up(log_format, level)
    try:
        if processes is not None:
            from streamkit_cli.running.processes import run_instances

            if len(files) > 1:
                raise UsageError("--processes runs one topology: start one command for each")
            if files[0] == STDIN:
                raise UsageError("--processes needs a topology file: stdin can be read only once")
            return run_instances(load_plan(files[0], settings, env_file, imports=True), processes, settings)
        drawn = _is_terminal(log_format) if live is None else live
        behaviour = _Behaviour(until_idle, on_thread_failure, force)
        if live and len(files) > 1:
            raise UsageError("--live shows one application; several have a page at --http")
        _run(
            files,
            settings,
            env_file,
            HttpOptions(http, http_token_file, http_hosts),
            behaviour,
            level if drawn and len(files) == 1 else None,
        )
    except StreamkitError as error:
        if log_format is LogFormat.text:
            hint = _hint_to_go_on(error)
            if hint:
                error.add_note(hint)
            raise
        # Programs that collect lines of JSON expect the last line to be JSON too.
        return log_end(error)
    finally:
        count_repeats()
    return None


_PLACE = re.compile(r"topic (\S+), partition ([0-9]+), offset ([0-9]+)", re.ASCII)
"""The place of the record in the message of a failure (reasons.place_of)."""


def _hint_to_go_on(error: StreamkitError) -> str | None:
    """Return how to continue an application that fails at the same record at each start; None for other errors."""
    match = _PLACE.search(str(error))
    place = "TOPIC-PARTITION@OFFSET" if match is None else f"{match[1]}-{match[2]}@{match[3]}"
    skip = f"or skip this record with reset-offsets --skip {place}"
    if isinstance(error, DeserializationError):
        return f"to go on without it, set deserialization.exception.handler: continue, {skip}"
    if isinstance(error, ProcessingError) and not isinstance(error, ProcessorStartError | EventLoopError):
        return f"to go on without it, set 'on_error' of the step or processing.exception.handler: continue, {skip}"
    return None


def _run(
    files: list[str],
    settings: list[str] | None,
    env_file: str | None,
    http: HttpOptions,
    behaviour: _Behaviour,
    drawn: LogLevel | None,
) -> None:
    from streamkit.runtime.operations.opening import open_log
    from streamkit_cli.logs import announce
    from streamkit_cli.running.several_applications import load_plans, run_together
    from streamkit_cli.running.stop_signals import stopping

    # Before all other work, so that a signal during the start ends the application in order too.
    with stopping() as stop_requested:
        from streamkit.runtime.execution.collecting import collect_rarely, few_arenas
        from streamkit.runtime.local.instance.client import Application
        from streamkit.runtime.local.instance.supervisor import ENDS_ALL, watch_lifeline

        collect_rarely()
        few_arenas()
        supervised = watch_lifeline(stop_requested)
        plans = load_plans(files, settings, env_file)
        if not any(plan.config["allow.os.group.write.access"] for plan in plans):
            # The engines of stores create their files by themselves, at any time.
            os.umask(os.umask(0o077) | 0o077)

        def run_one(plan: Plan, address: str | None, served: list[Served]) -> None:
            own = http._replace(address=address) if address is not None or len(plans) == 1 else NO_HTTP
            with serving(plan, own) as (plan, serve), closing(open_log(plan)) as transport:
                application = Application(plan, transport)
                application.set_uncaught_exception_handler(lambda error: behaviour.response.value)
                application.force = behaviour.force
                application.print_line = partial(print, file=stdout)
                serve(application)
                served.append((application, plan.config["application.server"]))
                with _shown(application, plan, drawn):
                    try:
                        application.run(until_idle=behaviour.until_idle, stop=stop_requested)
                    except StreamkitError as error:
                        if supervised and application.ends_all:
                            error.exit_code = ENDS_ALL
                        raise

        announce(plans[0])
        with user_output() as stdout:
            if len(plans) == 1:
                run_one(plans[0], http.address, [])
            else:
                name_applications(plan.application for plan in plans)
                run_together(plans, http, run_one, stop_requested)


@contextmanager
def _shown(application: Application, plan: Plan, drawn: LogLevel | None) -> Iterator[None]:
    """Show the application on the terminal at this level of the log, or in lines of the log."""
    if drawn is None:
        from streamkit_cli.running.summaries import summaries

        with summaries(application, plan.config["log.summary.interval.ms"]):
            yield
        return
    from rich.console import Console

    from streamkit_cli.running import live

    console = Console(stderr=True)
    set_up(LogFormat.text, drawn, live.ConsoleHandler(console))
    try:
        with live.table(application, console):
            yield
    finally:
        set_up(LogFormat.text, drawn)


def _is_terminal(form: LogFormat) -> bool:
    return form is LogFormat.text and sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
