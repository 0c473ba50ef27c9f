"""Hashes and names made of hashes."""

from __future__ import annotations

from streamkit.expressions.analysis.types import INTEGER, TEXT
from streamkit.expressions.library.function_entry import LibraryFunction, bytes_of, need_integer, need_text
from streamkit.record import Value

_NAMESPACES = ("dns", "url", "oid", "x500")


def sha256(value: Value) -> str:
    """Return the SHA-256 of text or bytes."""
    from hashlib import sha256 as digest

    return digest(bytes_of(value, "sha256")).hexdigest()


def murmur2(value: Value) -> int:
    """Return the hash by which Kafka's clients choose partitions."""
    from streamkit.serdes.partitioner import murmur2 as digest

    return digest(bytes_of(value, "murmur2"))


def xxhash64(value: Value, seed: Value = 0) -> int:
    """Return XXH64 of text or bytes."""
    from xxhash import xxh64_intdigest

    number = xxh64_intdigest(bytes_of(value, "xxhash64"), need_integer(seed, "xxhash64") % (1 << 64))
    return number - (1 << 64) if number >> 63 else number


def uuid5(namespace: Value, name: Value) -> str:
    """Return the UUID of version 5 of a name."""
    from uuid import UUID
    from uuid import uuid5 as made

    return str(made(UUID(_namespace(namespace)), need_text(name, "uuid5")))


def _namespace(value: Value) -> str:
    import uuid

    if value in _NAMESPACES:
        return str(getattr(uuid, f"NAMESPACE_{value.upper()}"))
    try:
        return str(uuid.UUID(value))
    except (ValueError, AttributeError, TypeError):
        words = ", ".join(_NAMESPACES)
        raise ValueError(f"uuid5() takes a namespace of {words}, or a UUID, not {str(value)[:40]!r}") from None


ENTRIES = (
    LibraryFunction(
        "sha256",
        ("value",),
        sha256,
        "The SHA-256 of bytes, or of text in UTF-8, as 64 hexadecimal digits.",
        (("sha256('tea')[:16]", "'a9f74d1ec36ebdeb'"),),
        kind="str",
        type=TEXT,
        constant=64.0,
    ),
    LibraryFunction(
        "murmur2",
        ("value",),
        murmur2,
        "The hash of a key's bytes (or text) by which Kafka's clients choose its partition, a signed number of 32 bits.",
        (("murmur2('21')", "-973932308"),),
        kind="int",
        type=INTEGER,
        work=4.0,
    ),
    LibraryFunction(
        "xxhash64",
        ("value", "seed"),
        xxhash64,
        "XXH64 of bytes or text, a signed number of 64 bits.",
        (("xxhash64('tea')", "4741855839676419641"),),
        optional=1,
        kind="int",
        type=INTEGER,
        work=0.125,
    ),
    LibraryFunction(
        "uuid5",
        ("namespace", "name"),
        uuid5,
        "The UUID of a name (version 5): the same for the same name. `namespace` is `dns`, `url`, `oid`, `x500` or a UUID.",
        (("uuid5('dns', 'example.org')", "'aad03681-8b63-5304-89e0-8ca8f49461b5'"),),
        kind="str",
        type=TEXT,
        constant=36.0,
        checks={0: _namespace},
    ),
)
