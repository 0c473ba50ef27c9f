"""Frozen dataclasses that are cheap to define."""

from __future__ import annotations

import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field
from typing import Any, ClassVar

import pytest

from streamkit.operators.core.frozen import frozen


@frozen
class Base:
    kind: ClassVar[str] = "base"
    name: str


@frozen
class Point(Base):
    x: int = 0
    tags: list[str] = field(default_factory=list)
    where: Any = field(default=None, compare=False)


def test_behaves_like_a_dataclass() -> None:
    point = Point("p", x=2, where="here")
    assert point == Point("p", 2)
    assert point != Point("p", 3)
    assert repr(point) == "Point(name='p', x=2, tags=[], where='here')"
    assert [each.name for each in dataclasses.fields(point)] == ["name", "x", "tags", "where"]
    assert dataclasses.replace(point, x=5).x == 5
    assert pickle.loads(pickle.dumps(point)) == point
    assert hash(Base("a")) == hash(Base("a"))
    assert Point("a").tags is not Point("a").tags


def test_is_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        Base("a").name = "b"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del Base("a").name  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "named"), [((), {}), (("a", "b"), {}), (("a",), {"name": "b"}), (("a",), {"y": 1})]
)
def test_wrong_arguments(arguments: tuple, named: dict) -> None:
    with pytest.raises(TypeError):
        Base(*arguments, **named)
