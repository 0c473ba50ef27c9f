"""`streamkit run`: the application, until a signal."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .loading import load_plan
from .options import EnvFile, File, Settings

UntilIdle = Annotated[bool, typer.Option("--until-idle", help="End when every input is read to its end and committed.")]

Processes = Annotated[
    int | None,
    typer.Option(
        "--processes", metavar="N", min=1, help="Run N instances, each a process that is started again when it fails."
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


def command(
    file: File,
    until_idle: UntilIdle = False,
    processes: Processes = None,
    http: Http = None,
    http_token_file: TokenFile = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int | None:
    """Run a topology on its log.

    The log is Kafka or the embedded one, as bootstrap.servers says. Ends in order by SIGTERM or SIGINT, exit code 0.
    With --processes, SIGHUP restarts the instances one after the other, and each has its own port of --http, one up.
    """
    import logging

    from .logs import opened
    from .serving import serving
    from .signals import stopping

    level = logging.INFO if "--verbose" in sys.argv else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    # First of all, so that a signal during the start ends in order too.
    if level is not logging.INFO:
        # What the clients say of their connections is for whoever looks closely; what matters comes as an error or warning.
        for clients in ("streamkit.kafka", "kafka"):
            logging.getLogger(clients).setLevel(logging.CRITICAL + 1)
    if processes is not None:
        from .instances import run_instances

        return run_instances(load_plan(file, settings, env_file), processes)
    with stopping() as asked:
        from streamkit.runtime.local.client import Application
        from streamkit.runtime.local.supervisor import watch_lifeline

        watch_lifeline(asked)
        plan = load_plan(file, settings, env_file)
        with serving(plan, http, http_token_file) as (plan, serve), opened(plan) as transport:
            application = Application(plan, transport)
            serve(application)
            application.run(until_idle=until_idle, stop=asked)
    return None
