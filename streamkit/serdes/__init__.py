"""Serdes by name, as topology files use them."""

from __future__ import annotations

from typing import Any

from streamkit import durations, plugins
from streamkit.errors import ConfigError, SerdeError
from streamkit.serdes.base import Serde
from streamkit.serdes.primitives import PRIMITIVES

_FORMS = {
    "windowed": "{windowed: SERDE, size: 5m}",
    "session_windowed": "{session_windowed: SERDE}",
    "call": "{call: module:object}",
    "avro": "{avro: FILE} or {avro: {subject: NAME}}",
    "protobuf": "{protobuf: FILE, message: NAME} or {protobuf: {subject: NAME}}",
    "json_schema": "{json_schema: FILE} or {json_schema: {subject: NAME}}",
    "csv": "{csv: {fields: […]}}",
}
"""Serdes with arguments by their first key, as files write them."""
FORMS = tuple(_FORMS)


def names() -> list[str]:
    """Return the names of all serdes without arguments, and the keys of those with some."""
    return [*PRIMITIVES, "json", "lines", *FORMS]


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
        if spec == "lines":
            from streamkit.serdes.lines import LinesSerde

            return LinesSerde()
        if spec in PRIMITIVES:
            return PRIMITIVES[spec]
        if spec in plugins.load(plugins.SERDES):
            return _plugged(spec, None)
        if spec in _FORMS:
            raise SerdeError(f"the serde {spec} takes an argument: {_FORMS[spec]}")
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
    if keys == {"csv"}:
        from streamkit.serdes.csv_text import CsvSerde

        return CsvSerde(spec["csv"])
    if keys in ({"avro"}, {"json_schema"}, {"protobuf"}, {"protobuf", "message"}):
        from streamkit.serdes.schema_serde import SchemaSerde

        return SchemaSerde(_schema_kind(next(each for each in FORMS if each in keys)), spec, folder)
    if len(keys) == 1 and keys <= plugins.load(plugins.SERDES).keys():
        return _plugged(*next(iter(spec.items())))
    unknown = next((str(key) for key in spec if key not in FORMS), str(spec))
    raise SerdeError(f"no serde takes the argument {unknown!r}{_nearest(unknown)}")


def _plugged(name: str, argument: Any) -> Serde:
    from streamkit.serdes.plugged import PluggedSerde

    return PluggedSerde(name, argument)


def _schema_kind(form: str) -> Any:
    if form == "avro":
        from streamkit.serdes.avro import AvroSchema

        return AvroSchema
    if form == "protobuf":
        from streamkit.serdes.protobuf import ProtobufSchema

        return ProtobufSchema
    from streamkit.serdes.json_schema import JsonSchema

    return JsonSchema


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    known = [*names(), *plugins.load(plugins.SERDES)]
    close = get_close_matches(name.lower(), known, 1, 0.5)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
