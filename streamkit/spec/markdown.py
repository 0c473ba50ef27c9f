"""Pieces of Markdown that references are made of."""

from __future__ import annotations

import re

_LINK = re.compile(r"\[([^\]]+)\]\([^)\s]*\)")


def without_links(text: str) -> str:
    """Return Markdown with the texts of its links, for places where the pages are not.

    >>> without_links("The [store](stores.md) that holds `a[0](b)`.")
    'The store that holds `a[0](b)`.'
    """
    return _LINK.sub(r"\1", text)


def cell(text: str) -> str:
    """Return a text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def block(language: str, text: str) -> str:
    """Return a block of code."""
    return f"```{language}\n{text.strip()}\n```"
