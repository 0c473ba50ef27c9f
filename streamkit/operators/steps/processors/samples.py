"""Python processors that the examples of the language reference call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamkit.record import Record

if TYPE_CHECKING:
    from streamkit.operators.kernels.processor_calls import ProcessorContext


async def language_of(country: str) -> str:
    """Return the language of a country, as a service would."""
    await asyncio.sleep(0)
    return {"at": "de", "de": "de"}.get(country, country)


def split(record: Record, context: ProcessorContext) -> Iterator[Record]:
    """Forward each word of a text as a record of its own."""
    for word in record.value.split():
        yield record.replace(value=word)
