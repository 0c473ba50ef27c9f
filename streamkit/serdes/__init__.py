"""Serdes by name, as topology files use them."""

from __future__ import annotations

from typing import Any

from streamkit import durations
from streamkit.errors import ConfigError, SerdeError
from streamkit.serdes.base import Serde
from streamkit.serdes.primitives import PRIMITIVES

FORMS = ("windowed", "session_windowed", "call", "avro", "protobuf", "json_schema")


def names() -> list[str]:
    """Return the names of all serdes without arguments, and the keys of those with some."""
    return [*PRIMITIVES, "json", *FORMS]


def parse(spec: Any, folder: str = ".") -> Serde:
    """Return the serde that a file names; `folder` is where callables are found first. Raises SerdeError.

    >>> parse("long").encode(1).hex()
    '0000000000000001'
    >>> parse({"windowed": "string", "size": 1000}).spec
    {'windowed': 'string', 'size': 1000}
    """
    if isinstance(spec, Serde):
        return spec
    if isinstance(spec, str):
        if spec == "json":
            from streamkit.serdes.json_text import JsonSerde

            return JsonSerde()
        if spec in PRIMITIVES:
            return PRIMITIVES[spec]
        raise SerdeError(f"no serde is called {spec!r}{_nearest(spec)}")
    if isinstance(spec, dict):
        return _with_arguments(spec, folder)
    raise SerdeError(
        f"a serde is a name such as string or json, or a mapping such as {{windowed: string, size: 5m}}; found {spec!r}"
    )


def _with_arguments(spec: dict[str, Any], folder: str) -> Serde:
    from streamkit.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde

    keys = set(spec)
    if keys == {"windowed", "size"}:
        try:
            size = durations.parse(spec["size"], 1)
        except ConfigError as error:
            raise SerdeError(f"the size of a windowed serde {error}, not {spec['size']!r}") from error
        return TimeWindowedSerde(parse(spec["windowed"], folder), size)
    if keys == {"windowed"}:
        raise SerdeError("a windowed serde needs the size of its windows: {windowed: SERDE, size: 5m}")
    if keys == {"session_windowed"}:
        return SessionWindowedSerde(parse(spec["session_windowed"], folder))
    if keys == {"call"}:
        from streamkit.serdes.called import CalledSerde

        return CalledSerde(spec["call"], folder)
    schema = _with_schema(spec, keys, folder)
    if schema is not None:
        return schema
    unknown = next((str(key) for key in spec if key not in FORMS), str(spec))
    raise SerdeError(f"no serde takes the argument {unknown!r}{_nearest(unknown)}")


def _with_schema(spec: dict[str, Any], keys: set[str], folder: str) -> Serde | None:
    if keys == {"avro"}:
        from streamkit.serdes.avro import AvroSerde

        return AvroSerde(spec, folder)
    if keys == {"json_schema"}:
        from streamkit.serdes.json_schema import JsonSchemaSerde

        return JsonSchemaSerde(spec, folder)
    if keys == {"protobuf"} or keys == {"protobuf", "message"}:
        from streamkit.serdes.protobuf import ProtobufSerde

        return ProtobufSerde(spec, folder)
    return None


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), names(), 1, 0.5)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(names())}"
