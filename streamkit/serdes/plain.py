"""The JSON form of plain data that holds bytes, dates or decimals."""

from __future__ import annotations

import base64
from typing import Any

from streamkit.errors import SerdeError


def plain(value: Any) -> Any:
    """Return the JSON form of decoded data: bytes as {"base64": …}, what else JSON does not have as text.

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


def unplain(data: Any) -> Any:
    """Return decoded data of its JSON form. Raises SerdeError for what is not base64."""
    if isinstance(data, dict):
        if set(data) == {"base64"}:
            try:
                return base64.b64decode(data["base64"], validate=True)
            except (ValueError, TypeError) as error:
                raise SerdeError(f"not base64: {data['base64']!r}") from error
        return {name: unplain(item) for name, item in data.items()}
    return [unplain(item) for item in data] if isinstance(data, list) else data
