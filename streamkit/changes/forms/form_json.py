"""The form of an application as JSON, which outlives the plan: beside state that later runs continue from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Union, get_args, get_origin, get_type_hints

from streamkit.changes.forms.form import Form, RowForm
from streamkit.serdes.plain import Json


def to_json(form: Form) -> dict[str, Json]:
    """Return a form as data for JSON, without the name of its file."""
    found: dict[str, Json] = _encoded(form)
    return found


def from_json(data: Json) -> Form:
    """Return the form of `to_json`. Raises ValueError for data that is none.

    Tuples inside documents become lists, so that only forms which both come from JSON are comparable.
    """
    try:
        found: Form = _decoded(Form, data)
        return found
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is not the form of an application: {error!r}") from error


def rows_to_json(rows: RowForm) -> Json:
    """Return the form of rows as data for JSON."""
    return _encoded(rows)


def rows_from_json(data: Json) -> RowForm:
    """Return the form of rows of `rows_to_json`."""
    found: RowForm = _decoded(RowForm, data)
    return found


def _encoded(value: object) -> Json:
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _encoded(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, frozenset):
        return sorted(map(_encoded, value))
    if isinstance(value, tuple | list):
        return [_encoded(each) for each in value]
    if isinstance(value, Mapping):
        return {str(name): _encoded(each) for name, each in value.items()}
    return value


def _decoded(kind: Json, data: Json) -> Json:
    origin: Json = get_origin(kind)
    arguments = get_args(kind)
    if kind is object or data is None:
        return data
    if origin in (Union, UnionType):
        others = [each for each in arguments if each is not NoneType]
        # A union of several types is a document of JSON.
        return _decoded(others[0], data) if len(others) == 1 else data
    if origin is frozenset:
        return frozenset(_decoded(arguments[0], each) for each in data)
    if origin is tuple:
        return tuple(_decoded(arguments[0], each) for each in data)
    if origin is not None and issubclass(origin, Mapping):
        return {name: _decoded(arguments[1], each) for name, each in data.items()}
    hints = get_type_hints(kind) if isinstance(kind, type) else {}
    if is_dataclass(kind) and isinstance(kind, type):
        return kind(**{name: _decoded(hints[name], data[name]) for name in hints if name in data})
    if isinstance(kind, type) and issubclass(kind, tuple):
        return kind(*(_decoded(hint, each) for hint, each in zip(hints.values(), data, strict=True)))
    return data
