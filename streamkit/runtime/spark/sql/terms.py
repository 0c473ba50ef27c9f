"""Typed SQL: values of records as text of Spark SQL, with the conditions under which it equals what a step makes in Python."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from streamkit.errors import InexactError, UntranslatableError
from streamkit.runtime.spark.workers.worker import MARK
from streamkit.serdes.size import MAX_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TEXT, INTEGER, BOOLEAN, NUMBER = "text", "a whole number", "a boolean", "a number"
NOTHING, OBJECT, LIST, WINDOWED = "null", "an object", "a list", "a windowed key"
NESTED = (OBJECT, LIST)
"""The kinds of values that have no column of their own: each of their fields, or items by their places, has one."""
UNREAD = "a value whose type only Python knows"
"""The kind of a value of which a query knows whether it is null, and nothing else."""
COLUMN_TYPES = {TEXT: "string", INTEGER: "bigint", BOOLEAN: "boolean", NUMBER: "double"}
"""The types of columns that hold scalars of these kinds."""
SERDE_KINDS = {
    "string": (TEXT,),
    "long": (INTEGER,),
    "integer": (INTEGER,),
    "double": (NUMBER,),
    "boolean": (BOOLEAN,),
    "json": (TEXT, INTEGER, BOOLEAN, NUMBER, NOTHING, OBJECT, LIST),
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
    """A condition that a row must meet, or the query ends. reason: what a row is that does not meet it.

    column: the column that it is about, if only the rows must meet it of which a step, or the output, reads the column.
    """

    sql: str
    reason: str
    column: str = ""

    def under(self, condition: str) -> Guard:
        """Return the guard, restricted to rows that meet a condition."""
        return replace(self, sql=f"(({condition}) IS NOT TRUE OR {self.sql})")


@dataclass(frozen=True)
class Keep:
    """A condition that a row must meet, or it is left out."""

    sql: str


@dataclass(frozen=True)
class Term:
    """A value. sql: always in brackets, or one word; fields: of an object, or the items of a list by their places.

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
        if self.kind in NESTED:
            # An object without fields is false; whether one of JSON text has some, no column tells, and its length refuses.
            if not self.fields:
                return "false"
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


def list_of(items: Sequence[Term], guards: Sequence[Guard] = ()) -> Term:
    """Return a list of several values, each of a kind of its own."""
    return replace(object_of({str(place): item for place, item in enumerate(items)}, guards), kind=LIST)


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


class Fields(Mapping[str, Term]):
    """The fields of an object, each made when it is needed."""

    @property
    def named(self) -> Collection[str]:
        """The names of the fields that a column may be needed for, so far."""
        return list(self)


def named_fields(term: Term) -> Collection[str]:
    """Return the names of the fields of an object, or of items of a list: of JSON text, those that steps have named so far."""
    return term.fields.named if isinstance(term.fields, Fields) else list(term.fields)


class SameFields(Fields):
    """Fields with the names of those of another object, or a list."""

    def __init__(self, term: Term):
        self._term = term

    def __iter__(self) -> Iterator[str]:
        return iter(self._term.fields)

    def __len__(self) -> int:
        return len(self._term.fields)

    @property
    def named(self) -> Collection[str]:
        return named_fields(self._term)


class _Shown(SameFields):
    """The fields of an object, or a list, that exists only if a condition holds."""

    def __init__(self, term: Term, condition: str):
        super().__init__(term)
        self._condition = condition

    def __getitem__(self, name: str) -> Term:
        return only_if(self._term.fields[name], self._condition)


def only_if(term: Term, condition: str) -> Term:
    """Return the value where a condition holds, which is never null, and null elsewhere."""
    if term.kind == NOTHING:
        return term
    if term.kind not in NESTED:
        return replace(term, sql=f"if({condition}, {term.sql}, NULL)", nullable=True)
    present = f"({condition} AND NOT {term.is_null})" if term.nullable else condition
    return replace(term, sql=f"if({present}, true, NULL)", nullable=True, fields=_Shown(term, condition))


def refuse_if(reasons: Mapping[str, bool], shown: str = "") -> None:
    """Raise UntranslatableError for the first reason that holds. shown: the step, for messages."""
    for reason, holds in reasons.items():
        if holds:
            raise UntranslatableError(f"{shown}: {reason}" if shown else reason)


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


# As JSON text.

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_OTHER_CONTROLS = "".join(map(chr, range(32))).translate(dict.fromkeys(map(ord, _ESCAPES)))
_OF_15_DIGITS = "DECIMAL(15,8)"
"""The type of numbers below ten million: the shortest text of such a double is the one that the decimal has."""


def json_text(term: Term, shown: str) -> tuple[str, tuple[Guard, ...]]:
    """Return SQL of a value as JSON text, null for null, and what must hold for it. Raises UntranslatableError.

    shown: the value, for messages.
    """
    guards: list[Guard] = []
    text = _json(term, shown, guards)
    sql = f"if({term.is_null}, NULL, {text})" if term.nullable or term.kind == NOTHING else text
    return f"CAST({sql} AS STRING)", tuple(guards)


def _json(term: Term, shown: str, guards: list[Guard]) -> str:
    """Return SQL of a value that is not null as JSON text."""
    if term.kind == NOTHING:
        return "'null'"
    if term.kind in NESTED:
        return _nested_json(term, shown, guards)
    sql = term.sql
    if term.kind != TEXT and term.kind != NUMBER:
        return f"CAST({sql} AS STRING)"
    if term.kind == NUMBER:
        exact = f"TRY_CAST({sql} AS {_OF_15_DIGITS})"
        fits = f"{sql} = 0D OR (abs({sql}) >= 0.001D AND abs({sql}) < 10000000D AND CAST({exact} AS DOUBLE) = {sql})"
        guards.append(Guard(f"({sql} IS NULL OR {fits})", f"{shown} has a number with many digits, as JSON"))
        digits = f"trim(TRAILING '0' FROM CAST({exact} AS STRING))"
        return f"if({sql} = 0D, CAST({sql} AS STRING), regexp_replace({digits}, '[.]$', '.0'))"
    none = f"(translate({sql}, {quoted_text(_OTHER_CONTROLS)}, '') = {sql})"
    guards.append(Guard(f"({sql} IS NULL OR {none})", f"{shown} has a text with control characters, as JSON"))
    for character, escape in _ESCAPES.items():
        sql = f"replace({sql}, {quoted_text(character)}, {quoted_text(escape)})"
    return f"""concat('"', {sql}, '"')"""


def _nested_json(term: Term, shown: str, guards: list[Guard]) -> str:
    parts: list[str] = []
    for name in term.fields:
        field = term.fields.get(name)
        if field is None or literal(name) is None:
            raise UntranslatableError(f"{shown} has a field {name} that SQL does not treat as Python does")
        text = _json(field, shown, guards)
        key = "" if term.kind == LIST else f"{json.dumps(name, ensure_ascii=False)}:"
        parts.append(quoted_text(("," if parts else "") + key))
        parts.append(f"if({field.is_null}, 'null', {text})" if field.nullable else text)
    begin, end = ("[", "]") if term.kind == LIST else ("{", "}")
    return f"concat('{begin}', {', '.join(parts)}, '{end}')"


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


def chosen(rows: DataFrame, tests: Sequence[Guard | Keep]) -> DataFrame:
    """Return the rows that meet `chosen_rows`."""
    return rows.where(chosen_rows(tests)) if tests else rows  # Spark takes milliseconds for each condition


def read_rows(guards: Sequence[Guard], tests: Sequence[Guard | Keep]) -> str:
    """Return the condition that rows of an input meet which pass its guards, and then tests, in their order.

    A guard of a column comes before the first test that reads it. Each part of the condition reads, of the rows that pass the parts
    before, only the columns that it names: Spark decodes a text only then.
    """
    pending = [guard for guard in guards if guard.column]
    parts: list[list[Guard | Keep]] = [[guard for guard in guards if not guard.column]]
    for test in tests:
        read = [guard for guard in pending if guard.column in test.sql]
        pending = [guard for guard in pending if guard not in read]
        parts[-1] += [*read, test]
        if isinstance(test, Keep):
            parts.append([])
    parts[-1] += pending
    return " AND ".join(f"({chosen_rows(part)})" for part in parts if part) or "true"
