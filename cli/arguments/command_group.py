"""The group of all commands, which reports values that no option takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from streamkit.serdes.plain import Json

_EXPECTED = {"int_parsing": "a whole number", "float_parsing": "a number"}
"""The value that is expected, by the type of the error."""
_BEGIN = "Input should be "


class CommandGroup(TyperGroup):
    """A group whose messages about values name what is expected and the value."""

    def invoke(self, ctx: Any) -> Json:  # The class of contexts differs between releases of Typer.
        """Run a command. Raises BadParameter."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _message(error)
            raise


def _message(error: typer.BadParameter) -> str:
    """Return the message in place of that of the library which converts values."""
    text = error.message.removeprefix("Value error, ")
    details = getattr(error.__cause__, "errors", None)
    found = details()[0] if details is not None else {}
    expected = _EXPECTED.get(found.get("type", ""))
    if expected is None and text.startswith(_BEGIN):
        expected = f"a value {text.removeprefix(_BEGIN)}"
    return text if expected is None else f"expected {expected}, not {found.get('input')!r}"
