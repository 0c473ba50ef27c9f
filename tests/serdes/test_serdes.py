"""Every serde: bytes of Java, round trips, refusals, JSON forms, inline sources that agree with the methods."""

from __future__ import annotations

import pickle
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit import serdes
from streamkit.code import symbol
from streamkit.errors import SerdeError
from streamkit.record import WindowedKey
from streamkit.serdes.formats.json_text import JsonSerde, to_text

WINDOWED = {"windowed": "string", "size": "5m"}
SESSION = {"session_windowed": "long"}
BYTES = [
    ("string", "ä", "c3a4"),
    ("string", "", ""),
    ("bytes", b"\x00\xff", "00ff"),
    ("boolean", True, "01"),
    ("boolean", False, "00"),
    ("short", -2, "fffe"),
    ("integer", 258, "00000102"),
    ("long", -1, "ffffffffffffffff"),
    ("float", 1.5, "3fc00000"),
    ("double", 1, "3ff0000000000000"),
    ("double", -2.5, "c004000000000000"),
    ("uuid", "123e4567-e89b-12d3-a456-426614174000", b"123e4567-e89b-12d3-a456-426614174000".hex()),
    ("json", {"b": 1, "a": ["ä", None, 1.5, True]}, '{"b":1,"a":["ä",null,1.5,true]}'.encode().hex()),
    (WINDOWED, WindowedKey("a", 1, 300_001), "610000000000000001"),
    (SESSION, WindowedKey(5, 1, 2), "0000000000000005" + "0000000000000002" + "0000000000000001"),
]


@pytest.mark.parametrize(("spec", "value", "data"), BYTES)
def test_bytes_of_java(spec: Any, value: Any, data: str) -> None:
    serde = serdes.parse(spec)
    assert serde.encode(value).hex() == data
    assert serde.decode(bytes.fromhex(data)) == value
    assert serde.from_json(serde.to_json(value)) == value
    assert serde.to_json(None) is None
    assert serde.from_json(None) is None
    again = pickle.loads(pickle.dumps(serde))
    assert again == serde
    assert hash(again) == hash(serde)
    assert again.encode(value).hex() == data


@pytest.mark.parametrize(("spec", "value", "data"), BYTES)
def test_columns_of_json_are_what_each_is_alone(spec: Any, value: Any, data: str) -> None:
    serde = serdes.parse(spec)
    raw = bytes.fromhex(data)
    alone = serde.to_json(serde.decode(raw))
    assert serde.json_column([raw, raw]) == [alone, alone]
    assert serde.json_column([raw, None]) == [alone, None]
    assert serde.json_column([]) == []


def test_columns_of_windowed_keys() -> None:
    serde = serdes.parse(WINDOWED)
    assert serde.json_column([b"a" + b"\x7f" + b"\xff" * 7]) == [{"key": "a", "start": 2**63 - 1, "end": 2**63 - 1}]
    with pytest.raises(SerdeError, match="expected at least 8 bytes"):
        serde.json_column([b"a" * 9, b"a"])


@pytest.mark.parametrize(("spec", "value", "data"), BYTES)
def test_inline_sources(spec: Any, value: Any, data: str) -> None:
    serde = serdes.parse(spec)
    assert [name for name in serde.inline_globals if not name.startswith("_s_")] == []
    x = symbol("x")
    write, read, same = serde.encode_source(x), serde.decode_source(x), serde.canonical_source(x)
    raw = bytes.fromhex(data)
    if write is not None:
        assert eval(write.source, {"x": value, **serde.inline_globals}) == raw
    if read is not None:
        assert eval(read.source, {"x": raw, **serde.inline_globals}) == value
    if same is not None and eval(same.source, {"x": raw}):
        assert serde.encode(serde.decode(raw)) == raw


WRONG = [
    ("string", 1),
    ("string", b"a"),
    ("bytes", "a"),
    ("boolean", 1),
    ("short", 2**15),
    ("integer", 2**31),
    ("long", 2**63),
    ("long", 1.0),
    ("long", True),
    ("long", "1"),
    ("double", "1"),
    ("double", True),
    ("double", 10**400),
    ("float", 1e300),
    ("uuid", "no"),
    ("void", 1),
    ("json", {1, 2}),
    ("json", {"a": b"x"}),
    ("json", {(1,): 1}),
    (WINDOWED, "a"),
    (SESSION, 1),
]


@pytest.mark.parametrize(("spec", "value"), WRONG)
def test_values_of_another_type(spec: Any, value: Any) -> None:
    serde = serdes.parse(spec)
    with pytest.raises(SerdeError):
        serde.encode(value)
    piece = serde.encode_source(symbol("x"))
    if piece is not None:
        failed = False
        try:
            eval(piece.source, {"x": value, **serde.inline_globals})
        except Exception:
            failed = True
        assert failed


@pytest.mark.parametrize(
    ("spec", "data"),
    [
        ("boolean", b"\x02"),
        ("boolean", b""),
        ("short", b"\0"),
        ("integer", b"\0" * 5),
        ("long", b""),
        ("double", b"\0"),
        ("uuid", b"no"),
        ("void", b""),
        ("json", b"{"),
        ("json", b""),
        ("json", b"NaN"),
        ("json", b"\xff"),
        (WINDOWED, b"\0" * 7),
        (SESSION, b"\0" * 15),
    ],
)
def test_bytes_of_something_else(spec: Any, data: bytes) -> None:
    with pytest.raises(SerdeError):
        serdes.parse(spec).decode(data)


def test_text_that_is_no_text() -> None:
    text = serdes.parse("string")
    assert text.decode(b"a\xff\xc3") == "a\ufffd\ufffd"
    assert text.encode("a\ud800") == b"a?"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (9999999.5, "9999999.5"),
        (1e10, "1.0E10"),
        (1e300, "1.0E300"),
        (1.5e-5, "1.5E-5"),
        (0.001, "0.001"),
        (5e-324, "4.9E-324"),
        (-1e-323, "-9.9E-324"),
        (1e-322, "9.9E-323"),
        (4.4e-323, "4.4E-323"),
        (2e23, "2.0E23"),
        (1e23, "1.0E23"),
        (0.0001, "1.0E-4"),
        (-0.00099, "-9.9E-4"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (100.0, "100.0"),
        (float("nan"), '"NaN"'),
        (float("-inf"), '"-Infinity"'),
        ([1e10, {"a": (1e-9, None)}], '[1.0E10,{"a":[1.0E-9,null]}]'),
        ({"n": float("nan"), "m": None}, '{"n":"NaN","m":null}'),
        (10**30, "1" + "0" * 30),
        ({1: 2, False: 3}, '{"1":2,"false":3}'),
        ((1, 2), "[1,2]"),
        ("1e10 0.0001 null", '"1e10 0.0001 null"'),
        ({"e": "7e8", "null": None}, '{"e":"7e8","null":null}'),
    ],
)
def test_numbers_as_java_writes_them(value: Any, text: str) -> None:
    assert serdes.parse("json").encode(value).decode() == text


def test_json_takes_no_more_memory_than_its_bytes() -> None:
    encode = serdes.parse("json").encode
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        texts = [encode({"a": number}) for number in range(100)]
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # The list has a pointer to each; the allocator aligns each to 16 bytes.
    assert taken < sum(map(sys.getsizeof, texts)) + sys.getsizeof(texts) + 16 * len(texts) + 1024


@pytest.mark.parametrize(
    ("value", "name"),
    [({1: "a", "1": "b"}, "1"), ({"null": 1, None: 2}, "null"), ({"a": [{"true": 1, True: 2}]}, "true")],
)
def test_json_writes_no_field_twice(value: Any, name: str) -> None:
    """Readers keep one of the two."""
    with pytest.raises(
        SerdeError, match=rf"serde json: there are two fields '{name}', one named by .* and one by text"
    ):
        serdes.parse("json").encode(value)


def test_json_keeps_long_integers_and_the_order_of_fields() -> None:
    json = serdes.parse("json")
    assert json.decode(b"null") is None
    assert json.decode(b'{"a": 123456789012345678901234567890}') == {"a": 123456789012345678901234567890}
    assert list(json.decode(b'{"b":1,"a":2}')) == ["b", "a"]
    deep: list[Any] = []
    deep.append(deep)
    with pytest.raises(SerdeError):
        json.encode(deep)


_TEXTS = [b'{"n":1}', None, b"not json", b"\xff", b"[" * 2_000, b'{"n":1.5}', b"1234567890123456789"]


@pytest.mark.parametrize("values", [_TEXTS[:-1], [*_TEXTS, b"18446744073709551616"]], ids=["plain", "beyond 64 bits"])
def test_json_of_a_batch_reads_as_one_by_one(values: list[bytes | None]) -> None:
    serde = JsonSerde()
    decode = serde.batch_decoder(values)

    def read(decoder: Callable[[bytes], Any], value: bytes) -> str:
        try:
            return repr(decoder(value))
        except Exception as error:
            return str(serde.explained(error, value))

    assert [read(decode, value) for value in values if value] == [
        read(serde.decode, value) for value in values if value
    ]


def test_another_error_stays_as_it_is() -> None:
    error = SerdeError("of the key")
    assert JsonSerde().explained(error, b"{}") is error


@pytest.mark.parametrize("beside", ["1", 20 * "1"])
def test_a_number_beyond_doubles_is_refused_beside_any_other_value(beside: str) -> None:
    with pytest.raises(SerdeError):
        JsonSerde().decode(f"[1E400, {beside}]".encode())
    assert JsonSerde().decode(f"[1E300, {beside}]".encode()) == [1e300, int(beside)]


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@given(PLAIN)
def test_json_round_trip(value: Any) -> None:
    json = serdes.parse("json")
    try:
        assert json.decode(json.encode(value)) == value
    except UnicodeEncodeError:
        pytest.fail("text without surrogates is always written")


@given(st.binary(max_size=24), st.sampled_from(["string", "bytes", "short", "integer", "long", "double", "float"]))
def test_canonical_bytes(data: bytes, name: str) -> None:
    serde = serdes.parse(name)
    condition = serde.canonical_source(symbol("x"))
    assert condition is not None
    if eval(condition.source, {"x": data}):
        value = serde.decode(data)
        # What is not a number keeps its bits as a float in Java, where Python sets one of them.
        if value == value or name != "float":
            assert serde.encode(value) == data


@pytest.mark.parametrize("bits", ["7ff8000000000000", "fff8000000000000", "7ff0000000000001", "ffffffffffffffff"])
def test_every_double_that_is_no_number_has_the_same_bytes(bits: str) -> None:
    # Double.doubleToLongBits; the processor gives inf - inf a sign.
    serde = serdes.parse("double")
    raw, wanted = bytes.fromhex(bits), bytes.fromhex("7ff8000000000000")
    assert serde.encode(serde.decode(raw)) == wanted
    names = {"x": serde.decode(raw), "raw": raw, **serde.inline_globals}
    inline, canonical = serde.encode_source(symbol("x")), serde.canonical_source(symbol("raw"))
    assert inline is not None
    assert canonical is not None
    assert eval(inline.source, names) == wanted
    assert not eval(canonical.source, names)


@pytest.mark.parametrize("name", ["double", "float"])
def test_numbers_that_are_none_are_read_as_they_are_printed(name: str) -> None:
    serde = serdes.parse(name)
    for text in ("NaN", "Infinity", "-Infinity"):
        assert to_text(serde.to_json(serde.from_json(text))).decode() == f'"{text}"'
    with pytest.raises(SerdeError):
        serde.from_json("inf")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("strin", "string"),
        ("Long", "long"),
        ("nothing-like-it", "known"),
        ("avro", r"the serde avro takes an argument: \{avro: FILE\}"),
        ("windowed", r"takes an argument: \{windowed: SERDE, size: 5m\}"),
        ({"windowd": "string"}, "windowed"),
        ({"windowed": "string"}, "size"),
        ({"windowed": "string", "size": "x"}, "size"),
        ({"windowed": "strin", "size": "1s"}, "string"),
        ({"avro": {"subjct": "s"}}, "did you mean 'subject'"),
        ({"avro": {"version": 1}}, "needs a schema"),
        ({"avro": {"subject": "s", "version": 0}}, "version"),
        ({"avro": {"file": "f", "version": 1}}, "'version' goes with 'subject'"),
        ({"avro": {"subject": "s", "references": "x"}}, "list of schema files"),
        ({"avro": {"file": "f", "registry": "no"}}, "true or false"),
        ({"avro": {"subject": "s", "message": "m"}}, "no option 'message'"),
        ({"avro": 5}, "schema file"),
        ({"avro": "absent.avsc"}, "absent.avsc"),
        ({"call": "nocolon"}, "module:object"),
        (5, "5"),
        ([], "a serde is"),
    ],
)
def test_wrong_specs(spec: Any, message: str) -> None:
    with pytest.raises(SerdeError, match=message):
        serdes.parse(spec)


# -- Python serdes --


def test_a_serde_may_be_an_object_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "myserdes.py").write_text(
        "class Reverse:\n"
        "    def encode(self, value):\n        return value[::-1].encode()\n"
        "    def decode(self, data):\n        return data.decode()[::-1]\n"
        "class Java:\n"
        "    serialize = staticmethod(lambda value: value)\n"
        "    deserialize = staticmethod(lambda data: data)\n"
        "reverse = Reverse()\n"
        "nothing = 1\n"
    )
    for attribute in ("Reverse", "reverse"):
        serde = serdes.parse({"call": f"myserdes:{attribute}"}, str(tmp_path))
        assert serde.encode("abc") == b"cba"
        assert serde.decode(b"cba") == "abc"
        assert pickle.loads(pickle.dumps(serde)) == serde
        with pytest.raises(SerdeError, match="TypeError"):
            serde.encode(1)
    java = serdes.parse({"call": "myserdes:Java"}, str(tmp_path))
    assert java.to_json(java.decode(b"x")) == {"base64": "eA=="}
    with pytest.raises(SerdeError, match="not bytes"):
        java.encode(1)
    with pytest.raises(SerdeError, match="encode and decode"):
        serdes.parse({"call": "myserdes:nothing"}, str(tmp_path)).encode("a")
    with pytest.raises(SerdeError, match="Reverse"):
        serdes.parse({"call": "myserdes:Revers"}, str(tmp_path)).decode(b"a")
    with pytest.raises(SerdeError, match="absent_module"):
        serdes.parse({"call": "absent_module:x"}).encode("a")


@pytest.mark.parametrize("data", [float("nan"), {"a": [float("inf")]}, {float("nan"): 1}, [{"a": (-float("inf"),)}]])
def test_json_takes_no_number_that_it_does_not_have(data) -> None:
    with pytest.raises(SerdeError, match="JSON has no NaN and no infinite number"):
        JsonSerde().from_json(data)
