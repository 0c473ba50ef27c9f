"""`streamkit docs`: pages of the reference in the terminal."""

from __future__ import annotations

import re
import shutil
from typing import Annotated

import typer

from streamkit.errors import UsageError
from streamkit.suggestions import did_you_mean
from streamkit_cli.reference import ReferencePage, pages
from streamkit_cli.tables import is_coloured, table

Word = Annotated[
    str | None,
    typer.Argument(
        metavar="WORD",
        help="A step, macros, a function, a setting, a command or a lint rule.",
        show_default=False,
        autocompletion=lambda incomplete: [page.name for page in pages() if page.name.startswith(incomplete)],
    ),
]
_MOST_NAMES = 12
"""Names that a message lists."""


def docs(word: Word = None) -> None:
    """Print the page of a step, of macros, a function, a setting, a command or a rule; without WORD, list them.

    On a terminal the page is formatted; elsewhere it is Markdown.

    Examples:
        streamkit docs group_by
        streamkit docs commit.interval.ms
    """
    listed = list(pages())
    if word is None:
        print(_overview(listed))
        return
    matching = [page for page in listed if page.name == word.lower()]
    if not matching:
        raise UsageError(f"there is no page {word!r}{_hint(word, listed)}")
    text = "\n".join(page.text().strip() + "\n" for page in matching)
    if is_coloured():
        from rich.console import Console
        from rich.markdown import Markdown
        from rich.theme import Theme

        # The colours of the terminal, on its own background.
        Console(theme=Theme({"markdown.code": "bold cyan"})).print(Markdown(text, code_theme="ansi_dark"))
    else:
        print(text, end="")


def _overview(listed: list[ReferencePage]) -> str:
    """Return all names with their summaries by kind, cut to the width of a terminal."""
    kinds = {page.kind: [(entry.name, entry.summary) for entry in listed if entry.kind == page.kind] for page in listed}
    text = "\n\n".join(table((kind.upper(), "SUMMARY"), rows) for kind, rows in kinds.items())
    if not is_coloured():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(line if len(line) <= width else line[: width - 1] + "…" for line in text.splitlines())


def _hint(word: str, listed: list[ReferencePage]) -> str:
    """Name the pages that have the word in their names or, for example as an option of a step or command, in their texts."""
    whole = re.compile(rf"(?<![\w.-])(--)?{re.escape(word)}(?![\w.-])", re.IGNORECASE)
    containing = [page.name for page in listed if word.lower() in page.name]
    containing += [page.name for page in listed if page.name not in containing and whole.search(page.text())]
    if containing:
        more = ", …" if len(containing) > _MOST_NAMES else ""
        return f"; in these the word occurs: {', '.join(containing[:_MOST_NAMES])}{more}"
    return did_you_mean(word, [page.name for page in listed], "`streamkit docs` lists them")
