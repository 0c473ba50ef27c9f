"""The types of values that are known before any record: the parts of schema types that expressions need.

An unknown type is ANY, on which every operation is allowed. Types compare by identity, since they may contain themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class Type:
    """The type of a value; `word` is its name in messages."""

    word = "a value"


class Record(Type):
    """An object with named fields. closed: it has no other fields; name: the name of the record in its schema."""

    def __init__(self, name: str, fields: Mapping[str, Type], closed: bool = True):
        self.name = name
        self.fields: dict[str, Type] = dict(fields)
        self.closed = closed
        self.word = name


class WindowedKey(Record):
    """A key with its window."""

    def __init__(self, key: Type):
        super().__init__("a windowed key", {"key": key, "start": INTEGER, "end": INTEGER})


class ListOf(Type):
    """A list of items of one type."""

    word = "a list"

    def __init__(self, item: Type):
        self.item = item


class MapOf(Type):
    """An object with any names, whose values are of one type."""

    word = "a map"

    def __init__(self, value: Type):
        self.value = value


class Scalar(Type):
    """Text, a number, a boolean or bytes: a value without fields."""

    def __init__(self, word: str):
        self.word = word

    def __reduce__(self) -> str:
        # Another object would be another type.
        return next(name for name, kind in globals().items() if kind is self)


class OneOf(Type):
    """One of several types, none of them ANY; use `one_of` to make it."""

    def __init__(self, choices: tuple[Type, ...]):
        self.choices = choices
        self.word = " or ".join(dict.fromkeys(choice.word for choice in choices))


class _Any(Type):
    def __reduce__(self) -> str:
        return "ANY"


ANY = _Any()
TEXT = Scalar("text")
BOOLEAN = Scalar("a boolean")
INTEGER = Scalar("a whole number")
NUMBER = Scalar("a number")
BYTES = Scalar("bytes")
NOTHING = Scalar("nothing")


def one_of(types: Iterable[Type]) -> Type:
    """Return the type of a value that has one of several types; NOTHING does not count, since it has no fields.

    >>> one_of([TEXT, NOTHING]) is TEXT, one_of([TEXT, ANY]) is ANY, one_of([TEXT, BYTES]).word
    (True, True, 'text or bytes')
    """
    flat: dict[int, Type] = {}
    for type_ in types:
        for choice in type_.choices if isinstance(type_, OneOf) else (type_,):
            flat[id(choice)] = choice
    if id(ANY) in flat:
        return ANY
    flat.pop(id(NOTHING), None)
    distinct = tuple(flat.values())
    return OneOf(distinct) if len(distinct) > 1 else distinct[0] if distinct else ANY


def field_names(owner: Type) -> list[str]:
    """Return every field that a value of a type may have by name."""
    choices = owner.choices if isinstance(owner, OneOf) else (owner,)
    return list(dict.fromkeys(name for choice in choices if isinstance(choice, Record) for name in choice.fields))


def member(owner: Type, name: str) -> Type | None:
    """Return the type of a field, or None if no value of the owner's type has it."""
    if isinstance(owner, OneOf):
        fields = [field for field in (member(choice, name) for choice in owner.choices) if field is not None]
        return one_of(fields) if fields else None
    if isinstance(owner, Record):
        return owner.fields.get(name, None if owner.closed else ANY)
    if isinstance(owner, MapOf):
        return owner.value
    return ANY if owner is ANY else None


def item(owner: Type) -> Type:
    """Return the type of a value's items, by iteration or index; ANY if it is not known."""
    if isinstance(owner, OneOf):
        return one_of(item(choice) for choice in owner.choices)
    if isinstance(owner, ListOf):
        return owner.item
    return TEXT if isinstance(owner, (Record, MapOf)) else ANY
