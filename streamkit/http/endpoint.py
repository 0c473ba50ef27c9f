"""An endpoint: its route, its handler and its documentation in one place."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, overload

from starlette.responses import Response

from streamkit.errors import QueryError

if TYPE_CHECKING:
    from starlette.requests import Request

    from streamkit.http.service import Service


JSON = "application/json"


@dataclass(frozen=True)
class Parameter:
    """A parameter in the query, or in the path if the path names it."""

    name: str
    meaning: str
    kind: str = "string"
    """A type of JSON Schema."""
    required: bool = False
    default: str | int | bool | None = None


@dataclass(frozen=True)
class Endpoint:
    """A path with one method. `handler` gives the response; it may block, since it does not run in the event loop."""

    path: str
    summary: str
    handler: Callable[[Service, Request], Response]
    parameters: tuple[Parameter, ...] = ()
    method: str = "GET"
    answers: Mapping[int, str] = field(default_factory=dict)
    """Meanings of status codes."""
    content: str = JSON
    open: bool = False
    """Whether it answers without the token."""


def json_response(body: object, status: int = 200) -> Response:
    """Return a response of JSON text."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return Response(text + "\n", status, media_type=JSON)


def error_response(text: str, status: int) -> Response:
    """Return an error in the form that all errors have."""
    return json_response({"error": text}, status)


class Arguments:
    """The query parameters of a request, by the types that an endpoint declares. Raises QueryError."""

    def __init__(self, request: Request, parameters: tuple[Parameter, ...]):
        self._values = dict(request.query_params)
        known = [parameter.name for parameter in parameters if parameter.name not in request.path_params]
        unknown = next((name for name in self._values if name not in known), None)
        if unknown is not None:
            raise QueryError(f"there is no parameter {unknown!r}; known: {', '.join(known) or 'none'}")

    def text(self, name: str) -> str | None:
        """Return the text of a parameter, None if it is absent."""
        return self._values.get(name)

    @overload
    def number(self, name: str, default: int, lowest: int = ..., highest: int = ...) -> int: ...
    @overload
    def number(self, name: str, default: None = None, lowest: int = ..., highest: int = ...) -> int | None: ...
    def number(
        self, name: str, default: int | None = None, lowest: int = -(2**63), highest: int = 2**63 - 1
    ) -> int | None:
        """Return an integer, or the default."""
        text = self._values.get(name)
        if text is None:
            return default
        try:
            number = int(text)
        except ValueError:
            raise QueryError(f"{name} is {text!r}; expected a whole number") from None
        if not lowest <= number <= highest:
            raise QueryError(f"{name} is {number}; expected {lowest} to {highest}")
        return number

    def flag(self, name: str) -> bool:
        """Return a boolean, False if it is absent."""
        text = self._values.get(name, "false").lower()
        if text not in ("true", "false", "1", "0", ""):
            raise QueryError(f"{name} is {text!r}; expected true or false")
        return text not in ("false", "0")

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return one of the choices, the first if the parameter is absent."""
        text = self._values.get(name, choices[0])
        if text not in choices:
            raise QueryError(f"{name} is {text!r}; expected {' or '.join(choices)}")
        return text
