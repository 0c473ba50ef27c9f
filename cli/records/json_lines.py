"""Lines of text as records and back: JSON Lines, and plain lines that are a topic's values."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from streamkit.errors import SerdeError, UsageError

if TYPE_CHECKING:
    from streamkit.serdes.plain import Json
    from streamkit.serdes.serde import Serde

STDIN = "stdin"


def input_name(path: str) -> str:
    """Return the name of an input in messages."""
    return STDIN if path == "-" else path


def input_lines(path: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, or of stdin for `-`. Raises UsageError for one that can't be read, at once."""
    if path != "-" and os.path.isdir(path):
        raise UsageError(f"{path}: is a directory, not a file of records")
    try:
        stream = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115 - read lazily, to the process's end
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    return decode_lines(stream, input_name(path))


def decode_lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """Yield lines as text. Raises SerdeError at the first that is not UTF-8."""
    for number, line in enumerate(stream, 1):
        try:
            # Some editors write a byte order mark before the first line.
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise SerdeError(f"{name}:{number}: not UTF-8 text at byte {error.start + 1}") from None


def json_line(record: Json) -> str:
    """Return a value as one line of compact JSON, non-ASCII as it is."""
    import orjson

    from streamkit.serdes.size import unused

    try:
        # orjson and json write a small record the same unless it has a float with an exponent.
        if unused(record) >= 0:
            return orjson.dumps(record).decode() + "\n"
    except (TypeError, RecursionError):
        pass
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


def parse_record(line: str) -> dict[str, Json]:
    """Return the record of a JSON line. Raises SerdeError."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise SerdeError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except (ValueError, RecursionError) as error:
        raise SerdeError(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise SerdeError("expected an object with key, value, timestamp, headers, partition")
    return record


def value_of_line(line: str, serde: Serde) -> Json:
    """Return the JSON form of the value of a plain line: its text, or for other serdes its JSON.

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
        raise SerdeError(f"not a value of {serde.spec} as JSON: {text[:60]!r}") from error


def line_of_value(value: Json, raw: bytes | None) -> str:
    """Return the plain line of a value in JSON form: text as it is, anything else as JSON; null for an absent one."""
    if isinstance(value, str):
        return value + "\n"
    if isinstance(value, dict) and value.keys() == {"base64"} and raw is not None:
        return raw.decode(errors="replace") + "\n"
    return json_line(value)
