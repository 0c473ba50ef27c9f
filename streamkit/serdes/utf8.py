"""UTF-8 as Java reads and writes it: handlers of malformed text, by the name JAVA for `encode` and `decode`.

They are not called for well-formed text.
"""

from __future__ import annotations

import codecs

JAVA = "java"
"""Name of the error handlers: `text.encode("utf-8", JAVA)`, `data.decode("utf-8", JAVA)`."""


def _written(error: UnicodeError) -> tuple[bytes, int]:
    """Return Java's bytes of a run of surrogates: a pair is one character, a lone surrogate becomes `?`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    run = error.object[error.start : error.end]
    joined = run.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return joined.encode("utf-8", "replace"), error.end


def _read(error: UnicodeError) -> tuple[str, int]:
    """Return one U+FFFD for a malformed sequence; the bytes of an encoded surrogate are one sequence, not three."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, start, end = error.object, error.start, error.end
    if data[start] == 0xED and end == start + 1 and data[end : end + 1] and data[end] & 0xE0 == 0xA0:
        third = data[end + 1 : end + 2]
        end += 2 if third and third[0] & 0xC0 == 0x80 else 1
    return "\ufffd", end


def _handle(error: UnicodeError) -> tuple[str | bytes, int]:
    return _written(error) if isinstance(error, UnicodeEncodeError) else _read(error)


codecs.register_error(JAVA, _handle)
