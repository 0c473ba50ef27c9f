"""Expressions as SQL: whatever is translated has, for each row that its guards let pass, Python's own value and truth."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from streamkit.errors import UntranslatableError
from streamkit.expressions import parse
from streamkit.runtime.spark.job_options import PARQUET, Columns, Place
from streamkit.runtime.spark.rows.files import FILES, OpenedInput
from streamkit.runtime.spark.sql.expressions import translate, translate_condition
from streamkit.runtime.spark.sql.sources import InputColumns, SqlSource
from streamkit.runtime.spark.sql.terms import NOTHING, OBJECT, Guard
from streamkit.serdes import parse as parse_serde

CASES = int(os.environ.get("STREAMKIT_SQL_CASES", "1"))
"""How many times as many expressions a run draws."""
EXPRESSIONS = 120
ROWS = 150
SCHEMA = (
    "key string, value struct<a:bigint,b:bigint,small:int,price:double,s:string,t:string,flag:boolean,inner:struct<x:bigint,y:string>>,"
    "timestamp bigint"
)
NUMBERS = (None, 0, 1, -1, 2, 7, 1 << 31, 3_037_000_500, (1 << 63) - 1, -(1 << 63))
TEXTS = (
    None,
    "",
    "a",
    "A",
    "ab",
    "b",
    "é",
    "e\u0301",
    "\u00df",
    "\uffff",
    "\U0001f600",
    "a\0b",
    "it's",
    "\\n",
    " a\u2003\u00a0",
    "\x1f\tb\u200b",
    "None",
    "1",
)


class Draw:
    """Draws expressions, mostly of parts that fit each other."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)

    def expression(self) -> str:
        """One whole expression."""
        return self._random.choice((self.number, self.real, self.text, self.truth, self.truth, self.truth, self.wild))(
            3
        )

    def number(self, depth: int) -> str:
        """A whole number, or None."""
        leaves = (
            "value.a",
            "value['b']",
            "value.small",
            "value.inner.x",
            "value.get('a')",
            "value.get('a', value.b + 1)",
            "value.get('b', value.inner.x)",
            "0",
            "1",
            "-1",
            "timestamp",
        )
        if depth == 0 or self._random.random() < 0.3:
            return self._random.choice((*leaves, str((1 << 63) - 1), str(-(1 << 63))))
        if self._random.random() < 0.3:
            return f"({self.number(depth - 1)} if {self.truth(depth - 1)} else {self.number(depth - 1)})"
        if self._random.random() < 0.3:
            return self._random.choice(
                (
                    f"len({self.text(depth - 1)})",
                    f"abs({self.number(depth - 1)})",
                    f"round({self.real(depth - 1)})",
                    f"int({self.real(depth - 1)})",
                    f"({self.number(depth - 1)} {self._random.choice(('//', '%'))} {self._random.choice((1, 3, 60))})",
                    f"{self._random.choice(('min', 'max'))}({self.number(depth - 1)}, {self.number(depth - 1)})",
                    f"({self.number(depth - 1)} {self._random.choice(('and', 'or'))} {self.number(depth - 1)})",
                    "merge(value, {'a': value.b})['a']",
                    f"{{'n': {self.number(depth - 1)}, 't': {self.text(0)}}}['n']",
                    f"[{self.text(0)}, {self.number(depth - 1)}][1]",
                    f"len(str({self._random.choice((self.number, self.truth))(depth - 1)}))",
                    f"(value.inner.x if value.inner is not None else {self.number(0)})",
                )
            )
        return f"({self.number(depth - 1)} {self._random.choice('+-*')} {self.number(depth - 1)})"

    def real(self, depth: int) -> str:
        """A number that is not whole, or None."""
        draw = self._random
        if depth <= 0 or draw.random() < 0.3:
            return draw.choice(("value.price", "value['price']", "0.5", "1.2", "-0.0", "2.5", "1e300"))
        one, other = self.real(depth - 1), draw.choice((self.real, self.number))(depth - 1)
        one, other = draw.choice(((one, other), (other, one)))
        return draw.choice(
            (
                f"({one} {draw.choice('+-*/')} {other})",
                f"({self.number(depth - 1)} / {self.number(depth - 1)})",
                f"abs({self.real(depth - 1)})",
                f"float({one})",
                f"{draw.choice(('min', 'max'))}({self.real(depth - 1)}, {self.real(depth - 1)})",
                f"({self.real(depth - 1)} or {self.real(depth - 1)})",
            )
        )

    def text(self, depth: int) -> str:
        """A text, or None."""
        depth = max(0, depth)
        leaves = ("value.s", "value['t']", "value.inner.y", "key", "value.get('s', '')", *map(repr, TEXTS[1:]))
        leaves = (*leaves, "value.get('s', value.t + 'x')", "value.get('t', value.inner.get('y', 'z'))")
        if depth == 0 or self._random.random() < 0.4:
            return self._random.choice(leaves)
        if self._random.random() < 0.5:
            return f"({self.text(depth - 1)} + {self.text(depth - 1)})"
        if self._random.random() < 0.5:
            method = self._random.choice(("upper", "lower", "strip", "lstrip", "rstrip"))
            return self._random.choice(
                (
                    f"{self.text(depth - 1)}.{method}()",
                    f"{self.text(depth - 1)}[{self._random.choice(('1:', ':2', '0:1', '2:1', ':', '1:3'))}]",
                    f"str({self._random.choice((self.text, self.number, self.truth))(depth - 1)})",
                    f"({self.text(depth - 1)} {self._random.choice(('and', 'or'))} {self.text(depth - 1)})",
                    f"max({self.text(depth - 1)}, {self.text(depth - 1)})",
                    f"min({self.text(depth - 1)}, {self.text(depth - 1)})",
                    f"({self.text(depth - 1)} if {self.truth(depth - 1)} else {self.text(depth - 1)})",
                    f"{{'n': value.a, 't': {self.text(depth - 1)}}}['t']",
                )
            )
        return f'f"{{{self._random.choice(leaves[:4])}}}:{{{self._random.choice(("value.a", "value.inner.x"))}}}"'

    def truth(self, depth: int) -> str:
        """A condition."""
        draw = self._random
        if depth and draw.random() < 0.4:
            word = draw.choice(("and", "or"))
            return f"({self.truth(depth - 1)} {word} {self.truth(depth - 1)})"
        if draw.random() < 0.15:
            one, other = self.text(depth - 1), self.text(depth - 1)
            method = draw.choice(("startswith", "endswith"))
            return draw.choice((f"{one}.{method}({other})", f"({one} {draw.choice(('in', 'not in'))} {other})"))
        part = draw.choice((self.number, self.text))
        one, other = part(max(0, depth - 2)), part(max(0, depth - 2))
        return draw.choice(
            (
                f"(value.price {draw.choice(('<', '<=', '>', '>=', '==', '!='))} {draw.choice(('0', '1.5', '-0.0', '7', '9007199254740993', 'value.price'))})",
                "(value.price is not None and not value.price)",
                f"({self.real(depth - 1)} {draw.choice(('<', '>=', '==', '!='))} {self.real(0)})",
                f"(value.price {draw.choice(('in', 'not in'))} (0.0, 1.5, None))",
                f"({one} in {{{', '.join(repr(draw.choice(self._same(part))) for _ in range(2))}}})",
                f"bool({part(0)})",
                f"(value.inner is None or {one} == value.inner.{'x' if part == self.number else 'y'})",
                f"({one} == {other} != {part(0)})",
                f"({one} {draw.choice(('<', '<=', '>', '>=', '==', '!='))} {other})",
                f"({one} {draw.choice(('is', 'is not'))} None)",
                f"({one} is not None and {one} {draw.choice(('<', '>='))} {other})",
                f"({one} {draw.choice(('in', 'not in'))} [{', '.join(repr(draw.choice(self._same(part))) for _ in range(3))}])",
                f"({one} < {other} < {part(0)})",
                f"(not {one})",
                f"(value.flag == {draw.choice(('True', 'False', 'value.flag'))})",
                f"(value.flag and {one} == {other})",
            )
        )

    def wild(self, depth: int) -> str:
        """Parts that may not fit, most of which are not translated."""
        parts = (self.number, self.text, self.truth)
        one, other = (self._random.choice(parts)(depth - 1) for _ in range(2))
        return self._random.choice(
            (
                f"({one} == {other})",
                f"({one} + {other})",
                f"({one} / 2)",
                f"bool({one})",
                f"{self.text(depth - 1)}.title()",
                f"({one} or {other})",
            )
        )

    def _same(self, part: Callable[[int], str]) -> tuple[Any, ...]:
        return NUMBERS if part == self.number else TEXTS


def rows(draw: random.Random) -> list[dict[str, Any]]:
    """Records, most of whose fields are not null."""

    def one_of(pool: tuple[Any, ...]) -> Any:
        return draw.choice(pool) if draw.random() < 0.3 else draw.choice(pool[1:])

    def value() -> dict[str, Any]:
        return {
            "a": one_of(NUMBERS),
            "b": one_of(NUMBERS),
            "small": one_of((None, 0, 5, -(1 << 31), (1 << 31) - 1)),
            "price": one_of((None, 0.0, -0.0, 1.5, 5e-324, 1e300, 7.0, 2.0**53)),
            "s": one_of(TEXTS),
            "t": one_of(TEXTS),
            "flag": draw.choice((None, True, False)),
            "inner": None if draw.random() < 0.1 else {"x": one_of(NUMBERS), "y": one_of(TEXTS)},
        }

    return [{"key": one_of(TEXTS), "value": value(), "timestamp": draw.randrange(10)} for _ in range(ROWS)]


def holds(guards: Iterable[Guard]) -> str:
    """The condition that guards hold, each under those before it."""
    found = " ".join(f"WHEN {each.sql} IS NOT TRUE THEN false" for each in guards)
    return f"CASE {found} ELSE true END" if found else "true"


def outcome(run: Callable[[], Any]) -> tuple[bool, Any]:
    """Whether an expression has a value, and the value."""
    try:
        return True, run()
    except Exception:
        return False, None


class Comparison:
    """Expressions over the columns of one source, and what Python makes of the same records."""

    def __init__(self) -> None:
        self.parsed: dict[str, Any] = {}
        self.columns: dict[str, tuple[str, str, str, bool]] = {}
        """By expression: that its guards hold, its value and its truth, and whether the value is a column."""
        self.refused: list[str] = []

    def add(self, text: str, source: SqlSource) -> None:
        """Translate an expression, unless it has no exact form."""
        names = {"key": source.key, "value": source.value, "timestamp": source.time}
        expression = parse(text, tuple(names))
        try:
            term, condition = translate(expression, names), None
        except UntranslatableError:
            term = None
        try:
            condition = translate_condition(expression, names)
        except UntranslatableError:
            self.refused.append(text)
            return
        self.parsed[text] = expression.function(tuple(names))
        is_column = term is not None and term.kind not in (OBJECT, NOTHING)
        value = term.sql if term is not None and is_column else "NULL"
        self.columns[text] = (holds(condition.guards), value, condition.sql, is_column)

    def differences(self, found: list[Any], records: list[dict[str, Any]], texts: list[str]) -> list[Any]:
        """What differs, by the rows of a query with three columns for each expression."""
        wrong = []
        for record, row in zip(records, found, strict=True):
            for number, text in enumerate(texts):
                passes, value, truth = row[3 * number : 3 * number + 3]
                succeeds, expected = outcome(lambda: self.parsed[text](*record.values()))  # noqa: B023 - called at once
                if not passes:
                    continue
                is_same = not self.columns[text][3] or (type(value) is type(expected) and repr(value) == repr(expected))
                if not succeeds or not is_same or truth is not bool(expected):
                    wrong.append((text, record, "fails" if not succeeds else expected, value, truth))
        return wrong


@pytest.mark.parametrize("seed", range(CASES))
def test_what_is_translated_has_pythons_values(spark: Any, seed: int) -> None:
    draw, records = Draw(seed), rows(random.Random(seed))
    frame = spark.createDataFrame(records, SCHEMA).coalesce(1)
    source = SqlSource("orders", InputColumns(frame.schema, False, FILES), (parse_serde("string"), parse_serde("json")))
    compared = Comparison()
    for _ in range(EXPRESSIONS):
        compared.add(draw.expression(), source)
    opened = OpenedInput(Place("orders", PARQUET, columns=Columns()), lambda: frame, FILES, frame, 0)
    columns = source.frame(opened, source.all_columns())
    texts = list(compared.columns)
    # A failure may not come from a part that Python does not evaluate.
    selected = [
        f"CASE WHEN {ok} THEN {sql} END"
        for ok, value, truth, _ in compared.columns.values()
        for sql in (ok, value, truth)
    ]
    found = columns.selectExpr(*(f"{sql} AS c{number}" for number, sql in enumerate(selected))).collect()
    assert not compared.differences(found, records, texts)
    passed = sum(bool(row[3 * number]) for row in found for number in range(len(texts)))
    shown = f"{len(texts)} of {EXPRESSIONS} expressions compiled; {passed} of {len(texts) * ROWS} results compared"
    print(shown)
    assert len(texts) > EXPRESSIONS / 2, shown
    assert passed > len(texts) * ROWS / 3, shown


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "value.a ** 2",
            "file.yaml:7: value.a ** 2: an operator of a whole number and a whole number that SQL does not have exactly",
        ),
        ("value.a > 1.5", "file.yaml:7: value.a > 1.5: a whole number is compared with a number"),
        ("value.s == value.a", "file.yaml:7: value.s == value.a: text is compared with a whole number"),
        (
            "value.other > 1",
            "file.yaml:7: value.other: there is no column other, or one of a type that SQL does not treat as Python does",
        ),
        ("value.s.title()", "file.yaml:7: value.s.title(): the method has no exact form in SQL"),
        ("len(value.inner)", "file.yaml:7: len(value.inner): the function has no exact form in SQL for an object"),
        ("value.get('s', sorted(value.t))", "file.yaml:7: sorted(value.t): the function has no exact form in SQL"),
        ("value.s[0]", "file.yaml:7: value.s[0]: only fields of objects by their names are columns"),
    ],
)
def test_what_is_not_exact_is_named_with_its_line(spark: Any, text: str, reason: str) -> None:
    from pyspark.sql.types import StructType

    from streamkit.errors import Position

    columns = InputColumns(StructType.fromDDL(SCHEMA), False, FILES)
    source = SqlSource("orders", columns, (parse_serde("string"), parse_serde("json")))
    with pytest.raises(UntranslatableError) as found:
        translate(parse(text, ("value",), Position("file.yaml", 7, 1)), {"value": source.value})
    assert str(found.value) == reason


@pytest.mark.parametrize(
    ("name", "other"), [("k", "K"), ("k", "\u212a"), ("i", "\u0131"), ("\u1e9e", "\u00df"), ("s", "\u017f")]
)
def test_names_that_spark_does_not_tell_apart_are_no_columns(name: str, other: str) -> None:
    from pyspark.sql.types import LongType, StructType

    value = StructType().add(name, LongType()).add(other, LongType()).add("n", LongType())
    columns = InputColumns(StructType().add("value", value).add("timestamp", LongType()), False, FILES)
    source = SqlSource("orders", columns, (parse_serde("string"), parse_serde("json")))
    assert [name for name in source.value.fields if source.value.fields.get(name)] == ["n"]


@pytest.mark.parametrize(("count", "longest"), [(3, 1 << 16), (19, (1 << 19) // 20)])
def test_columns_of_text_share_what_a_value_may_have(count: int, longest: int) -> None:
    from pyspark.sql.types import LongType, StringType, StructType

    value = StructType()
    for number in range(count):
        value = value.add(f"s{number}", StringType())
    parts = StructType().add("key", StringType()).add("value", value).add("timestamp", LongType())
    source = SqlSource("orders", InputColumns(parts, False, FILES), (parse_serde("string"), parse_serde("json")))
    assert len(dict(source.value.fields)) == count  # reads each
    limits = [
        int(each)
        for guard in source.guards(source.all_columns())
        for each in re.findall(r"octet_length\(.*\) <= (\d+)", guard.sql)
    ]
    assert limits == [longest] * (count + 1)
