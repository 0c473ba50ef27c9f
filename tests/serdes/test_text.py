"""CSV rows and lines of text."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit import serdes
from streamkit.errors import SerdeError

TYPED = {"csv": {"fields": {"id": "long", "name": "string", "price": "double", "open": "boolean"}}}


@pytest.mark.parametrize(
    ("spec", "value", "data"),
    [
        (TYPED, {"id": 1, "name": "Ann", "price": 1.5, "open": True}, b"1,Ann,1.5,true"),
        (TYPED, {"id": None, "name": "", "price": None, "open": None}, b",,,"),
        (TYPED, {"id": -5, "name": 'a "b", c\nd', "price": 1e300, "open": False}, b'-5,"a ""b"", c\nd",1e+300,false'),
        ({"csv": ["a"]}, {"a": "x"}, b"x"),
        ({"csv": ["a"]}, {"a": ""}, b'""'),
        ({"csv": {"fields": ["a", "b"], "delimiter": ";"}}, {"a": "1,2", "b": "ä"}, "1,2;ä".encode()),
        ({"csv": {"fields": ["a", "b"], "delimiter": "tab"}}, {"a": "1", "b": "2"}, b"1\t2"),
        ({"csv": {"fields": ["a", "b"], "quote": "'"}}, {"a": "1,2", "b": "it's"}, b"'1,2','it''s'"),
        ({"csv": {"fields": ["a", "b"], "null": "NULL"}}, {"a": None, "b": ""}, b"NULL,"),
        ({"csv": {"fields": {"a": "integer"}, "header": True}}, {"a": 7}, b"a\n7"),
        ({"csv": ["a", "b"]}, {"a": "z", "b": "x\r"}, b'z,"x\r"'),
        ({"csv": ["a"]}, {"a": "x\ry"}, b'"x\ry"'),
        ({"csv": ["a"]}, {"a": "\r\n"}, b'"\r\n"'),
        pytest.param({"csv": ["a"]}, {"a": "x" * 200_000}, b"x" * 200_000, id="a long column"),
        ({"csv": {"fields": ["a\r", "b"], "header": True}}, {"a\r": "1\r", "b": "2"}, b'"a\r",b\n"1\r",2'),
        ({"csv": {"fields": ["a", "b"], "null": "NULL"}}, {"a": "null", "b": " NULL"}, b"null, NULL"),
        ("lines", ["a", "", "b"], b"a\n\nb"),
        ("lines", ["a", ""], b"a\n\n"),
        ("lines", [""], b"\n"),
        ("lines", ["", ""], b"\n\n"),
        ("lines", ["a\rb", "c\r"], b"a\rb\nc\r"),
        ("lines", [], b""),
        ("lines", ["ä"], "ä".encode()),
    ],
)
def test_bytes(spec: Any, value: Any, data: bytes) -> None:
    serde = serdes.parse(spec)
    assert serde.encode(value) == data
    assert serde.decode(data) == value
    assert serde.from_json(serde.to_json(value)) == value
    assert serde.to_json(None) is None
    again = pickle.loads(pickle.dumps(serde))
    assert again == serde
    assert again.decode(data) == value


def test_reads_what_others_write() -> None:
    serde = serdes.parse(TYPED)
    assert serde.decode(b'"1",Ann, 2 ,TRUE\r\n') == {"id": 1, "name": "Ann", "price": 2.0, "open": True}
    header = serdes.parse({"csv": {"fields": {"a": "integer", "b": "string"}, "header": True}})
    assert header.decode(b"b,a\r\nx,1\r\n") == {"a": 1, "b": "x"}
    assert serdes.parse("lines").decode(b"a\r\nb\n") == ["a", "b"]
    assert serdes.parse("lines").decode(b"\xff") == ["\ufffd"]


def test_absent_columns_are_written_as_absent() -> None:
    assert serdes.parse(TYPED).encode({"id": 1}) == b"1,,,"
    assert serdes.parse(TYPED).encode({"id": 1, "price": 2}) == b"1,,2,"


@pytest.mark.parametrize(
    ("spec", "data", "message"),
    [
        (TYPED, b"1,2", "2 columns instead of 4"),
        (TYPED, b"1,2,3,true,5", "5 columns instead of 4"),
        (TYPED, b"x,a,1,true", "column id: 'x' is no whole number"),
        (TYPED, b"1,a,x,true", "column price: 'x' is not a number"),
        (TYPED, b"1,a,1,yes", "column open: 'yes' is neither true nor false"),
        (TYPED, b"1,a,1,true\n2,b,1,true", "2 lines instead of 1"),
        (TYPED, b"", "0 lines"),
        (TYPED, b"\xff,a,1,true", "utf-8"),
        (TYPED, b'"1,a,1,true', "serde csv"),
        ({"csv": {"fields": ["a", "b"], "header": True}}, b"a,c\n1,2", "the columns a, c instead of a, b"),
        ({"csv": {"fields": ["a"], "header": True}}, b"1", "1 line instead of 2"),
    ],
)
def test_bytes_of_something_else(spec: Any, data: bytes, message: str) -> None:
    with pytest.raises(SerdeError, match=message):
        serdes.parse(spec).decode(data)


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (TYPED, 5),
        (TYPED, {"id": "1"}),
        (TYPED, {"id": True}),
        (TYPED, {"idd": 1}),
        (TYPED, {"name": 5}),
        (TYPED, {"open": 1}),
        ("lines", "a"),
        ("lines", [1]),
        ("lines", ["a\nb"]),
    ],
)
def test_values_of_another_type(spec: Any, value: Any) -> None:
    with pytest.raises(SerdeError):
        serdes.parse(spec).encode(value)


@pytest.mark.parametrize(
    ("spec", "value", "message"),
    [
        ({"csv": {"fields": ["a"], "null": "NULL"}}, {"a": "NULL"}, "column a can't hold 'NULL', which means null"),
        ({"csv": {"fields": ["a", "b"], "null": ""}}, {"a": "x", "b": ""}, "column b can't hold '', which means null"),
        ({"csv": {"fields": {"n": "long"}, "null": "0"}}, {"n": 0}, "column n can't hold 0, which means null"),
        ("lines", ["a\r", "b"], "a line that ends with a carriage return"),
        ("lines", ["\r", ""], "a line that ends with a carriage return"),
    ],
)
def test_values_that_would_be_read_as_others(spec: Any, value: Any, message: str) -> None:
    with pytest.raises(SerdeError, match=message):
        serdes.parse(spec).encode(value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs its columns"),
        (5, "needs its columns"),
        ({"fields": []}, "needs its columns"),
        ({"fields": [1]}, "needs its columns"),
        ({"fields": ["a", "a"]}, "stands twice"),
        ({"fields": {"a": "text"}}, "'text'; there are string"),
        ({"fields": ["a"], "delimiter": ",,"}, "expected one character"),
        ({"fields": ["a"], "delimiter": 5}, "expected text"),
        ({"fields": ["a"], "header": "yes"}, "true or false"),
        ({"fields": ["a"], "delimter": ";"}, "no option 'delimter'"),
    ],
)
def test_wrong_options(options: Any, message: str) -> None:
    with pytest.raises(SerdeError, match=message):
        serdes.parse({"csv": options})


@given(
    st.fixed_dictionaries(
        {
            "id": st.none() | st.integers(-(2**63), 2**63 - 1),
            "name": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r")),
            "price": st.none() | st.floats(allow_nan=False),
            "open": st.none() | st.booleans(),
        }
    )
)
def test_every_row_reads_as_it_was_written(row: dict[str, Any]) -> None:
    serde = serdes.parse(TYPED)
    assert serde.decode(serde.encode(row)) == row
