"""JSON, base64 and URLs."""

from __future__ import annotations

from streamkit.expressions.analysis.types import BYTES, TEXT
from streamkit.expressions.evaluation.helpers import bounded
from streamkit.expressions.expression_limits import MAX_BYTES, MAX_TOTAL, SLOT, deep_size, size_error
from streamkit.expressions.library.function_entry import LibraryFunction, bytes_of, need_text
from streamkit.record import Value

_CONTAINER = 64
"""Bytes of an empty list or object."""


def from_json(text: Value) -> Value:
    """Return the value of a JSON text. Raises SerdeError, LimitError."""
    from streamkit.serdes.formats.json_text import from_text

    data = bytes_of(text, "from_json")
    containers = data.count(b"[") + data.count(b"{")
    size = containers * _CONTAINER + data.count(b",") * SLOT
    if size > MAX_TOTAL:
        raise size_error("a value made by from_json()", size)
    return from_text(data)


def to_json(value: Value) -> str:
    """Return the compact JSON text of a value. Raises SerdeError, LimitError."""
    from streamkit.serdes.formats.json_text import to_text

    if deep_size(value, MAX_BYTES) > MAX_BYTES:
        raise size_error("text made by to_json()", MAX_BYTES + 1)
    return bounded(to_text(value).decode("utf-8", "surrogatepass"), "text made by to_json()")


def base64_encode(value: Value) -> str:
    """Return the base64 text of text or bytes."""
    from base64 import b64encode

    return bounded(b64encode(bytes_of(value, "base64_encode")).decode(), "text made by base64_encode()")


def base64_decode(text: Value) -> bytes:
    """Return the bytes of a base64 text. Raises ValueError."""
    from base64 import b64decode

    plain = need_text(text, "base64_decode").rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError as error:
        raise ValueError(f"base64_decode(): not base64: {error}") from None


def url_encode(text: Value) -> str:
    """Return text as it stands in a URL."""
    from urllib.parse import quote

    data = bytes_of(text, "url_encode")
    if len(data) * 3 > MAX_BYTES:
        raise size_error("text made by url_encode()", len(data) * 3)
    return quote(data, safe="")


def url_decode(text: Value) -> str:
    """Return the text of a part of a URL."""
    from urllib.parse import unquote

    return unquote(need_text(text, "url_decode"))


ENTRIES = (
    LibraryFunction(
        "from_json",
        ("text",),
        from_json,
        "The value of a JSON text (or its bytes); other text is an error.",
        (("from_json('{\"a\": [1, null]}')", "{'a': [1, None]}"),),
        factor=8.0,
        work=0.5,
    ),
    LibraryFunction(
        "to_json",
        ("value",),
        to_json,
        "The JSON text of a value, as the serde `json` writes it.",
        (("to_json({'a': [1, None]})", "'{\"a\":[1,null]}'"),),
        kind="str",
        type=TEXT,
        factor=6.0,
        work=0.5,
    ),
    LibraryFunction(
        "base64_encode",
        ("value",),
        base64_encode,
        "The base64 text of bytes, or of text in UTF-8.",
        (("base64_encode('tea')", "'dGVh'"),),
        kind="str",
        type=TEXT,
        factor=6.0,
        constant=4.0,
    ),
    LibraryFunction(
        "base64_decode",
        ("text",),
        base64_decode,
        "The bytes of a base64 text, of the alphabet with `+/` or `-_`, with or without `=` at the end.",
        (("base64_decode('dGVh')", "b'tea'"), ("base64_decode('_w').hex()", "'ff'")),
        kind="bytes",
        type=BYTES,
        factor=1.0,
    ),
    LibraryFunction(
        "url_encode",
        ("text",),
        url_encode,
        "The text with every character but letters, digits and `_.-~` as `%XX` of its UTF-8.",
        (("url_encode('a b/c')", "'a%20b%2Fc'"),),
        kind="str",
        type=TEXT,
        factor=12.0,
        work=2.0,
    ),
    LibraryFunction(
        "url_decode",
        ("text",),
        url_decode,
        "The text with each `%XX` as the character that it stands for; what is not UTF-8 becomes `\\ufffd`.",
        (("url_decode('a%20b')", "'a b'"),),
        kind="str",
        type=TEXT,
        factor=3.0,
        work=2.0,
    ),
)
