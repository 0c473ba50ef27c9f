"""Queries in the form of HTTP requests: keys as text, pages by a token, rows as JSON."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from streamkit.errors import QueryError, SerdeError
from streamkit.http.endpoints.endpoint import Arguments, Parameter
from streamkit.runtime.local.instance.queries import Row
from streamkit.runtime.records import row_writer
from streamkit.serdes.plain import Json
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import StoreDef
from streamkit.state.keys import MAX_LONG
from streamkit.state.reading import Query, require_kind

if TYPE_CHECKING:
    from starlette.requests import Request

MOST_ROWS = 1000
ROWS = 100
_TEXT = ("string", "uuid")
"""Serdes whose JSON form is text: a key is written without quotes."""

KEY = Parameter("key", "The key: text as it is where the key's serde is text, else JSON.")
_PAGE = (
    Parameter("limit", f"Rows of a page, at most {MOST_ROWS}.", "integer", default=ROWS),
    Parameter("after", "The `next` of the page before."),
    Parameter("reverse", "From the last row to the first.", "boolean", default=False),
)
SCOPE = (
    Parameter("stale", "Read standbys and tasks that are being restored too, where no active task answers.", "boolean"),
    Parameter("scope", "`application`: ask the other instances too; `local`: this one only.", default="application"),
    Parameter("partition", "Only this partition of the store.", "integer"),
)
_TIMES = {
    "windows": ("from", "Windows that start at this time or later (ms).", "to", "… or earlier, both included."),
    "sessions": ("from", "Sessions that end at this time or later (ms).", "to", "… and start at this time or earlier."),
    "versions": ("from", "Versions that were valid at this time (ms) or later.", "to", "… or earlier."),
}


def parameters_of(kind: str) -> tuple[Parameter, ...]:
    """Return the parameters of a kind of query."""
    own: tuple[Parameter, ...] = ()
    if kind == "get":
        as_of = Parameter("as_of", "Of versioned stores: the value at this time (ms).", "integer")
        return (replace(KEY, required=True), as_of, *SCOPE)
    if kind == "range":
        own = (Parameter("from", "The lowest key, included."), Parameter("to", "The highest key, included."))
    elif kind == "prefix":
        own = (Parameter("prefix", "What the keys' bytes begin with.", required=True),)
    elif kind in _TIMES:
        low, low_meaning, high, high_meaning = _TIMES[kind]
        own = (
            replace(KEY, required=kind == "versions"),
            Parameter(low, low_meaning, "integer"),
            Parameter(high, high_meaning, "integer"),
        )
    return (*own, *_PAGE, *SCOPE)


def read_query(request: Request, kind: str, definition: StoreDef) -> Query:
    """Return the query of a request. Raises QueryError, also for a kind that the store does not answer."""
    require_kind(definition, kind)
    arguments = Arguments(request, parameters_of(kind))
    for parameter in parameters_of(kind):
        if parameter.required and arguments.text(parameter.name) is None:
            raise QueryError(f"{kind} needs the parameter {parameter.name}")

    def key(name: str) -> bytes | None:
        text = arguments.text(name)
        return None if text is None else key_bytes(definition.key_serde, text, name)

    query = Query(kind, limit=arguments.number("limit", ROWS, 1, MOST_ROWS), reverse=arguments.flag("reverse"))
    query = replace(query, after=_token(arguments.text("after")))
    if kind == "get":
        return replace(query, key=key("key"), as_of=arguments.number("as_of"))
    if kind == "range":
        return replace(query, low=key("from"), high=key("to"))
    if kind == "prefix":
        return replace(query, key=key("prefix"))
    if kind in _TIMES:
        start, end = arguments.number("from", 0), arguments.number("to", MAX_LONG)
        return replace(query, key=key("key"), start=start, end=end)
    return query


def key_bytes(serde: Serde, text: str, name: str = "key") -> bytes:
    """Return the bytes of a key that a request has as text. Raises QueryError."""
    try:
        if serde.spec in _TEXT:
            return serde.encode(serde.from_json(text))
        try:
            value = json.loads(text)
        except ValueError:
            # A key that is no JSON is text.
            value = text
        return serde.encode(serde.from_json(value))
    except SerdeError as error:
        raise QueryError(f"{name} is {text!r}: {error}") from error


def token_of(place: bytes, partition: int) -> str:
    """Return a row's place as text."""
    return base64.urlsafe_b64encode(partition.to_bytes(4, "big") + place).decode().rstrip("=")


def _token(text: str | None) -> tuple[bytes, int] | None:
    if text is None:
        return None
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        data = b""
    if len(data) < 4:
        raise QueryError(f"after is {text!r}; expected the `next` of a page")
    return data[4:], int.from_bytes(data[:4], "big")


def rows_json(definition: StoreDef, rows: list[Row]) -> list[dict[str, Json]]:
    """Return rows in the JSON form of their serdes, each with the token of its place."""
    write = row_writer(definition)
    result = []
    for place, partition, row in rows:
        key, value = write(row.key, row.value)
        found: dict[str, Json] = {
            "key": key,
            "value": value,
            "partition": partition,
            "cursor": token_of(place, partition),
        }
        if row.timestamp is not None:
            found["timestamp"] = row.timestamp
        result.append(found)
    return result


def sort_key(row: dict[str, Json]) -> tuple[bytes, int]:
    """Return the place of a row that has its token."""
    found = _token(row["cursor"])
    assert found is not None
    return found
