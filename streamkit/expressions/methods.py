"""Methods that expressions may call: the public ones of plain types that change nothing, some of them with limits.

They are allowed by name: no method of one of these names changes a value of a plain type in place, which a test checks.
"""

from __future__ import annotations

from collections.abc import Callable

from streamkit.errors import LimitError
from streamkit.expressions.expression_limits import MAX_BITS, MAX_BYTES, size_error
from streamkit.expressions.helpers import bounded, check_hashes, codec, collected, decode, listed
from streamkit.record import Operand

_TEXT = """capitalize center count endswith expandtabs find index isalnum isalpha isascii isdigit islower isspace
 istitle isupper join ljust lower lstrip partition removeprefix removesuffix replace rfind rindex rjust rpartition
 rsplit rstrip split splitlines startswith strip swapcase title translate upper zfill maketrans"""

BY_KIND: dict[str, frozenset[str]] = {
    "str": frozenset((_TEXT + " casefold encode isdecimal isidentifier isnumeric isprintable").split()),
    "bytes": frozenset((_TEXT + " decode hex fromhex").split()),
    "list": frozenset(("copy", "count", "index")),
    "tuple": frozenset(("count", "index")),
    "dict": frozenset(("copy", "fromkeys", "get", "items", "keys", "values")),
    "set": frozenset(
        ("copy", "difference", "intersection", "isdisjoint", "issubset", "issuperset", "symmetric_difference", "union")
    ),
    "int": frozenset(("as_integer_ratio", "bit_count", "bit_length", "conjugate", "from_bytes", "to_bytes")),
    "float": frozenset(("as_integer_ratio", "conjugate", "fromhex", "hex", "is_integer")),
}
ALLOWED = frozenset().union(*BY_KIND.values())
BY_KIND["random"] = frozenset(("boolean", "choice", "exponential", "integer", "normal", "number", "uuid", "zipf"))
"""The draws of `random`, in the expressions of generators; no value has these methods."""
MUTATING = frozenset(
    [
        "append",
        "extend",
        "insert",
        "pop",
        "popitem",
        "remove",
        "clear",
        "sort",
        "reverse",
        "update",
        "setdefault",
        "add",
        "discard",
        "difference_update",
        "intersection_update",
        "symmetric_difference_update",
    ]
)
VIEWS = frozenset(("items", "keys", "values"))
RESULT_KINDS = {
    **dict.fromkeys(("split", "rsplit", "splitlines"), "list"),
    **dict.fromkeys(("startswith", "endswith", "isdigit", "isalpha", "isspace", "isupper", "islower"), "bool"),
    "encode": "bytes",
    "decode": "str",
    "to_bytes": "bytes",
    "bit_length": "int",
}


def _need_text(receiver: Operand, name: str) -> None:
    if not isinstance(receiver, (str, bytes)):
        raise AttributeError(f"{name}() is a method of str and bytes, not of {type(receiver).__name__}")


def _padding(name: str) -> Callable[..., Operand]:
    def pad(receiver: Operand, width: Operand, *fill: Operand) -> Operand:
        _need_text(receiver, name)
        if isinstance(width, int) and width > MAX_BYTES:
            raise size_error(f"text made by {name}()", width)
        return getattr(receiver, name)(width, *fill)

    return pad


def _expandtabs(receiver: Operand, tabsize: Operand = 8) -> Operand:
    _need_text(receiver, "expandtabs")
    tab = "\t" if isinstance(receiver, str) else b"\t"
    size = len(receiver) + receiver.count(tab) * max(tabsize, 0)
    if size > MAX_BYTES:
        raise size_error("text made by expandtabs()", size)
    return receiver.expandtabs(tabsize)


def _replace(receiver: Operand, old: Operand, new: Operand, count: Operand = -1) -> Operand:
    _need_text(receiver, "replace")
    if (len(receiver) + 1) * (len(new) + 1) > MAX_BYTES:
        times = receiver.count(old) if count < 0 else min(receiver.count(old), count)
        size = len(receiver) + times * (len(new) - len(old))
        if size > MAX_BYTES:
            raise size_error("text made by replace()", size)
    return receiver.replace(old, new, count)


def _join(receiver: Operand, items: Operand) -> Operand:
    _need_text(receiver, "join")
    items = items if isinstance(items, (list, tuple)) else collected(items, "a list made by join()")
    size = sum(map(len, items)) + len(receiver) * len(items)
    if size > MAX_BYTES + len(receiver):
        raise size_error("text made by join()", size)
    return receiver.join(items)


def _translate(receiver: Operand, table: Operand, *delete: Operand, **named: Operand) -> Operand:
    _need_text(receiver, "translate")
    if isinstance(receiver, str) and isinstance(table, dict):
        longest = max((len(text) for text in table.values() if isinstance(text, str)), default=1)
        if longest > 1 and len(receiver) * longest > MAX_BYTES:
            raise size_error("text made by translate()", len(receiver) * longest)
    return receiver.translate(table, *delete, **named)


def _encode(receiver: Operand, encoding: Operand = "utf-8", errors: Operand = "strict") -> bytes:
    if not isinstance(receiver, str):
        raise AttributeError(f"encode() is a method of str, not of {type(receiver).__name__}")
    return bounded(receiver.encode(*codec(encoding, errors)), "bytes made by encode()")


def _hex(receiver: Operand, *arguments: Operand, **named: Operand) -> str:
    if isinstance(receiver, bytes):
        size = len(receiver) * (3 if arguments or named else 2)
        if size > MAX_BYTES:
            raise size_error("text made by hex()", size)
    elif not isinstance(receiver, float):
        raise AttributeError(f"hex() is a method of bytes and float, not of {type(receiver).__name__}")
    return str(receiver.hex(*arguments, **named))


def _to_bytes(receiver: Operand, length: Operand = 1, byteorder: Operand = "big", *, signed: Operand = False) -> bytes:
    if not isinstance(receiver, int):
        raise AttributeError(f"to_bytes() is a method of int, not of {type(receiver).__name__}")
    if length > MAX_BYTES:
        raise size_error("bytes made by to_bytes()", length)
    return receiver.to_bytes(length, byteorder, signed=signed)


def _from_bytes(receiver: Operand, data: Operand, byteorder: Operand = "big", *, signed: Operand = False) -> int:
    if not isinstance(receiver, int):
        raise AttributeError(f"from_bytes() is a method of int, not of {type(receiver).__name__}")
    if len(data) > MAX_BITS // 8:
        raise LimitError(f"an integer of over {MAX_BITS} bits made by from_bytes()")
    return int.from_bytes(data, byteorder, signed=signed)


GUARDED: dict[str, Callable[..., Operand]] = {
    **{name: _padding(name) for name in ("ljust", "rjust", "center", "zfill")},
    "expandtabs": _expandtabs,
    "replace": _replace,
    "join": _join,
    "translate": _translate,
    "encode": _encode,
    "decode": decode,
    "hex": _hex,
    "to_bytes": _to_bytes,
    "from_bytes": _from_bytes,
}
"""Methods whose results may be much larger than their arguments; called as `_x_m_NAME(receiver, …)`."""

HASHING = frozenset(("union", "symmetric_difference", "issubset", "fromkeys"))
"""Methods that create a set or an object from the items of their arguments; called as `_x_h_NAME(receiver, …)`."""


def _hashing(name: str) -> Callable[..., Operand]:
    def call(receiver: Operand, *arguments: Operand, **named: Operand) -> Operand:
        method = getattr(receiver, name)
        # The second argument of `fromkeys` is a value of the new object.
        hashed = 1 if name == "fromkeys" else len(arguments)
        return method(*map(_hashable, arguments[:hashed]), *arguments[hashed:], **named)

    return call


def _hashable(items: Operand) -> Operand:
    # Sets, objects and views have hashed their members already.
    return items if hasattr(items, "isdisjoint") or isinstance(items, dict) else check_hashes(listed(items, "a set"))


METHOD_HELPERS = {
    **{f"_x_m_{name}": helper for name, helper in GUARDED.items()},
    **{f"_x_h_{name}": _hashing(name) for name in HASHING},
}
