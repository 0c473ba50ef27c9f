"""Text of several lines: a list with one text a line, for `flat_map_values: {values: value}`."""

from __future__ import annotations

from streamkit.errors import SerdeError
from streamkit.expressions.types import TEXT, ListOf
from streamkit.record import Value
from streamkit.serdes.plain import Json, shown
from streamkit.serdes.serde import Serde, SerdeSpec
from streamkit.serdes.size import check_value


class LinesSerde(Serde):
    """UTF-8; lines end with LF, or CR LF when read; the end of the last one may be absent, and is not written."""

    spec = "lines"

    type = ListOf(TEXT)

    def encode(self, value: Value) -> bytes:
        if not isinstance(value, (list, tuple)) or not all(isinstance(line, str) for line in value):
            raise SerdeError(f"serde lines takes a list of texts, not {shown(value, 80)}")
        check_value(value)
        if any("\n" in line for line in value):
            raise SerdeError("serde lines takes a list of texts, each without a line break")
        return "\n".join(value).encode("utf-8", "replace")

    def decode(self, data: bytes) -> list[str]:
        text = data.decode("utf-8", "replace").replace("\r\n", "\n")
        return text.removesuffix("\n").split("\n") if text else []

    def to_json(self, value: Value) -> Json:
        return value

    def from_json(self, data: Json) -> Value:
        return data


def make_lines(spec: SerdeSpec, folder: str) -> Serde:
    """Return the serde of `lines`."""
    return LinesSerde()
