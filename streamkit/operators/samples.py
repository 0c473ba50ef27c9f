"""Python processors that the examples of the language reference call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamkit.record import Record


def split(record: Record, context: Any) -> Iterator[Record]:
    """Forward each word of a text as a record of its own."""
    for word in record.value.split():
        yield record.replace(value=word)
