"""Pieces of Markdown that references are made of."""

from __future__ import annotations

import re

_CODE_OR_LINK = re.compile(r"(`[^`]*`)|\[([^\]]+)\]\([^)\s]*\)")


def without_links(text: str) -> str:
    """Replace the links of Markdown with their texts, for readers who do not have the pages.

    >>> without_links("The [store](stores.md) that holds `a[0](b)`.")
    'The store that holds `a[0](b)`.'
    """
    return _CODE_OR_LINK.sub(lambda match: match[1] or match[2], text)


def cell(text: str) -> str:
    """Return a text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def block(language: str, text: str) -> str:
    """Return a block of code."""
    return f"```{language}\n{text.strip()}\n```"
