"""Names of nodes and stores: one counter for a whole topology, as in InternalStreamsBuilder."""

from __future__ import annotations

import re

LONGEST_NAME = 249
_LEGAL = re.compile(r"[A-Za-z0-9._-]+")


class Names:
    """Generates names; every call uses up one index (InternalNameProvider)."""

    def __init__(self) -> None:
        self._next = 0

    def processor(self, prefix: str) -> str:
        """Return `prefix` with the next index.

        >>> Names().processor("KSTREAM-MAP-")
        'KSTREAM-MAP-0000000000'
        """
        index = self._next
        self._next += 1
        return f"{prefix}{index:010d}"

    def store(self, prefix: str) -> str:
        """Return a store name with the next index.

        >>> Names().store("KSTREAM-REDUCE-")
        'KSTREAM-REDUCE-STATE-STORE-0000000000'
        """
        return self.processor(f"{prefix}STATE-STORE-")

    def named(self, given: str | None, prefix: str, suffix: str = "") -> str:
        """Return `given` with `suffix`, or a generated name; an index is used up either way (NamedInternal)."""
        generated = self.processor(prefix)
        return generated if given is None else given + suffix


def illegal_name(name: str) -> str | None:
    """Return Kafka's message about an illegal name, or None when the name is legal (Named.validate).

    >>> illegal_name("a b")
    'Name "a b" is illegal, it contains a character other than ASCII alphanumerics, \\'.\\', \\'_\\' and \\'-\\''
    """
    if not name:
        return "Name is illegal, it can't be empty"
    if name in (".", ".."):
        return 'Name cannot be "." or ".."'
    if len(name) > LONGEST_NAME:
        return f"Name is illegal, it can't be longer than {LONGEST_NAME} characters, name: {name}"
    if not _LEGAL.fullmatch(name):
        return f"Name \"{name}\" is illegal, it contains a character other than ASCII alphanumerics, '.', '_' and '-'"
    return None
