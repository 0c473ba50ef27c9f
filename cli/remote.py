"""Requests of commands to a running application over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamkit.errors import ConfigError, StreamkitError, UsageError

from .loading import load_plan
from .serving import read_token

if TYPE_CHECKING:
    from streamkit.plan.model import Plan

Place = Annotated[
    str,
    typer.Argument(
        metavar="FILE|URL",
        help="A topology whose application.server says where it answers, or http://HOST:PORT.",
        show_default=False,
    ),
]
TokenFile = Annotated[
    str | None,
    typer.Option("--token-file", metavar="FILE", help="The bearer token; by default that of STREAMKIT_HTTP_TOKEN."),
]
_SECONDS = 30


class Connection:
    """A running instance."""

    def __init__(self, url: str, token_file: str | None):
        from streamkit.http.json_client import JsonClient

        self._client = JsonClient(url, read_token(token_file), _SECONDS)
        self.url = self._client.url

    def get(self, path: str, parameters: dict[str, Any] | None = None) -> Any:
        """Return what a path answers. Raises StreamkitError with the instance's error, or when no answer comes."""
        from http.client import HTTPException

        from streamkit.http.json_client import reason_of

        try:
            answer = self._client.ask(path, parameters)
        except (OSError, HTTPException) as error:
            reason = reason_of(error)
            raise StreamkitError(
                f"no application answers at {self.url}: {getattr(reason, 'strerror', None) or reason}"
            ) from error
        if answer.status >= 400:
            raise StreamkitError(answer.error or f"{self.url} answers {answer.status}")
        if answer.content is None:
            raise StreamkitError(f"{self.url} answers with something else than JSON")
        return answer.content


def is_url(place: str) -> bool:
    """Return whether a place is an address rather than a file."""
    return place.startswith(("http://", "https://"))


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
    """Return the URL that a topology says its application answers at."""
    server = plan.config["application.server"]
    return f"http://{server}" if server else None
