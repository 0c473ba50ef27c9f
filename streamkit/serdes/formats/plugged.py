"""Serdes of installed plugins: entry points `streamkit.serdes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from streamkit import plugins
from streamkit.errors import SerdeError
from streamkit.serdes.formats.called import WrappedSerde
from streamkit.serdes.plain import Json


class PluggedSerde(WrappedSerde):
    """The serde that a plugin makes of its argument in the file; None for the name alone.

    The entry point is a function or a class that takes the argument and returns an object with `encode` and `decode`.
    """

    def __init__(self, name: str, argument: Json = None):
        self.spec = name if argument is None else {name: argument}
        self._made_of = (name, argument)
        make = cast("Callable[[Json], object] | None", plugins.load(plugins.SERDES).get(name))  # code of others
        if make is None:
            raise SerdeError(f"no installed package has a serde {name!r}")
        try:
            made = make(argument)
        except Exception as error:
            raise SerdeError(f"serde {name} can't be made: {type(error).__name__}: {error}") from error
        self._wrap(made, name)

    def __getstate__(self) -> tuple[str, Json]:
        return self._made_of

    def __setstate__(self, state: tuple[str, Json]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PluggedSerde) and self._made_of == other._made_of

    __hash__ = WrappedSerde.__hash__
