"""`run --http`: serves the application over HTTP, from before its start to after its end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from streamkit.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from streamkit.http.http_server import HttpServer
    from streamkit.plan.model import Plan
    from streamkit.runtime.local.client import Application

TOKEN = "STREAMKIT_HTTP_TOKEN"
"""The environment variable with the token."""


class HttpOptions(NamedTuple):
    """The options of `run` about HTTP."""

    address: str | None
    token_file: str | None
    hosts: str | None

    def bind(self) -> HttpServer | None:
        """Return a server at the address; None without one. Raises UsageError, ConfigError."""
        if self.address is None:
            for option, value in (("--http-token-file", self.token_file), ("--http-hosts", self.hosts)):
                if value is not None:
                    raise UsageError(f"{option} needs --http")
            return None
        from streamkit.http.http_server import HttpServer, parse_address

        return HttpServer(*parse_address(self.address), read_token(self.token_file), self.hosts)


NO_HTTP = HttpOptions(None, None, None)


@contextmanager
def serving(plan: Plan, http: HttpOptions) -> Iterator[tuple[Plan, Callable[[Application], None]]]:
    """Give the plan to run, and a function that serves its application; without an address it does nothing.

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


def read_token(file: str | None) -> str | None:
    """Return the token of a file, or of the environment; None where there is none. Raises ConfigError."""
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


def shifted(arguments: list[str], number: int) -> list[str]:
    """Return the command line of instance `number`, counted from 1: each one has a port of its own, one up.

    >>> shifted(["run", "--http", "127.0.0.1:8080", "--http=:0"], 3)
    ['run', '--http', '127.0.0.1:8082', '--http=:0']
    """
    result = []
    for at, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option == "--http" and equals:
            result.append(f"--http={_up(value, number)}")
        elif at and arguments[at - 1] == "--http":
            result.append(_up(argument, number))
        else:
            result.append(argument)
    return result


def _up(address: str, number: int) -> str:
    host, colon, port = address.rpartition(":")
    return f"{host}{colon}{int(port) + number - 1}" if port.isdigit() and int(port) else address
