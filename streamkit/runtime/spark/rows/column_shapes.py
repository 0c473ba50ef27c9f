"""What columns of outputs hold, and their types as users write them, which are read before there is a session of Spark."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import NoReturn

JSON, STRUCT, ARRAY, MAP = "json", "struct", "array", "map"
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|\w+|[<>(),:])")
_ALIASES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "timestamp_ltz": "timestamp"}
_DECIMALS = ("decimal", "dec", "numeric")
_MOST_DIGITS = 38


@dataclass(frozen=True)
class Shape:
    """What a column holds. kind: a type of Spark, or JSON for text that is any value as JSON; fields: of a nested type."""

    kind: str
    fields: tuple[tuple[str, Shape], ...] = ()

    @property
    def ddl(self) -> str:
        """The type as Spark writes it."""
        if self.kind == STRUCT:
            return f"struct<{','.join(f'{ticked(name)}:{shape.ddl}' for name, shape in self.fields)}>"
        if self.kind == ARRAY:
            return f"array<{self.fields[0][1].ddl}>"
        if self.kind == MAP:
            return f"map<string,{self.fields[0][1].ddl}>"
        return "string" if self.kind == JSON else self.kind


def ticked(name: str) -> str:
    """Return a name as SQL takes any."""
    return "`" + name.replace("`", "``") + "`"


def parse_shape(text: str, scalars: Collection[str]) -> Shape:
    """Return the shape of a type, or of names with types. scalars: the types that a value can have.

    Raises ValueError with what was expected.

    >>> parse_shape("amount decimal(10,2), tags array<string>", ["string"]).ddl
    'struct<`amount`:decimal(10,2),`tags`:array<string>>'
    """
    return _Parser(text, scalars).shape()


class _Parser:
    def __init__(self, text: str, scalars: Collection[str]):
        self._scalars = scalars
        self._tokens = _TOKEN.findall(text)
        if _TOKEN.sub("", text).strip():
            self._tokens = []

    def shape(self) -> Shape:
        """Return the shape of all of the text."""
        is_list = len(self._tokens) > 1 and self._tokens[1] not in ("<", "(")
        found = Shape(STRUCT, self._fields()) if is_list else self._type()
        return found if not self._tokens else self._refuse()

    def _fields(self) -> tuple[tuple[str, Shape], ...]:
        found: dict[str, Shape] = {}
        while True:
            name = self._next()
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            self._skip(":")
            if not re.match(r"\w", name) or name in found:
                self._refuse()
            found[name] = self._type()
            if not self._skip(","):
                return tuple(found.items())

    def _type(self) -> Shape:
        name = self._next().lower()
        name = _ALIASES.get(name, name)
        if name in _DECIMALS:
            return self._decimal()
        if name in (STRUCT, ARRAY, MAP):
            return self._nested(name)
        if name not in self._scalars:
            known = ", ".join(self._scalars)
            raise ValueError(f"a value has no form of type {name}; use one of {known}, decimal, struct, array, map")
        return Shape(name)

    def _nested(self, name: str) -> Shape:
        self._expect("<")
        if name == STRUCT:
            fields = self._fields()
        elif name == ARRAY:
            fields = (("element", self._type()),)
        else:
            self._expect("string")
            self._expect(",")
            fields = (("value", self._type()),)
        self._expect(">")
        return Shape(name, fields)

    def _decimal(self) -> Shape:
        precision, scale = "10", "0"
        if self._skip("("):
            precision = self._next()
            scale = self._next() if self._skip(",") else "0"
            self._expect(")")
        if not (precision.isdecimal() and scale.isdecimal() and int(scale) <= int(precision) <= _MOST_DIGITS):
            self._refuse()
        return Shape(f"decimal({int(precision)},{int(scale)})")

    def _next(self) -> str:
        return str(self._tokens.pop(0)) if self._tokens else self._refuse()

    def _skip(self, token: str) -> bool:
        if not self._tokens or self._tokens[0].lower() != token:
            return False
        self._tokens.pop(0)
        return True

    def _expect(self, token: str) -> None:
        if not self._skip(token):
            self._refuse()

    def _refuse(self) -> NoReturn:
        raise ValueError("expected a type of Spark, or names with types: amount double, item string")


__all__ = ["Shape", "parse_shape", "ticked"]
