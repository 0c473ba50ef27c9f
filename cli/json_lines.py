"""Lines in and out: JSON Lines, and plain lines that are a topic's values."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from streamkit.errors import SerdeError, UsageError

if TYPE_CHECKING:
    from streamkit.serdes.base import Serde

STDIN = "stdin"


def input_name(path: str) -> str:
    """Return what messages call an input."""
    return STDIN if path == "-" else path


def input_lines(path: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, or of stdin for `-`. Raises UsageError for one that can't be read, at once."""
    if path != "-" and os.path.isdir(path):
        raise UsageError(f"{path}: is a directory, not a file of records")
    try:
        stream = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115 - read lazily, to the process's end
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    return decoded(stream, input_name(path))


def decoded(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """Yield lines as text. Raises SerdeError at the first that is not UTF-8."""
    for number, line in enumerate(stream, 1):
        try:
            # A byte order mark is what some editors put before the first line.
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise SerdeError(f"{name}:{number}: not UTF-8 text at byte {error.start + 1}") from None


def json_line(record: Any) -> str:
    """Return a value as one line of compact JSON, non-ASCII as it is."""
    import orjson

    from streamkit.serdes.size import unused

    try:
        # What is small and holds no float with an exponent, both write alike.
        if unused(record) >= 0:
            return orjson.dumps(record).decode() + "\n"
    except (TypeError, RecursionError):
        pass
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


def parsed(line: str) -> dict[str, Any]:
    """Return the record of a JSON line. Raises SerdeError."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SerdeError(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise SerdeError("expected an object with key, value, timestamp, headers, partition")
    return record


def value_of_line(line: str, serde: Serde) -> Any:
    """Return the JSON form of the value that a plain line stands for: its text, or for other serdes its JSON.

    Raises SerdeError.
    """
    text = line.rstrip("\r\n")
    if serde.spec == "string":
        return text
    if serde.spec == "bytes":
        return serde.to_json(text.encode())
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SerdeError(f"not a value of {serde.spec}: {error}") from None


def line_of_value(value: Any, raw: bytes | None) -> str:
    """Return the plain line of a value in JSON form: text as it is, anything else as JSON; null for an absent one."""
    if isinstance(value, str):
        return value + "\n"
    if isinstance(value, dict) and value.keys() == {"base64"} and raw is not None:
        return raw.decode(errors="replace") + "\n"
    return json_line(value)
