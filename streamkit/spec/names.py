"""Which names are legal, and which known name is nearest to an unknown one."""

from __future__ import annotations

import re
from collections.abc import Iterable

LEGAL = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
PIPELINE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
CALLABLE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
MAX_LENGTH = 249


def kafka_name_mistake(name: str) -> str | None:
    """Return what is wrong with a name of a topic, a node or a store, or None (Topic.validate, Named.validate).

    >>> kafka_name_mistake("a b")
    "has ' ', which is not among the letters, digits and ._- that Kafka allows"
    """
    if not name:
        return "is empty"
    if name in (".", ".."):
        return "may not be '.' or '..'"
    if len(name) > MAX_LENGTH:
        return f"is {len(name)} characters long, Kafka allows {MAX_LENGTH}"
    if not LEGAL.fullmatch(name):
        bad = next(character for character in name if not LEGAL.fullmatch(character))
        return f"has {bad!r}, which is not among the letters, digits and ._- that Kafka allows"
    return None


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the known name that a person most likely meant, or None."""
    from difflib import get_close_matches  # only where a mistake was found: importing it takes milliseconds

    known = {known.lower(): known for known in names}
    found = get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=0.6) if len(name) < 300 else []
    if not found and len(name) < 300:
        found = get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return known[found[0]] if found else None


def did_you_mean(name: str, names: Iterable[str], what: str = "") -> str:
    """Return the end of a message about an unknown name: the nearest one, else all when they are few."""
    names = list(names)
    best = nearest(name, names)
    if best is not None:
        return f"; did you mean {best!r}?"
    if not names:
        return f"; the file has no {what}" if what else ""
    if len(names) <= 12:
        return f"; known are {', '.join(sorted(names))}"
    return ""
