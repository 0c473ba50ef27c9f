"""`streamkit dev`: a topology that runs while it is written."""

from __future__ import annotations

import socket
import threading
import webbrowser
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Annotated

import typer

from streamkit.distribution import install_command
from streamkit.errors import UsageError
from streamkit_cli.guard import print_message
from streamkit_cli.loading import STDIN, overrides, require_file
from streamkit_cli.running.development import (
    Development,
    Options,
    development_folder,
    development_settings,
    require_valid_options,
)
from streamkit_cli.running.development_broker import HOST, DevelopmentBroker, free_port
from streamkit_cli.running.stop_signals import stopping
from streamkit_cli.shared_options import EnvFile, File, Settings

_LOOK_SECONDS = 0.3
_PORT = 8080

Http = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        help="The address of the page; by default port 8080 of this machine, or a free one.",
        show_default=False,
    ),
]
Open = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]
Rate = Annotated[
    str, typer.Option("--rate", metavar="N/s", help="How many records a second the generators of the file write.")
]
Kafka = Annotated[
    bool, typer.Option("--kafka", help="Run a Kafka broker too, with jars that Maven fetches once; it needs Java.")
]
Generate = Annotated[bool, typer.Option("--generate/--no-generate", help="Whether the generators run.")]

EXAMPLES = (
    "streamkit dev orders.yaml --kafka --open",
    "streamkit dev orders.yaml --rate 100/s --set bootstrap.servers=localhost:9092",
)
"""The examples of the help."""


def command(
    file: File,
    http: Http = None,
    opens: Open = False,
    rate: Rate = "10/s",
    generate: Generate = True,
    kafka: Kafka = False,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Run a topology, and start it again whenever its files change; mistakes are shown at once, with their places.

    The log is the embedded one in .streamkit/dev beside the file, unless --set bootstrap.servers names another; output is
    committed each second. --kafka starts a broker, which keeps its data in .streamkit/dev-kafka, and creates the topics of the
    file in it. All files in the folder of the topology are watched. SIGTERM and SIGINT end the command.
    """
    from streamkit_cli.commands.application.generate import per_second

    if file == STDIN:
        raise UsageError("dev needs a topology file, which it can watch")
    require_file(file)
    per_second(rate)
    if http is None and find_spec("uvicorn") is not None and find_spec("starlette") is not None:
        http = f"{HOST}:{free_port(_PORT)}"
    elif http is None:
        print_message(f"there is no page without the extra http: {install_command('http')}")
    pairs = overrides(settings)
    if kafka and "bootstrap.servers" in pairs:
        raise UsageError("--kafka starts a broker of its own: leave --set bootstrap.servers out")
    options = Options(development_settings(file, pairs), env_file, http, rate if generate else None)
    require_valid_options(file, options)
    with stopping() as stop_requested, ExitStack() as ends:
        if kafka:
            broker = DevelopmentBroker(development_folder(file, kafka=True) / "broker")
            ends.callback(broker.close)
            broker.start(stop_requested)
            print_message(f"a Kafka broker runs at {broker.address}")
            options = options._replace(settings=development_settings(file, pairs, broker.address), creates_topics=True)
        if opens and http is not None:
            threading.Thread(target=_open, args=(http, stop_requested), name="open-page", daemon=True).start()
        development = Development(file, options)
        ends.callback(development.close)
        while not stop_requested.is_set():
            development.look()
            stop_requested.wait(_LOOK_SECONDS)


def _open(address: str, stop_requested: threading.Event) -> None:
    """Open the page as soon as something listens there."""
    host, _, port = address.rpartition(":")
    while not stop_requested.wait(_LOOK_SECONDS):
        try:
            socket.create_connection((host.strip("[]") or "127.0.0.1", int(port)), 1).close()
        except (OSError, ValueError):
            continue
        webbrowser.open(f"http://{address if host else f'127.0.0.1:{port}'}")
        return
