"""`streamkit run` runs the application until a signal."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from streamkit.distribution import install_command
from streamkit.errors import (
    ConfigError,
    DeserializationError,
    EventLoopError,
    Problem,
    ProcessingError,
    ProcessorStartError,
    StreamkitError,
    TopologyError,
    UsageError,
)
from streamkit.state.directory import instance_directory
from streamkit.suggestions import number_of
from streamkit_cli.command_process import (
    VERBOSE,
    LogLevel,
    count_repeats,
    log_end,
    name_applications,
    restarting,
    set_up_log,
    stopping,
    user_output,
)
from streamkit_cli.loading import SETTINGS, STDIN, announce, load_plan, overrides
from streamkit_cli.options import EnvFile, Format, Settings
from streamkit_cli.remote import read_token
from streamkit_cli.tables import count, eta

if TYPE_CHECKING:
    from streamkit.config import Config
    from streamkit.http.endpoint_app import HttpServer, Served
    from streamkit.plan.model import Plan
    from streamkit.runtime.local.client import Application
    from streamkit.runtime.local.status_model import ApplicationStatus


Files = Annotated[list[str], typer.Argument(metavar="FILE…", help="Topology files; - is stdin.", show_default=False)]
UntilIdle = Annotated[
    bool, typer.Option("--until-idle", help="Stop when every input is processed to its end and committed.")
]

Force = Annotated[
    bool, typer.Option("--force", help="Start even if changelogs contain rows that this version would misread.")
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes", metavar="N", min=1, help="Run N instances, each in a process that is restarted if it fails."
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
        help="When a stream thread fails: replace it, stop this instance, or stop all instances.",
    ),
]
Http = Annotated[
    str | None,
    typer.Option(
        "--http", metavar="HOST:PORT", help="Serve a page, state, queries and metrics over HTTP; /api lists all paths."
    ),
]
TokenFile = Annotated[
    str | None,
    typer.Option(
        "--http-token-file",
        metavar="FILE",
        help="The file with the bearer token that --http requires; by default STREAMKIT_HTTP_TOKEN, if set.",
    ),
]
Hosts = Annotated[
    str | None,
    typer.Option(
        "--http-hosts",
        metavar="NAME,NAME",
        help="Host names that clients may use for --http; others are refused. Loopback is always accepted.",
    ),
]


Live = Annotated[
    bool | None,
    typer.Option(
        "--live/--no-live",
        help="Show rates, lag, tasks and restores as a table; the default on a terminal.",
        show_default=False,
    ),
]


def run(
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
    log_format: Form = Format.text,
    log_level: Level = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int | None:
    """Run a topology on its log, or several in one process.

    bootstrap.servers selects the log: Kafka or the embedded log. On SIGTERM or SIGINT the command commits and exits
    with code 0. With --processes, SIGHUP restarts the instances one after the other; their ports count up from the port
    of --http. Several topologies run as separate applications, which end together. --http then serves an overview, and
    the applications use the ports after it.

    Examples:
        streamkit run orders.yaml --http 127.0.0.1:8080
        streamkit run orders.yaml payments.yaml --set bootstrap.servers=localhost:9092 --until-idle
    """
    level = chosen_level(context, log_level, until_idle)
    set_up_log(level, log_format is Format.json)
    try:
        if processes is not None:
            if len(files) > 1:
                raise UsageError("--processes runs one topology: start one command for each")
            if files[0] == STDIN:
                raise UsageError("--processes needs a topology file: stdin can be read only once")
            return run_instances(load_plan(files[0], settings, env_file, imports=True), processes, settings)
        shows_table = _is_terminal(log_format) if live is None else live
        behaviour = _Behaviour(until_idle, on_thread_failure, force)
        if live and len(files) > 1:
            raise UsageError("--live shows only one application; --http serves a page about several")
        _run(
            files,
            settings,
            env_file,
            HttpOptions(http, http_token_file, http_hosts),
            behaviour,
            level if shows_table and len(files) == 1 else None,
        )
    except StreamkitError as error:
        if log_format is Format.text:
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
"""The place of the record in the message of a failure (runtime.execution.dead_letters.place_of)."""


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
    table_level: LogLevel | None,
) -> None:
    from streamkit.runtime.operations.opening import open_log

    # Before all other work, so that the application also ends cleanly on a signal during its start.
    with stopping() as stop_requested:
        from streamkit.runtime.execution.collecting import collect_rarely, few_arenas
        from streamkit.runtime.local.client import Application
        from streamkit.runtime.local.supervisor import ENDS_ALL, watch_lifeline

        collect_rarely()
        few_arenas()
        supervised = watch_lifeline(stop_requested)
        plans = load_plans(files, settings, env_file)
        if not any(plan.config.allow_os_group_write_access for plan in plans):
            # Store engines create files at any time, so only the umask can restrict their permissions.
            os.umask(os.umask(0o077) | 0o077)

        def run_one(plan: Plan, address: str | None, served: list[Served]) -> None:
            own = http._replace(address=address) if address is not None or len(plans) == 1 else NO_HTTP
            with serving(plan, own) as (plan, serve), closing(open_log(plan)) as transport:
                application = Application(plan, transport)
                application.set_uncaught_exception_handler(lambda error: behaviour.response.value)
                application.force = behaviour.force
                application.print_line = partial(print, file=stdout)
                serve(application)
                served.append((application, plan.config.application_server))
                with _show_state(application, plan, table_level):
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
def _show_state(application: Application, plan: Plan, table_level: LogLevel | None) -> Iterator[None]:
    """Show the state as a live table below log lines of at least `table_level`; without a level, in the log."""
    if table_level is None:
        with summaries(application, plan.config.log_summary_interval_ms):
            yield
        return
    from rich.console import Console

    from streamkit_cli import live

    console = Console(stderr=True)
    set_up_log(table_level, handler=live.ConsoleHandler(console))
    try:
        with live.table(application, console):
            yield
    finally:
        set_up_log(table_level)


def _is_terminal(form: Format) -> bool:
    return form is Format.text and sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


# `run` with several topologies: separate applications in one process, which end together.

RunOne = Callable[["Plan", str | None, list["Served"]], None]
"""Runs one application until its end: (plan, address of its server, list of what is served, which it extends)."""


def load_plans(files: list[str], settings: list[str] | None, env_file: str | None) -> list[Plan]:
    """Return the plans of several files.

    Raises TopologyError with the problems of all files, and UsageError if two have the same application id.
    """
    if len(files) > 1 and STDIN in files:
        raise UsageError("stdin can hold only one topology; pass several as files")
    plans: list[Plan] = []
    problems: list[Problem] = []
    for file in files:
        try:
            plans.append(load_plan(file, settings, env_file, imports=True))
        except TopologyError as error:
            problems += error.problems
    if problems:
        raise TopologyError(problems)
    known: dict[str, Plan] = {}
    for plan in plans:
        if plan.application in known:
            first = known[plan.application].file
            raise UsageError(
                f"{first} and {plan.file} define the same application, {plan.application}; give each its own name"
            )
        known[plan.application] = plan
    return plans


def run_together(plans: list[Plan], http: HttpOptions, run_one: RunOne, stop_requested: threading.Event) -> None:
    """Run each application in a thread until all have ended. If one fails, the others stop cleanly.

    Raises the first error.
    """
    served: list[Served] = []
    errors: list[BaseException] = []

    def run(plan: Plan, address: str | None) -> None:
        try:
            run_one(plan, address, served)
        except BaseException as error:
            if isinstance(error, StreamkitError):
                error.add_note(f"the application {plan.application} failed, so the others were stopped")
            errors.append(error)
            stop_requested.set()

    with _overview(http, served, plans[0].config):
        threads = [
            threading.Thread(target=run, args=(plan, _port_of(http.address, number)), name=plan.application)
            for number, plan in enumerate(plans, 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def _port_of(http: str | None, number: int) -> str | None:
    """Return the address of one application's server: the overview's address, with `number` added to the port."""
    if http is None:
        return None
    require_http()
    from streamkit.http.endpoint_app import parse_address

    host, port = parse_address(http)
    if port + number > 65535:
        raise UsageError(
            f"--http {http}: each application needs its own port above this one, and {port + number} is too high"
        )
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port + number if port else 0}"


@contextmanager
def _overview(http: HttpOptions, served: list[Served], config: Config) -> Iterator[None]:
    server = http.bind()
    if server is None:
        yield
        return
    try:
        server.start_overview(lambda: list(served), config)
        yield
    finally:
        server.close()


# `streamkit run --processes N`: the command lines of the instances, under one supervisor.


def run_instances(plan: Plan, count: int, settings: list[str] | None) -> int:
    """Run `count` instances of a valid topology until they end; return the exit code.

    They get the settings of `--set` in their environment: all users of a machine can read command lines, and settings
    may be secrets.
    """
    from streamkit.runtime.local.supervisor import Supervisor

    arguments = remove_option(remove_option(sys.argv[1:], "--processes"), "--set")
    numbers = range(1, count + 1)
    commands = [[sys.executable, "-m", "streamkit_cli", *shifted(arguments, number)] for number in numbers]
    shared = overrides(settings)
    environments = [{SETTINGS: json.dumps({**shared, **own_settings(plan, number)})} for number in numbers]
    with stopping() as stop, restarting() as restart:
        return Supervisor(commands, sys.stdout.buffer, sys.stderr.buffer, environments).run(stop, restart)


def own_settings(plan: Plan, number: int) -> dict[str, str]:
    """Return the settings in which an instance differs from the others, mainly its state directory.

    The first instance uses `state.dir` itself, so that switching between one process and several keeps its state. The
    others use `instance-N` in that directory. All share the embedded log of the first.
    """
    config = plan.config
    state = Path(config.state_dir)
    pairs = {}
    if number > 1:
        pairs["state.dir"] = str(instance_directory(state, number))
        if config.embedded and list(config.bootstrap_servers) == ["embedded"]:
            pairs["bootstrap.servers"] = f"embedded:{state / 'embedded'}"
        static = config.group_instance_id
        if static:
            pairs["group.instance.id"] = f"{static}-{number}"
    return pairs


def remove_option(arguments: Sequence[str], option: str) -> list[str]:
    """Return a command line without an option and its values.

    >>> remove_option(["run", "a.yaml", "--processes", "3", "--processes=2", "--until-idle"], "--processes")
    ['run', 'a.yaml', '--until-idle']
    """
    left, skip = [], False
    for argument in arguments:
        if not skip and argument != option and not argument.startswith(f"{option}="):
            left.append(argument)
        skip = not skip and argument == option
    return left


# The log of `run`.

Form = Annotated[Format, typer.Option("--log-format", envvar="STREAMKIT_LOG_FORMAT", help="The format of log lines.")]
Level = Annotated[
    LogLevel | None,
    typer.Option(
        "--log-level",
        envvar="STREAMKIT_LOG_LEVEL",
        help="The lowest level of log lines; info by default, with --until-idle warning.",
        show_default=False,
    ),
]


def chosen_level(context: typer.Context, level: LogLevel | None, until_idle: bool) -> LogLevel:
    """Return the log level of a run. A job that ends by itself logs only warnings, so that cron stays silent.

    The command line, including --verbose, overrides the environment.
    """
    source = context.get_parameter_source("log_level")
    typed = source is not None and source.name == "COMMANDLINE"
    if VERBOSE in sys.argv and not typed:
        return LogLevel.debug
    if level is not None:
        return level
    return LogLevel.warning if until_idle else LogLevel.info


# `run --http`: serves the application over HTTP, from before its start to after its end.


class HttpOptions(NamedTuple):
    """The HTTP options of `run`."""

    address: str | None
    token_file: str | None
    hosts: str | None

    def bind(self) -> HttpServer | None:
        """Return a server that is bound to the address, or None without an address. Raises UsageError, ConfigError."""
        if self.address is None:
            for option, value in (("--http-token-file", self.token_file), ("--http-hosts", self.hosts)):
                if value is not None:
                    raise UsageError(f"{option} needs --http")
            return None
        require_http()
        from streamkit.http.endpoint_app import HttpServer, parse_address

        return HttpServer(*parse_address(self.address), read_token(self.token_file), self.hosts)


NO_HTTP = HttpOptions(None, None, None)


def has_http() -> bool:
    """Return whether the extra `http` is installed."""
    return all(find_spec(name) is not None for name in ("starlette", "uvicorn", "prometheus_client"))


def require_http() -> None:
    """Raise ConfigError unless the extra `http` is installed."""
    if not has_http():
        raise ConfigError(f"--http needs the extra http: {install_command('http')}")


@contextmanager
def serving(plan: Plan, http: HttpOptions) -> Iterator[tuple[Plan, Callable[[Application], None]]]:
    """Yield the plan to run, and a function that starts to serve its application, if there is an address.

    The plan gets the address as application.server, unless that is set. Raises UsageError, ConfigError.
    """
    server = http.bind()
    if server is None:
        yield plan, lambda application: None
        return
    try:
        if not plan.config.application_server:
            plan = replace(plan, config=plan.config.with_setting("application.server", server.address, "--http"))
        yield plan, server.start
    finally:
        server.close()


def shifted(arguments: list[str], number: int) -> list[str]:
    """Return the command line of instance `number`, counted from 1: each one has its own port, counted up from the first.

    >>> shifted(["run", "--http", "127.0.0.1:8080", "--http=:0"], 3)
    ['run', '--http', '127.0.0.1:8082', '--http=:0']
    """
    result = []
    for at, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option == "--http" and equals:
            result.append(f"--http={_shift_port(value, number)}")
        elif at and arguments[at - 1] == "--http":
            result.append(_shift_port(argument, number))
        else:
            result.append(argument)
    return result


def _shift_port(address: str, number: int) -> str:
    host, colon, port = address.rpartition(":")
    return f"{host}{colon}{int(port) + number - 1}" if port.isdigit() and int(port) else address


# The state of a running application, as a line of the log at intervals.


log = logging.getLogger("streamkit.run")


@contextmanager
def summaries(application: Application, interval_ms: int) -> Iterator[None]:
    """Log the state at each interval (log.summary.interval.ms; never for 0 or less) until the end of the block."""
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(interval_ms / 1000):
            log.info("%s", summary(application.status()))

    thread = threading.Thread(target=write, name="summaries", daemon=True)
    if interval_ms > 0:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread.ident is not None:
            thread.join()


def summary(status: ApplicationStatus) -> str:
    """Return the state in one line."""
    parts = [
        f"{number_of(len(status.tasks), 'task')} on {number_of(len(status.threads), 'thread')}",
        f"{status.rate:,.0f} records/s",
        f"lag {count(status.lag)}",
    ]
    if status.unowned:
        parts.append(f"{len(status.unowned)} of {len(status.inputs)} input partitions without an owner")
    dropped, letters = (sum(getattr(drop, name) for drop in status.drops) for name in ("dropped", "dead_letters"))
    if dropped:
        parts.append(f"{dropped:,} records dropped, {letters:,} dead letters")
    if status.restoring:
        left = sum(store.total - store.restored for store in status.restoring)
        parts.append(
            f"restoring {number_of(len(status.restoring), 'changelog')}, {left:,} records left, {eta(_longest_eta(status))}"
        )
    return f"{status.application} {status.shown_state}: {', '.join(parts)}"


def _longest_eta(status: ApplicationStatus) -> float | None:
    times = [store.eta_seconds for store in status.restoring]
    return None if None in times else max((time for time in times if time is not None), default=None)
