"""Words of messages: the known name that is nearest to an unknown one, lists of names, and numbers with a noun."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 300
"""Characters of a name that is compared: the time grows with the square of its length."""

_SHORTEST = 3
"""Characters of a name that is taken for the beginning of a known one."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is nearest to a name, or None if none is near; case and hyphens count little.

    A name that is cut off means the only known name that begins with it.

    >>> nearest("Strin", ["string", "long"]), nearest("fraud", ["fraud-detection", "word-count"])
    ('string', 'fraud-detection')
    """
    if len(name) > _LONGEST:
        return None
    from difflib import get_close_matches  # for mistakes only: importing it takes milliseconds

    names = list(known)
    lowered = [word.lower() for word in names]
    for written in (name.lower().replace("-", "_"), name.lower()):
        close = get_close_matches(written, lowered, n=1, cutoff=0.6)
        if close:
            same = [word for word, low in zip(names, lowered, strict=True) if low == close[0]]
            return get_close_matches(name, same, n=1, cutoff=0)[0]
    longer = [word for word in names if word.lower().startswith(name.lower())] if len(name) >= _SHORTEST else []
    return longer[0] if len(longer) == 1 else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", prefix: str = "") -> str:
    """Return the end of a message about an unknown name: the nearest name, else `otherwise` if there is such a text.

    prefix: the text before the name in the file.

    >>> did_you_mean("Strin", ["string", "long"])
    "; did you mean 'string'?"
    >>> did_you_mean("x", ["string", "long"], "known are long, string")
    '; known are long, string'
    """
    best = nearest(name, known)
    if best is not None:
        return f"; did you mean {prefix + best!r}?"
    return f"; {otherwise}" if otherwise else ""


def is_misspelt(name: str, names_written: Iterable[str], known: Iterable[str]) -> bool:
    """Return whether one of the given names, which is not known, is meant to be `name`.

    >>> is_misspelt("key", ["keey", "value"], ["key", "value"])
    True
    """
    names = list(known)
    return any(nearest(written, names) == name for written in names_written if written not in names)


def listed(known: Iterable[str]) -> str:
    """Return names with commas between them, or `none`."""
    return ", ".join(known) or "none"


def number_of(count: int, noun: str) -> str:
    """Return a number with its noun.

    >>> number_of(1, "partition"), number_of(2, "partition")
    ('1 partition', '2 partitions')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
