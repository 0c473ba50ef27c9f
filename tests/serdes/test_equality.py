"""Which keys are equal: as the objects of a Java program with the same serdes are."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from streamkit import serdes
from streamkit.record import WindowedKey
from streamkit.serdes.registry import Registry
from streamkit.serdes.serde import Binding, same

NFC, NFD = "caf\u00e9", "cafe\u0301"
APART = [
    True, False, 1, 0, -1, 1.0, 0.0, -0.0, "1", "true", "", "NaN", 2**53 + 1, 2.0**53, 2**53, 10**20, 1e20, NFC, NFD,
    [], [1], [True], [1.0], [[1]], {}, {"a": 1}, {"a": 1.0}, {"a": True}, {"a": None}, {"b": 1}, {"a": [0.0]},
    {"a": [-0.0]}, float("nan"), float("inf"), b"1", b"",
]  # fmt: skip
"""What Jackson reads as nodes that are not equal, and bytes."""


def test_values_of_another_kind_are_never_equal() -> None:
    for one, other in itertools.product(range(len(APART)), repeat=2):
        assert same(APART[one], APART[other]) is (one == other), (APART[one], APART[other])


def test_values_of_equal_content_are_the_same() -> None:
    assert same({"a": 1, "b": [{"c": 0.5, "d": None}]}, {"b": [{"d": None, "c": 0.5}], "a": 1})
    assert same([1, "a"], (1, "a"))
    assert same(float("nan"), -float("nan"))
    assert same(2**70, 2**70)


class Word:
    """An object of a user's, which does not know when it is equal."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str):
        self.text = text

    def __eq__(self, other: object) -> bool:
        raise AssertionError("a registry was asked")


class WordSerde:
    """Writes words without regard to case."""

    def encode(self, value: Word) -> bytes:
        return value.text.lower().encode()

    def decode(self, data: bytes) -> Word:
        return Word(data.decode())


@pytest.mark.parametrize(
    ("spec", "one", "other", "equal"),
    [
        ("string", NFC, NFD, False),
        ("bytes", NFC.encode(), NFC.encode(), True),
        ("double", 1, 1.0, True),
        ("double", 0.0, -0.0, False),
        ("double", float("nan"), -float("nan"), True),
        ("float", 0.1, 0.10000000149011612, True),
        ("boolean", True, True, True),
        ("boolean", True, 1, False),
        ("uuid", "123E4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000", True),
        ("json", {"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ("json", {"a": 1}, {"a": 1.0}, False),
        ("json", True, 1, False),
        ({"csv": {"fields": {"a": "long", "b": "string"}}}, {"a": 1}, {"b": None, "a": 1}, True),
        ({"windowed": "double", "size": 5}, WindowedKey(0.0, 0, 5), WindowedKey(-0.0, 0, 5), False),
        ({"windowed": "double", "size": 5}, WindowedKey(1, 0, 5), WindowedKey(1.0, 0, 5), True),
        ({"windowed": "json", "size": 5}, WindowedKey(1, 0, 5), WindowedKey(1, 1, 6), False),
        ({"session_windowed": "json"}, WindowedKey(True, 0, 5), WindowedKey(1, 0, 5), False),
        ({"call": "tests.serdes.test_equality:WordSerde"}, Word("A"), Word("a"), True),
        ({"call": "tests.serdes.test_equality:WordSerde"}, Word("a"), Word("b"), False),
    ],
)
def test_keys_of_a_serde(spec: Any, one: Any, other: Any, equal: bool) -> None:
    assert serdes.parse(spec).same(one, other) is equal


AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "n", "type": "double"},
        {"name": "m", "type": {"type": "map", "values": "long"}, "default": {}},
    ],
}
PROTO = 'syntax = "proto3"; message R { double n = 1; map<string, int64> m = 2; }'


@pytest.mark.parametrize(
    "spec", [{"avro": "r.avsc"}, {"protobuf": "r.proto", "message": "R"}], ids=["avro", "protobuf"]
)
@pytest.mark.parametrize("framed", [False, True])
def test_records_are_equal_by_their_fields(tmp_path: Path, spec: Any, framed: bool) -> None:
    (tmp_path / "r.avsc").write_text(json.dumps(AVRO))
    (tmp_path / "r.proto").write_text(PROTO)
    serde = serdes.parse(spec, str(tmp_path))
    if framed:
        # No registry listens there: comparing asks none.
        serde = serde.bind(Binding(Registry({"schema.registry.url": ("http://127.0.0.1:1",)}), "topic", True))
    assert serde.same({"n": 1, "m": {}}, {"m": {}, "n": 1.0})
    assert serde.same({"n": 1.0, "m": {"a": 1, "b": 2}}, {"m": {"b": 2, "a": 1}, "n": 1.0})
    assert not serde.same({"n": 0.0, "m": {}}, {"n": -0.0, "m": {}})
    assert not serde.same({"n": 1.0, "m": {"a": 1}}, {"n": 1.0, "m": {"a": 2}})
