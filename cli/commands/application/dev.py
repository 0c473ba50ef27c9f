"""`streamkit dev`: a topology that runs while it is written."""

from __future__ import annotations

import socket
import threading
import webbrowser
from importlib.util import find_spec
from typing import Annotated

import typer

from streamkit.distribution import install_command
from streamkit.errors import UsageError
from streamkit_cli.guard import print_message
from streamkit_cli.loading import STDIN, overrides, require_file
from streamkit_cli.running.development import Development, Options, development_settings, require_valid_options
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
Generate = Annotated[bool, typer.Option("--generate/--no-generate", help="Whether the generators run.")]

EXAMPLES = (
    "streamkit dev orders.yaml --open",
    "streamkit dev orders.yaml --rate 100/s --set bootstrap.servers=localhost:9092",
)
"""The examples of the help."""


def command(
    file: File,
    http: Http = None,
    opens: Open = False,
    rate: Rate = "10/s",
    generate: Generate = True,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Run a topology, and start it again whenever its files change; mistakes are shown at once, with their places.

    The log is the embedded one in .streamkit/dev beside the file, unless --set bootstrap.servers names another; output is
    committed each second. All files in the folder of the topology are watched. SIGTERM and SIGINT end the command.
    """
    from streamkit_cli.commands.application.generate import per_second

    if file == STDIN:
        raise UsageError("dev needs a topology file, which it can watch")
    require_file(file)
    per_second(rate)
    if http is None and find_spec("uvicorn") is not None and find_spec("starlette") is not None:
        http = f"127.0.0.1:{_free_port()}"
    elif http is None:
        print_message(f"there is no page without the extra http: {install_command('http')}")
    options = Options(development_settings(file, overrides(settings)), env_file, http, rate if generate else None)
    require_valid_options(file, options)
    with stopping() as stop_requested:
        if opens and http is not None:
            threading.Thread(target=_open, args=(http, stop_requested), name="open-page", daemon=True).start()
        development = Development(file, options)
        try:
            while not stop_requested.is_set():
                development.look()
                stop_requested.wait(_LOOK_SECONDS)
        finally:
            development.close()


def _free_port() -> int:
    """Return the port of the page, one that stays the same when the application starts again."""
    for port in (_PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            bound: int = probe.getsockname()[1]
            return bound
    raise UsageError("no port is free for the page; give --http HOST:PORT")


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
