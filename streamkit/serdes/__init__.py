"""Serdes by name, as topology files use them: a format is a module of `formats` and one line of `FORMATS`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple, cast

from streamkit import plugins
from streamkit.errors import SerdeError
from streamkit.serdes.formats.primitives import PRIMITIVES
from streamkit.serdes.plain import Json
from streamkit.serdes.serde import Serde
from streamkit.suggestions import did_you_mean


class Format(NamedTuple):
    """A format of keys and values. module: its module of `formats`, which is imported when a file names the serde.

    The module has the function `make_NAME(spec, folder)`, which returns the Serde of what a file writes; callables and schema
    files are searched in `folder` first. form: how a file writes the serde, for one with arguments. options: keys beside
    the serde's name.
    """

    module: str
    form: str = ""
    options: tuple[str, ...] = ()


FORMATS: dict[str, Format] = {
    "json": Format("json_text"),
    "lines": Format("primitives"),
    "windowed": Format("windowed", "{windowed: SERDE, size: 5m}", ("size",)),
    "session_windowed": Format("windowed", "{session_windowed: SERDE}"),
    "call": Format("called", "{call: module:object}", ("with",)),
    "avro": Format("avro", "{avro: FILE} or {avro: {subject: NAME}}"),
    "protobuf": Format("protobuf", "{protobuf: FILE, message: NAME} or {protobuf: {subject: NAME}}", ("message",)),
    "json_schema": Format("json_schema", "{json_schema: FILE} or {json_schema: {subject: NAME}}"),
    "csv": Format("csv_text", "{csv: {fields: […]}}"),
}
"""All serdes but the primitive ones, by their first key."""
FORMS = tuple(name for name, format_ in FORMATS.items() if format_.form)
"""Serdes with arguments by their first key, as files write them."""


def names() -> list[str]:
    """Return the names of all serdes without arguments, and the keys of those with some."""
    return [*PRIMITIVES, *FORMATS]


def parse(spec: object, folder: str = ".") -> Serde:
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
    format_ = FORMATS.get(name)
    if format_ is None:
        plugins.warn_of_own(plugins.SERDES, frozenset(names()))
        if name in plugins.load(plugins.SERDES):
            return _plugged(name, None)
        raise SerdeError(f"no serde is called {name!r}{_nearest(name)}")
    if format_.form:
        raise SerdeError(f"the serde {name} takes an argument: {format_.form}")
    return _make(name, name, folder)


def _with_arguments(spec: dict[str, Json], folder: str) -> Serde:
    name = next((form for form in FORMS if form in spec), None)
    if name is not None and spec.keys() <= {name, *FORMATS[name].options}:
        return _make(name, spec, folder)
    if len(spec) == 1 and spec.keys() <= plugins.load(plugins.SERDES).keys():
        return _plugged(*next(iter(spec.items())))
    unknown = next((str(key) for key in spec if key not in FORMS), str(spec))
    if unknown in PRIMITIVES or unknown in FORMATS:
        schema = "; {json_schema: FILE} checks values by a schema" if unknown == "json" else ""
        raise SerdeError(f"the serde {unknown} takes no argument: write {unknown}{schema}")
    raise SerdeError(f"no serde takes the argument {unknown!r}{_nearest(unknown)}")


def _make(name: str, spec: str | dict[str, Json], folder: str) -> Serde:
    module = import_module(f"{__name__}.formats.{FORMATS[name].module}")
    make = cast("Callable[[str | dict[str, Json], str], Serde]", getattr(module, f"make_{name}"))  # by the name alone
    return make(spec, folder)


def _plugged(name: str, argument: Json) -> Serde:
    from streamkit.serdes.formats.called import PluggedSerde

    return PluggedSerde(name, argument)


def _nearest(name: str) -> str:
    known = [*names(), *plugins.load(plugins.SERDES)]
    return did_you_mean(name, known, f"known: {', '.join(known)}")
