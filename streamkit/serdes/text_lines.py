"""Text of several lines: a list with one text a line, for `flat_map_values: {values: value}`."""

from __future__ import annotations

from typing import Any

from streamkit.errors import SerdeError
from streamkit.expressions.types import TEXT, ListOf
from streamkit.serdes.base import Serde
from streamkit.serdes.shown import shown
from streamkit.serdes.size import check_value


class LinesSerde(Serde):
    """UTF-8; lines end with LF, or CR LF when read; the last one needs no end, and none is written."""

    spec = "lines"

    type = ListOf(TEXT)

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, (list, tuple)) or not all(isinstance(line, str) for line in value):
            raise SerdeError(f"serde lines takes a list of texts, not {shown(value, 80)}")
        check_value(value)
        if any("\n" in line for line in value):
            raise SerdeError("serde lines takes a list of texts, each without a line break")
        return "\n".join(value).encode("utf-8", "replace")

    def decode(self, data: bytes) -> list[str]:
        text = data.decode("utf-8", "replace").replace("\r\n", "\n")
        return text.removesuffix("\n").split("\n") if text else []

    def to_json(self, value: Any) -> Any:
        return value

    def from_json(self, data: Any) -> Any:
        return data
