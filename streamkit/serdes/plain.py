"""The JSON form of plain data that holds bytes, dates or decimals."""

from __future__ import annotations

import base64
from typing import Any, TypeAlias

from streamkit.errors import SerdeError
from streamkit.record import Value

Json: TypeAlias = Any
"""A JSON document, or a YAML file's data: null, a boolean, a number, text, a list or an object with such items.

It is not a union of these types: schemas and options are used where a library or `source_of` has checked their shape, which a
type checker can't follow.
"""


def plain(value: Value) -> Json:
    """Return the JSON form of decoded data: bytes as {"base64": …}, other values that JSON does not have as text.

    >>> plain({"a": [b"x", 1]})
    {'a': [{'base64': 'eA=='}, 1]}
    """
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def unplain(data: Json) -> Value:
    """Return the decoded data of its JSON form. Raises SerdeError for malformed base64."""
    if isinstance(data, dict):
        if set(data) == {"base64"}:
            try:
                return base64.b64decode(data["base64"], validate=True)
            except (ValueError, TypeError) as error:
                raise SerdeError(f"not base64: {data['base64']!r}") from error
        return {name: unplain(item) for name, item in data.items()}
    return [unplain(item) for item in data] if isinstance(data, list) else data
