"""Serdes by name, as topology files use them: `KINDS` has one line for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from streamkit import durations, plugins
from streamkit.errors import ConfigError, SerdeError
from streamkit.serdes.base import Serde
from streamkit.serdes.primitives import PRIMITIVES
from streamkit.suggestions import did_you_mean


class Kind(NamedTuple):
    """How a serde is made of what a file writes. make: takes that and the folder where callables are found first.

    form: how a file writes it, for one with arguments. others: keys beside the serde's name.
    """

    make: Callable[[Any, str], Serde]
    form: str = ""
    others: tuple[str, ...] = ()


def names() -> list[str]:
    """Return the names of all serdes without arguments, and the keys of those with some."""
    return [*PRIMITIVES, *KINDS]


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
        return _by_name(spec, folder)
    if isinstance(spec, dict):
        return _with_arguments(spec, folder)
    raise SerdeError(
        f"a serde is a name such as string or json, or a mapping such as {{windowed: string, size: 5m}}; found {spec!r}"
    )


def _by_name(name: str, folder: str) -> Serde:
    if name in PRIMITIVES:
        return PRIMITIVES[name]
    kind = KINDS.get(name)
    if kind is None:
        if name in plugins.load(plugins.SERDES):
            return _plugged(name, None)
        raise SerdeError(f"no serde is called {name!r}{_nearest(name)}")
    if kind.form:
        raise SerdeError(f"the serde {name} takes an argument: {kind.form}")
    return kind.make(name, folder)


def _with_arguments(spec: dict[str, Any], folder: str) -> Serde:
    name = next((each for each in FORMS if each in spec), None)
    if name is not None and spec.keys() <= {name, *KINDS[name].others}:
        return KINDS[name].make(spec, folder)
    if len(spec) == 1 and spec.keys() <= plugins.load(plugins.SERDES).keys():
        return _plugged(*next(iter(spec.items())))
    unknown = next((str(key) for key in spec if key not in FORMS), str(spec))
    raise SerdeError(f"no serde takes the argument {unknown!r}{_nearest(unknown)}")


def _plugged(name: str, argument: Any) -> Serde:
    from streamkit.serdes.plugged import PluggedSerde

    return PluggedSerde(name, argument)


def _nearest(name: str) -> str:
    known = [*names(), *plugins.load(plugins.SERDES)]
    return did_you_mean(name, known, f"known: {', '.join(known)}")


# -- Each in a module of its own, which is imported when a file names the serde --------------------------------------


def _json(spec: Any, folder: str) -> Serde:
    from streamkit.serdes.json_text import JsonSerde

    return JsonSerde()


def _lines(spec: Any, folder: str) -> Serde:
    from streamkit.serdes.text_lines import LinesSerde

    return LinesSerde()


def _windowed(spec: Any, folder: str) -> Serde:
    from streamkit.serdes.windowed import TimeWindowedSerde

    if "size" not in spec:
        raise SerdeError("a windowed serde needs the size of its windows: {windowed: SERDE, size: 5m}")
    try:
        size = durations.parse(spec["size"], 1)
    except ConfigError as error:
        raise SerdeError(f"the size of a windowed serde {error}, not {spec['size']!r}") from error
    return TimeWindowedSerde(parse(spec["windowed"], folder), size)


def _session_windowed(spec: Any, folder: str) -> Serde:
    from streamkit.serdes.windowed import SessionWindowedSerde

    return SessionWindowedSerde(parse(spec["session_windowed"], folder))


def _called(spec: Any, folder: str) -> Serde:
    from streamkit.serdes.called import CalledSerde

    return CalledSerde(spec["call"], folder)


def _csv(spec: Any, folder: str) -> Serde:
    from streamkit.serdes.csv_text import CsvSerde

    return CsvSerde(spec["csv"])


def _avro(spec: Any, folder: str) -> Serde:
    from streamkit.serdes.avro import AvroSchema
    from streamkit.serdes.schema_serde import SchemaSerde

    return SchemaSerde(AvroSchema, spec, folder)


def _protobuf(spec: Any, folder: str) -> Serde:
    from streamkit.serdes.protobuf import ProtobufSchema
    from streamkit.serdes.schema_serde import SchemaSerde

    return SchemaSerde(ProtobufSchema, spec, folder)


def _json_schema(spec: Any, folder: str) -> Serde:
    from streamkit.serdes.json_schema import JsonSchema
    from streamkit.serdes.schema_serde import SchemaSerde

    return SchemaSerde(JsonSchema, spec, folder)


KINDS: dict[str, Kind] = {
    "json": Kind(_json),
    "lines": Kind(_lines),
    "windowed": Kind(_windowed, "{windowed: SERDE, size: 5m}", ("size",)),
    "session_windowed": Kind(_session_windowed, "{session_windowed: SERDE}"),
    "call": Kind(_called, "{call: module:object}"),
    "avro": Kind(_avro, "{avro: FILE} or {avro: {subject: NAME}}"),
    "protobuf": Kind(_protobuf, "{protobuf: FILE, message: NAME} or {protobuf: {subject: NAME}}", ("message",)),
    "json_schema": Kind(_json_schema, "{json_schema: FILE} or {json_schema: {subject: NAME}}"),
    "csv": Kind(_csv, "{csv: {fields: […]}}"),
}
"""All serdes but the primitive ones."""
FORMS = tuple(name for name, kind in KINDS.items() if kind.form)
"""Serdes with arguments by their first key, as files write them."""
