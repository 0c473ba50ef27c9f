"""Typed SQL: values of records as text of Spark SQL, with the conditions under which it equals what a step makes in Python."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from streamkit.errors import InexactError
from streamkit.runtime.spark.workers.worker import MARK
from streamkit.serdes.size import MAX_BYTES

TEXT, INTEGER, BOOLEAN, NUMBER = "text", "a whole number", "a boolean", "a number"
NOTHING, OBJECT, WINDOWED = "null", "an object", "a windowed key"
COLUMN_TYPES = {TEXT: "string", INTEGER: "bigint", BOOLEAN: "boolean", NUMBER: "double"}
"""The types of columns that hold scalars of these kinds."""
SERDE_KINDS = {
    "string": (TEXT,),
    "long": (INTEGER,),
    "integer": (INTEGER,),
    "double": (NUMBER,),
    "boolean": (BOOLEAN,),
    "json": (TEXT, INTEGER, BOOLEAN, NUMBER, NOTHING, OBJECT),
}
"""The kinds of values that a serde writes and reads again as they are."""
LARGEST = MAX_BYTES // 6
"""Bytes of all text in a value that a serde writes whatever its characters are: JSON escapes one by six."""
_OBJECT, _FIELD = 1 << 13, 1 << 6
"""Bytes that an object and a field of it count, so that neither objects in each other nor their fields pass a serde's limits."""
_WHOLE = re.compile(r"CAST\('(-?\d+)' AS BIGINT\)")
_LARGEST_EXACT = 1 << 53
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
LOWEST = f"CAST('{_LOWEST}' AS BIGINT)"
"""The least whole number, which has no positive counterpart."""


@dataclass(frozen=True)
class Guard:
    """A condition that a row must meet, or the query ends. reason: what a row is that does not meet it."""

    sql: str
    reason: str

    def under(self, condition: str) -> Guard:
        """Return the guard for rows alone that meet a condition."""
        return replace(self, sql=f"(({condition}) IS NOT TRUE OR {self.sql})")


@dataclass(frozen=True)
class Keep:
    """A condition that a row must meet, or it is left out."""

    sql: str


@dataclass(frozen=True)
class Term:
    """A value. sql: always in brackets, or one word; fields: of an object.

    guards: what must hold if the value is used, each only if those before it hold. size: the most bytes of all text in it.
    """

    kind: str
    sql: str
    nullable: bool = False
    guards: tuple[Guard, ...] = ()
    fields: Mapping[str, Term] = field(default_factory=dict)
    size: int = 0

    @property
    def truth(self) -> str:
        """The condition that Python takes the value for true; never null if the guards hold."""
        if self.kind == NOTHING:
            return "false"
        if self.kind == OBJECT:
            # Of an object that is not null only its fields tell, and all have some.
            return f"({self.sql} IS NOT NULL)" if self.nullable else "true"
        if self.kind == BOOLEAN:
            return f"({self.sql} IS TRUE)" if self.nullable else self.sql
        zero = {INTEGER: "0L", NUMBER: "0D"}.get(self.kind, "''")
        return f"(({self.sql} <> {zero}) IS TRUE)"

    @property
    def is_double(self) -> bool:
        """Whether the value is a constant that a double holds as it is."""
        match = _WHOLE.fullmatch(self.sql)
        return match is not None and abs(int(match[1])) <= _LARGEST_EXACT

    @property
    def is_null(self) -> str:
        """The condition that the value is None."""
        if self.kind == NOTHING:
            return "true"
        return f"({self.sql} IS NULL)" if self.nullable else "false"

    def presented(self, guards: Sequence[Guard]) -> Term:
        """Return the value under guards by which it is not null."""
        return replace(self, nullable=False, guards=tuple(guards))

    def without_guards(self) -> Term:
        """Return the value once its guards are known to hold."""
        return replace(self, guards=())


def object_of(fields: Mapping[str, Term], guards: Sequence[Guard] = ()) -> Term:
    """Return an object."""
    size = _OBJECT + sum(_FIELD + _FIELD * len(name) + term.size for name, term in fields.items())
    return Term(OBJECT, "", guards=tuple(guards), fields=fields, size=size)


def literal(value: str | float | None) -> Term | None:
    """Return a constant; None for one that no column can hold."""
    if value is None:
        return Term(NOTHING, "NULL", nullable=True)
    if isinstance(value, bool):
        return Term(BOOLEAN, str(value).lower())
    if isinstance(value, int):
        return Term(INTEGER, f"CAST('{value}' AS BIGINT)") if _LOWEST <= value <= _HIGHEST else None
    if isinstance(value, float):
        return Term(NUMBER, f"CAST('{value!r}' AS DOUBLE)") if math.isfinite(value) else None
    try:
        return Term(TEXT, quoted_text(value), size=len(value.encode()))
    except UnicodeEncodeError:  # half of a surrogate pair
        return None


class _Shown(Mapping[str, Term]):
    """The fields of an object that is there only where a condition holds."""

    def __init__(self, fields: Mapping[str, Term], condition: str):
        self._fields = fields
        self._condition = condition

    def __getitem__(self, name: str) -> Term:
        return only_if(self._fields[name], self._condition)

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def only_if(term: Term, condition: str) -> Term:
    """Return the value where a condition holds, which is never null, and null elsewhere."""
    if term.kind == NOTHING:
        return term
    if term.kind != OBJECT:
        return replace(term, sql=f"if({condition}, {term.sql}, NULL)", nullable=True)
    present = f"({condition} AND NOT {term.is_null})" if term.nullable else condition
    return replace(term, sql=f"if({present}, true, NULL)", nullable=True, fields=_Shown(term.fields, condition))


def fits_serde(spec: object, term: Term, reason: str) -> tuple[Guard, ...]:
    """Return what must hold of a value of a kind that a serde takes, so that it takes the value."""
    if spec != "integer" or term.kind != INTEGER:
        return ()
    return (Guard(f"({term.sql} IS NULL OR {term.sql} BETWEEN {-(1 << 31)}L AND {(1 << 31) - 1}L)", reason),)


def quoted_text(text: str) -> str:
    """Return a text as SQL. As bytes, since how a literal escapes characters depends on the session.

    >>> quoted_text("it's")
    "CAST(X'69742773' AS STRING)"
    """
    return f"CAST(X'{text.encode().hex().upper()}' AS STRING)"


def failure(reason: str) -> str:
    """Return the text of an error by which the driver finds an InexactError in Spark's exception."""
    return MARK + json.dumps([InexactError.__name__, reason], ensure_ascii=False)


def chosen_rows(tests: Sequence[Guard | Keep]) -> str:
    """Return the condition that rows meet which pass tests, in their order; a guard that does not hold raises an error."""
    branches = [
        f"WHEN {test.sql} IS NOT TRUE THEN "
        + ("false" if isinstance(test, Keep) else f"CAST(raise_error({quoted_text(failure(test.reason))}) AS BOOLEAN)")
        for test in tests
    ]
    return f"CASE {' '.join(branches)} ELSE true END" if branches else "true"
