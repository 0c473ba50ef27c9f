"""Frozen dataclasses whose definition costs next to nothing.

`dataclasses.dataclass` compiles methods for every class, nearly a millisecond each; a hundred kinds of processors and
fields would make up most of the time that a command takes to start. These are dataclasses in every other respect.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field
from typing import TYPE_CHECKING, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ClassVar, Protocol

    from _typeshed import DataclassInstance

    class _Frozen(DataclassInstance, Protocol):
        _defaults: ClassVar[dict[str, object]]
        _factories: ClassVar[dict[str, Callable[[], object]]]


Class = TypeVar("Class", bound=type)


@dataclass
class _Sample:
    ordinary: int


# dataclasses set these attributes, but typeshed does not declare them.
_ORDINARY = _Sample.__dataclass_fields__["ordinary"]._field_type  # type: ignore[attr-defined]


@dataclass_transform(frozen_default=True, field_specifiers=(field, Field))
def frozen(cls: Class) -> Class:
    """Make a class with annotations an immutable dataclass with equality by value."""
    fields: dict[str, Field[object]] = dict(getattr(cls, "__dataclass_fields__", {}))
    for name, annotation in cls.__dict__.get("__annotations__", {}).items():  # noqa: RUF063 - inspect is slow to import
        if not str(annotation).startswith("ClassVar"):
            fields[name] = _field(cls, name, annotation)
    cls.__dataclass_fields__ = fields  # type: ignore[attr-defined]
    cls.__match_args__ = tuple(fields)  # type: ignore[attr-defined, misc]
    cls._defaults = {  # type: ignore[attr-defined]
        name: field_.default for name, field_ in fields.items() if field_.default is not MISSING
    }
    cls._factories = {  # type: ignore[attr-defined]
        name: field_.default_factory for name, field_ in fields.items() if field_.default_factory is not MISSING
    }
    for method in (_init, _repr, _eq, _hash, _setattr, _delattr):
        setattr(cls, f"_{method.__name__}__", method)
    return cls


def _field(cls: type, name: str, annotation: object) -> Field[object]:
    default = cls.__dict__.get(name, MISSING)
    own: Field[object] = default if isinstance(default, Field) else field(default=default)
    own.name, own.type = name, annotation
    own._field_type = _ORDINARY  # type: ignore[attr-defined]
    if isinstance(default, Field):
        if own.default is MISSING:
            delattr(cls, name)
        else:
            setattr(cls, name, own.default)
    return own


def _init(self: _Frozen, *args: object, **named: object) -> None:
    fields = self.__dataclass_fields__
    if len(args) > len(fields):
        raise TypeError(f"{type(self).__name__} takes {len(fields)} arguments, not {len(args)}")
    for name, value in zip(fields, args, strict=False):
        if name in named:
            raise TypeError(f"{type(self).__name__} got two values for {name}")
        named[name] = value
    if not named.keys() <= fields.keys():
        raise TypeError(f"{type(self).__name__} has no {', '.join(named.keys() - fields.keys())}")
    values = self.__dict__
    if len(named) < len(fields):
        values.update(self._defaults)
        for name, make in self._factories.items():
            if name not in named:
                values[name] = make()
    values.update(named)
    if len(values) < len(fields):
        missing = next(name for name in fields if name not in values)
        raise TypeError(f"{type(self).__name__} needs {missing}")


def _compared(self: DataclassInstance) -> tuple[object, ...]:
    return tuple(getattr(self, name) for name, field_ in self.__dataclass_fields__.items() if field_.compare)


def _repr(self: DataclassInstance) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name, field_ in self.__dataclass_fields__.items() if field_.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _eq(self: DataclassInstance, other: DataclassInstance) -> bool:
    return _compared(self) == _compared(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: DataclassInstance) -> int:
    return hash(_compared(self))


def _setattr(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
