"""Asking a running application over HTTP."""

from __future__ import annotations

import json
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
        self.url = url.rstrip("/")
        self._token = read_token(token_file)

    def get(self, path: str, parameters: dict[str, Any] | None = None) -> Any:
        """Return what a path answers. Raises StreamkitError with the instance's own words, or when none comes."""
        from urllib.error import HTTPError, URLError
        from urllib.parse import urlencode
        from urllib.request import Request, urlopen

        query = urlencode({name: value for name, value in (parameters or {}).items() if value is not None})
        request = Request(f"{self.url}{path}?{query}" if query else f"{self.url}{path}")
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urlopen(request, timeout=_SECONDS) as response:
                return json.load(response)
        except HTTPError as error:
            raise StreamkitError(_told(error.read()) or f"{self.url} answers {error.code}") from error
        except (URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise StreamkitError(
                f"no application answers at {self.url}: {getattr(reason, 'strerror', None) or reason}"
            ) from error
        except ValueError as error:
            raise StreamkitError(f"{self.url} answers with something else than JSON") from error


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


def _told(body: bytes) -> str | None:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return None
