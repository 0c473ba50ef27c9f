"""Parts of translated expressions: Python source with its static properties."""

from __future__ import annotations

from streamkit.code import ATOM, UNARY, Code
from streamkit.record import Value

IMPURE = 1
"""May differ from call to call (`now()`, Python callables), or has a problem already."""
PRODUCES = 2
"""Has an operation whose result may be much larger than its operands."""
LOOPS = 4
"""Has a loop, or a call that may loop."""
DISPLAY = 8
"""Has a display: a list, object or other container that is written in the expression."""
WORK = 32
"""Takes time that depends on the size of its operands."""
CHARGED = 64
"""Is a value that is charged where it is made."""
LAZY = 16
"""Is an iterator or a view, which must not leave the expression."""

NUMBERS = frozenset(("int", "float", "number", "bool"))
SCALARS = NUMBERS | {"str", "bytes", "none"}


class Piece(Code):
    """A part of an expression: Python with its precedence, static kind, flags and the names that it refers to.

    `literal` is the value of a literal or a folded constant, if `is_literal`.
    """

    __slots__ = ("flags", "is_literal", "kind", "literal", "refs")

    def __init__(
        self,
        source: str,
        precedence: int = ATOM,
        kind: str | None = None,
        flags: int = 0,
        refs: frozenset[str] = frozenset(),
    ):
        super().__init__(source, precedence)
        self.kind = kind
        self.flags = flags
        self.refs = refs
        self.literal: Value = None
        self.is_literal = False

    @property
    def constant(self) -> bool:
        """Whether it is the same for every record."""
        return not self.refs and not self.flags & IMPURE


def literal(value: Value, kind: str | None = None) -> Piece:
    """Return the piece of a scalar."""
    if kind is None:
        kind = "none" if value is None else type(value).__name__
    # A number before a dot, and a sign before a power, need parentheses.
    precedence = UNARY if isinstance(value, (int, float)) and not isinstance(value, bool) else ATOM
    source = repr(value)
    if source == "inf":
        source = "1e999"
    piece = Piece(source, precedence, kind)
    piece.literal, piece.is_literal = value, True
    return piece


def refs_of(pieces: list[Piece]) -> frozenset[str]:
    """Return all names that some pieces refer to."""
    return frozenset().union(*[piece.refs for piece in pieces])


def flags_of(pieces: list[Piece]) -> int:
    """Return the flags of some pieces together; laziness and charges do not spread."""
    result = 0
    for piece in pieces:
        result |= piece.flags
    return result & ~(LAZY | CHARGED)
