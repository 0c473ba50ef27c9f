"""Legal names, and the ends of messages about names that a file does not define."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from streamkit.suggestions import did_you_mean

LEGAL = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
PIPELINE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
CALLABLE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
MAX_LENGTH = 249


def kafka_name_mistake(name: str) -> str | None:
    """Return the mistake in the name of a topic, a node or a store, or None (Topic.validate, Named.validate).

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


def known(names: Collection[str], what: str) -> str:
    """Return the list of defined names for a message about an unknown name, when they are few.

    what: "topics" or the like, for a file that has none; may be empty.
    """
    if not names:
        return f"the file has no {what}" if what else ""
    return f"known are {', '.join(sorted(names))}" if len(names) <= 12 else ""


def hint(name: str, names: Iterable[str], what: str = "") -> str:
    """Return the end of a message about a name that a file does not define."""
    defined = list(names)
    return did_you_mean(name, defined, known(defined, what))
