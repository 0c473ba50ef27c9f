"""Requests to a running application over HTTP."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from streamkit.errors import ConfigError, InstanceError, StreamkitError, UsageError
from streamkit_cli.loading import load_plan

if TYPE_CHECKING:
    from streamkit.http.json_client import Shape
    from streamkit.plan.model import Plan
    from streamkit.serdes.plain import Document

Place = Annotated[
    str,
    typer.Argument(
        metavar="FILE|URL",
        help="A topology that sets application.server, or http://HOST:PORT.",
        show_default=False,
    ),
]
TokenFile = Annotated[
    str | None,
    typer.Option("--token-file", metavar="FILE", help="The bearer token; by default that of STREAMKIT_HTTP_TOKEN."),
]
_SECONDS = 30
TOKEN = "STREAMKIT_HTTP_TOKEN"
"""The environment variable with the token."""


class Connection:
    """A running instance."""

    def __init__(self, url: str, token_file: str | None):
        from streamkit.http.json_client import JsonClient

        self._client = JsonClient(url, read_token(token_file), _SECONDS)
        self.url = self._client.url

    def get(self, path: str, parameters: Mapping[str, object] | None = None, shape: Shape = object) -> Document:
        """Return the answer of a path. Raises StreamkitError with the instance's error, for another shape, or without an answer."""
        try:
            return self._client.request(path, parameters, shape=shape)
        except InstanceError as error:
            if error.status is None:
                raise StreamkitError(f"no application answers at {self.url}: {error}") from error
            raise


def is_url(place: str) -> bool:
    """Return whether a place is an address rather than a file. Raises UsageError for an address without a host."""
    if not place.startswith(("http://", "https://")):
        return False
    try:
        parts = urlsplit(place)
        complete = bool(parts.hostname) and parts.port != 0
    except ValueError:
        complete = False
    if not complete:
        raise UsageError(
            f"{place} is no address of an application; expected http://HOST:PORT, as `run --http` prints it"
        )
    return True


def connect(place: str, settings: list[str] | None, env_file: str | None, token_file: str | None) -> Connection:
    """Return the instance at a URL, or the one that a topology file names. Raises UsageError, ConfigError."""
    if is_url(place):
        if settings or env_file:
            raise UsageError("--set and --env-file belong to a topology file, not to a URL")
        return Connection(place, token_file)
    address = address_of(load_plan(place, settings, env_file))
    if address is None:
        raise ConfigError(f"{place} does not set application.server; give http://HOST:PORT of `run --http` instead")
    return Connection(address, token_file)


def address_of(plan: Plan) -> str | None:
    """Return the URL of application.server; None if the topology does not set it."""
    server = plan.config.application_server
    return f"http://{server}" if server else None


def read_token(file: str | None) -> str | None:
    """Return the token of a file, or of the environment; None if there is none. Raises ConfigError."""
    if file is None:
        token = os.environ.get(TOKEN)
        return _checked(TOKEN, token) if token else None
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--http-token-file {file}: {getattr(error, 'strerror', None) or 'is not UTF-8 text'}"
        ) from error
    if not token:
        raise ConfigError(f"--http-token-file {file}: is empty")
    return _checked(f"--http-token-file {file}", token)


def _checked(source: str, token: str) -> str:
    if not all("!" <= char <= "~" for char in token):
        raise ConfigError(f"{source}: a token consists of letters, digits and signs of ASCII, without blanks")
    return token
