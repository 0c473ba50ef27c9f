"""Methods that expressions may call: the public ones of plain types that change nothing, some of them with limits.

They are allowed by name: no method of one of these names changes a value of a plain type in place, which a test checks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from streamkit.errors import LimitError
from streamkit.expressions.budget import MAX_BITS, MAX_BYTES, SLOT, SMALL, TEXTS, Budget, size_error
from streamkit.expressions.helpers import bounded, charged_list, check_hashes, codec, collected, decode, listed
from streamkit.record import Value

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


def _need_text(receiver: Value, name: str) -> None:
    if not isinstance(receiver, (str, bytes)):
        raise AttributeError(f"{name}() is a method of str and bytes, not of {type(receiver).__name__}")


def _padding(name: str) -> Callable[..., Value]:
    def pad(receiver: Value, width: Value, *fill: Value) -> Value:
        _need_text(receiver, name)
        if isinstance(width, int) and width > MAX_BYTES:
            raise size_error(f"text made by {name}()", width)
        return getattr(receiver, name)(width, *fill)

    return pad


def _expandtabs(receiver: Value, tabsize: Value = 8) -> Value:
    _need_text(receiver, "expandtabs")
    tab = "\t" if isinstance(receiver, str) else b"\t"
    size = len(receiver) + receiver.count(tab) * max(tabsize, 0)
    if size > MAX_BYTES:
        raise size_error("text made by expandtabs()", size)
    return receiver.expandtabs(tabsize)


def _replace(receiver: Value, old: Value, new: Value, count: Value = -1) -> Value:
    _need_text(receiver, "replace")
    if (len(receiver) + 1) * (len(new) + 1) > MAX_BYTES:
        times = receiver.count(old) if count < 0 else min(receiver.count(old), count)
        size = len(receiver) + times * (len(new) - len(old))
        if size > MAX_BYTES:
            raise size_error("text made by replace()", size)
    return receiver.replace(old, new, count)


def _join(receiver: Value, items: Value) -> Value:
    _need_text(receiver, "join")
    items = items if isinstance(items, (list, tuple)) else collected(items, "a list made by join()")
    size = sum(map(len, items)) + len(receiver) * len(items)
    if size > MAX_BYTES + len(receiver):
        raise size_error("text made by join()", size)
    return receiver.join(items)


def _translate(receiver: Value, table: Value, *delete: Value, **named: Value) -> Value:
    _need_text(receiver, "translate")
    if isinstance(receiver, str) and isinstance(table, dict):
        longest = max((len(text) for text in table.values() if isinstance(text, str)), default=1)
        if longest > 1 and len(receiver) * longest > MAX_BYTES:
            raise size_error("text made by translate()", len(receiver) * longest)
    return receiver.translate(table, *delete, **named)


def _encode(receiver: Value, encoding: Value = "utf-8", errors: Value = "strict") -> bytes:
    if not isinstance(receiver, str):
        raise AttributeError(f"encode() is a method of str, not of {type(receiver).__name__}")
    return bounded(receiver.encode(*codec(encoding, errors)), "bytes made by encode()")


def _hex(receiver: Value, *arguments: Value, **named: Value) -> str:
    if isinstance(receiver, bytes):
        size = len(receiver) * (3 if arguments or named else 2)
        if size > MAX_BYTES:
            raise size_error("text made by hex()", size)
    elif not isinstance(receiver, float):
        raise AttributeError(f"hex() is a method of bytes and float, not of {type(receiver).__name__}")
    return str(receiver.hex(*arguments, **named))


def _to_bytes(receiver: Value, length: Value = 1, byteorder: Value = "big", *, signed: Value = False) -> bytes:
    if not isinstance(receiver, int):
        raise AttributeError(f"to_bytes() is a method of int, not of {type(receiver).__name__}")
    if length > MAX_BYTES:
        raise size_error("bytes made by to_bytes()", length)
    return receiver.to_bytes(length, byteorder, signed=signed)


def _from_bytes(receiver: Value, data: Value, byteorder: Value = "big", *, signed: Value = False) -> int:
    if not isinstance(receiver, int):
        raise AttributeError(f"from_bytes() is a method of int, not of {type(receiver).__name__}")
    if len(data) > MAX_BITS // 8:
        raise LimitError(f"an integer of over {MAX_BITS} bits made by from_bytes()")
    return int.from_bytes(data, byteorder, signed=signed)


HASHING = frozenset(
    ["union", "difference", "intersection", "symmetric_difference", "isdisjoint", "issubset", "issuperset", "fromkeys"]
)
"""Methods that hash the members of their arguments."""


def _hashing(name: str) -> Callable[..., Value]:
    def call(receiver: Value, *arguments: Value, **named: Value) -> Value:
        # The second argument of `fromkeys` is a value of the new object.
        hashed = 1 if name == "fromkeys" else len(arguments)
        members = [_hashable(each, name) for each in arguments[:hashed]]
        return getattr(receiver, name)(*members, *arguments[hashed:], **named)

    return call


def _hashable(items: Value, name: str) -> Value:
    return (
        items
        if hasattr(items, "keys") or hasattr(items, "isdisjoint")
        else check_hashes(listed(items, f"a list for {name}()"))
    )


GUARDED: dict[str, Callable[..., Value]] = {
    **{name: _padding(name) for name in ("ljust", "rjust", "center", "zfill")},
    **{name: _hashing(name) for name in HASHING},
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
"""Methods whose results may be much larger than their arguments, and those that hash; called as `_x_m_NAME(receiver, …)`."""


PRODUCTS = frozenset(("rfind", "rindex", "rsplit", "rpartition", "strip", "lstrip", "rstrip"))
"""Methods whose time may be the product of the lengths of text and argument."""
_PADDING = frozenset(("ljust", "rjust", "center", "zfill", "to_bytes"))
_WIDEST = 1000
_MOST_TIMES = 8
"""How many times as long as its text the result of a method may be without being counted."""


def grows(node: ast.Call, name: str) -> bool:
    """Return whether a call may make much of little, or takes much longer than its operands are large."""
    literals = [each.value for each in node.args if isinstance(each, ast.Constant)]
    known = len(literals) == len(node.args) and not node.keywords
    if name in PRODUCTS:
        return not known
    if name == "join":
        receiver = node.func.value  # type: ignore[attr-defined]
        return not (isinstance(receiver, ast.Constant) and len(str(receiver.value)) <= _MOST_TIMES)
    if name in _PADDING:
        return not (known and all(type(each) is not int or each <= _WIDEST for each in literals))
    if name == "replace":
        return not known or factor(node, name) > _MOST_TIMES
    return name == "translate" or (name == "expandtabs" and not (known and not literals))


def factor(node: ast.Call, name: str) -> float:
    """Return how many times as long as its operands the result of a method is at most that does not grow."""
    if name == "replace" and len(node.args) > 1:
        old, new = (each.value if isinstance(each, ast.Constant) else None for each in node.args[:2])
        if isinstance(old, (str, bytes)) and isinstance(new, (str, bytes)):
            return float(max(1, len(new) / len(old) if old else len(new) + 1))
    if name == "join":
        return 1.0 + float(len(str(node.func.value.value)))  # type: ignore[attr-defined]
    return _FACTORS.get(name, 1.0) if name != "encode" or node.args or node.keywords else 1.0


_FACTORS = {"encode": 4.0, "decode": 1.0, "expandtabs": 8.0, "hex": 3.0, "maketrans": 2.0, "fromkeys": 2.0}


# Methods with charges to a budget.

_SHORT = frozenset(("get", "items", "keys", "values", "bit_length", "bit_count", "is_integer"))


def call_method(budget: Budget, name: str, receiver: Value, *arguments: Value, **named: Value) -> Value:
    """`receiver.name(…)`."""
    if name == "get" and isinstance(receiver, dict):
        return receiver.get(*map(budget.key, arguments[:1]), *arguments[1:], **named)
    if name == "join":
        return _charged_join(budget, receiver, *arguments)
    if name in _SHORT:
        return getattr(receiver, name)(*arguments, **named)
    if receiver.__class__ in TEXTS:
        _charge_text(budget, name, receiver, [*arguments, *named.values()])
    elif name in HASHING:
        for each in (receiver, *arguments):
            budget.weigh(each)
    elif name in ("count", "index") and isinstance(receiver, (list, tuple)):
        size = sum(map(budget.size, arguments)) // SLOT
        budget.spend(1 + len(receiver) + (min(budget.size(receiver) // SLOT, len(receiver) * size) if size else 0))
    else:
        budget.weigh(receiver)
    result = (
        GUARDED[name](receiver, *arguments, **named)
        if name in GUARDED
        else getattr(receiver, name)(*arguments, **named)
    )
    return budget.item(result)


def _charge_text(budget: Budget, name: str, receiver: Value, arguments: list[Value]) -> None:
    size, longest = len(receiver), 0
    for each in arguments:
        if each.__class__ in TEXTS:
            longest = max(longest, len(each))
        elif each.__class__ not in SMALL:
            if not hasattr(each, "__len__"):
                continue
            inner = budget.size(each)
            budget.spend(inner // SLOT)
            longest = max(longest, inner if name in ("startswith", "endswith") else 0)
    if name in PRODUCTS:
        budget.spend(1 + size * max(min(longest, size), 1) // 8)
    elif name in ("startswith", "endswith"):
        budget.spend(1 + longest // 8)
    else:
        budget.spend(1 + (size + longest) // 8)


def _charged_join(budget: Budget, receiver: Value, items: Value) -> Value:
    """`receiver.join(…)`, also of an iterator."""
    members = items if isinstance(items, (list, tuple)) else charged_list(budget, items)
    budget.spend(1 + len(members))
    return budget.item(GUARDED["join"](receiver, members))


METHOD_HELPERS: dict[str, Callable[..., Value]] = {
    **{f"_x_m_{name}": helper for name, helper in GUARDED.items()},
    "_x_k_method": call_method,
}
