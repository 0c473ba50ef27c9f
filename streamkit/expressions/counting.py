"""Operators, functions and methods that charge their work to a budget, which they take first. Generated code calls them `_x_k_NAME`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from operator import eq, ge, gt, le, lt, ne

from streamkit.expressions import helpers, regex
from streamkit.expressions.budget import MAX_BYTES, ROUND, SLOT, Budget, size_error
from streamkit.expressions.function_entry import CALL
from streamkit.expressions.function_table import LIBRARY
from streamkit.expressions.helpers import GUARDED, PRODUCTS, check_hashes
from streamkit.record import Operand, Value

_BIG = 1 << 63
_SMALL = frozenset((int, float, bool, type(None)))
_TEXTS = frozenset((str, bytes))
_CONTAINERS = frozenset((list, tuple, dict, set, frozenset))
"""Containers, whose members already exist; iterators create theirs."""
_BITS = 8
"""Bits of a long integer that one step processes."""


# -- Operators --


def _long(budget: Budget, *operands: Value) -> None:
    for operand in operands:
        if isinstance(operand, int) and not -_BIG < operand < _BIG:
            budget.spend(operand.bit_length() // _BITS)


def _number(budget: Budget, result: Value) -> Value:
    """Charge a number that may have many digits, and return it."""
    if result.__class__ is int and not -_BIG < result < _BIG:
        budget.item(result)
    return result


def multiply(budget: Budget, a: Operand, b: Operand) -> Value:
    """`a * b`."""
    for one, other in ((a, b), (b, a)):
        if one.__class__ not in _SMALL and isinstance(other, int) and hasattr(one, "__len__"):
            if (size := budget.size(one) * other) > MAX_BYTES:
                raise size_error("'*'", size)
            return budget.item(one * other)
    _long(budget, a, b)
    return _number(budget, helpers.multiply(a, b))


def power(budget: Budget, a: Value, b: Value) -> Value:
    """`a ** b`."""
    result = helpers.power(a, b)
    _long(budget, result)
    return _number(budget, result)


def shift(budget: Budget, a: Value, b: Value) -> Value:
    """`a << b`."""
    return _number(budget, helpers.shift(a, b))


def modulo(budget: Budget, a: Operand, b: Value) -> Value:
    """`a % b`."""
    if a.__class__ in _SMALL:
        _long(budget, a, b)
        return a % b
    size = budget.size(b)
    budget.spend(CALL + len(a) // 4 + size // SLOT)
    if size > MAX_BYTES:
        raise size_error("'%'", size)
    return budget.item(helpers.modulo(a, b))


def divide(budget: Budget, a: Value, b: Operand) -> Value:
    """`a // b`."""
    _long(budget, a, b)
    return a // b


_COMPARE: dict[str, Callable[[Operand, Operand], Value]] = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


def compare(budget: Budget, sign: str, a: Value, b: Value) -> Value:
    """Compare two values, and charge for the parts that the comparison reads."""
    if a.__class__ not in _SMALL and b.__class__ not in _SMALL:
        if a.__class__ in _TEXTS:
            budget.spend(1 + min(len(a), len(b) if hasattr(b, "__len__") else 0) // 32)
        else:
            levels = helpers.levels(a) if len(sign) == 1 or sign in ("<=", ">=") else 1
            budget.spend(1 + levels * (min(budget.size(a), budget.size(b)) // SLOT + _pairs(a, b)))
    return _COMPARE[sign](a, b)


def _pairs(a: Value, b: Value) -> int:
    return min(len(a), len(b)) if hasattr(a, "__len__") and hasattr(b, "__len__") else 0


def contains(budget: Budget, item: Value, items: Operand) -> bool:
    """`item in items`."""
    kind = items.__class__
    if kind in _TEXTS:
        budget.spend(1 + len(items) // 8 + (len(item) // 8 if item.__class__ in _TEXTS else 0))
    elif kind is range:
        budget.spend(1 + (len(items) if item.__class__ is not int else 0))
    elif isinstance(items, (list, tuple)):
        size = 0 if item.__class__ in _SMALL else budget.size(item) // SLOT
        budget.spend(1 + len(items) + (min(budget.size(items) // SLOT, len(items) * size) if size else 0))
    elif isinstance(items, _BY_HASH):
        budget.key(item)
    elif hasattr(items, "__len__"):
        return contains(budget, item, list(items))
    else:
        items = _charge_items(budget, items, item)
    return item in items


_BY_HASH: tuple[type, ...] = (dict, set, frozenset, type({}.keys()), type({}.items()))
"""Types that look up members by hash. A view of a dict's values is not one of them, since it visits each value."""


def _charge_items(budget: Budget, items: Iterable[Value], item: Value) -> Iterable[Value]:
    size = 0 if item.__class__ in _SMALL else budget.size(item) // SLOT
    for current in budget.loop(items):
        if size and current.__class__ not in _SMALL:
            budget.spend(min(size, budget.size(current) // SLOT))
        yield current


# -- Functions --


def text(budget: Budget, *parts: Value) -> str:
    """An f-string."""
    return budget.item(helpers.bounded("".join([_str(budget, part) for part in parts]), "an f-string"))


def _str(budget: Budget, value: Value, what: str = "str()", write: Callable[[Value], str] = str) -> str:
    if value.__class__ is str and write is str:
        return value
    _long(budget, value)
    size = budget.size(value)
    if size > MAX_BYTES:
        raise size_error(what, size)
    # The time to print an integer grows with the square of its digits.
    budget.spend(1 + size // (SLOT // 2))
    return helpers.bounded(write(value), what)


def make_str(budget: Budget, value: Value = "", *arguments: Value, **named: Value) -> str:
    """`str(…)`."""
    if arguments or named:
        return budget.item(helpers.make_str(value, *arguments, **named))
    return budget.item(_str(budget, value))


def make_repr(budget: Budget, value: Value) -> str:
    """The `!r` of an f-string."""
    return budget.item(_str(budget, value, "'!r'", repr))


def make_ascii(budget: Budget, value: Value) -> str:
    """The `!a` of an f-string."""
    return budget.item(_str(budget, value, "'!a'", ascii))


def make_int(budget: Budget, *arguments: Value, **named: Value) -> int:
    """`int(…)`."""
    if arguments and arguments[0].__class__ in _TEXTS:
        budget.spend(1 + len(arguments[0]) // 2)
    return helpers.make_int(*arguments, **named)


def make_float(budget: Budget, *arguments: Operand) -> float:
    """`float(…)`."""
    if arguments and arguments[0].__class__ in _TEXTS:
        budget.spend(1 + len(arguments[0]) // 4)
    return float(*arguments)


def make_round(budget: Budget, number: Value, *arguments: Value, **named: Value) -> Value:
    """`round(…)`."""
    _long(budget, number)
    return helpers.make_round(number, *arguments, **named)


def make_sum(budget: Budget, items: Operand, *start: Value, **named: Value) -> Value:
    """`sum(…)`."""
    return budget.item(helpers.make_sum(budget.loop(items), *start, **named))


def any_of(budget: Budget, items: Operand) -> bool:
    """`any(…)`."""
    return any(budget.loop(items))


def all_of(budget: Budget, items: Operand) -> bool:
    """`all(…)`."""
    return all(budget.loop(items))


def make_sorted(budget: Budget, items: Value, *, key: Value = None, reverse: Operand = False) -> list[Value]:
    """`sorted(…)`."""
    members = make_list(budget, items)
    keys = _keys(budget, members, key)
    rounds = max(len(members), 1).bit_length()
    budget.spend(rounds * (len(members) + helpers.sortable_levels(keys) * sum(map(budget.size, keys)) // SLOT))
    if key is None:
        return sorted(members, reverse=reverse)
    return [members[at] for at in sorted(range(len(members)), key=keys.__getitem__, reverse=reverse)]


def _keys(budget: Budget, items: list[Value], key: Operand) -> list[Operand]:
    if key is None:
        return items
    compared = []
    for item in budget.loop(items):
        compared.append(key(item) if key in _CHEAP_KEYS else key(budget.weigh(item)))
    return compared


_CHEAP_KEYS: frozenset[Value] = frozenset((len, bool, abs))


def _extreme(
    choose: Callable[..., Operand], budget: Budget, *arguments: Value, key: Value = None, **named: Value
) -> Value:
    several = len(arguments) != 1
    items = list(arguments) if several else make_list(budget, arguments[0])
    if not items:
        return choose(*arguments, **named) if several else choose((), **named)
    keys = _keys(budget, items, key)
    budget.spend(ROUND * len(items) + helpers.levels_of_keys(keys) * sum(map(budget.size, keys)) // SLOT)
    return items[choose(range(len(items)), key=keys.__getitem__)]


def make_list(budget: Budget, items: Value = ()) -> list[Operand]:
    """`list(…)`."""
    members = list(helpers.collected(_bounded(budget, items), "a list"))
    return budget.item(members) if items.__class__ in _CONTAINERS else budget.items(members)


def make_tuple(budget: Budget, items: Value = ()) -> tuple[Value, ...]:
    """`tuple(…)`."""
    return budget.item(tuple(helpers.collected(_bounded(budget, items), "a tuple")))


def _bounded(budget: Budget, items: Operand) -> Operand:
    return items if hasattr(items, "__len__") else budget.loop(items)


def make_set(budget: Budget, items: Value = ()) -> set[Value]:
    """`set(…)`, and set comprehensions."""
    return budget.item(set(check_hashes(make_list(budget, items), budget)))


def make_dict(budget: Budget, items: Value = (), **fields: Value) -> dict[Operand, Value]:
    """`dict(…)`."""
    if isinstance(items, dict):
        return budget.item(dict(items, **fields))
    members: Operand = [
        tuple(pair) if not isinstance(pair, (tuple, list)) else pair for pair in make_list(budget, items)
    ]
    check_hashes([pair[0] for pair in members if pair], budget)
    return budget.item(dict(members, **fields))


def merge(budget: Budget, *parts: Operand) -> dict[Value, Value]:
    """`merge(…)`."""
    return budget.item(helpers.merge(*parts))


def make_zip(budget: Budget, *items: Value, **named: Operand) -> Value:
    """`zip(…)`."""
    return budget.loop(zip(*items, **named))  # noqa: B905


def make_enumerate(budget: Budget, *arguments: Operand, **named: Operand) -> Value:
    """`enumerate(…)`."""
    return budget.loop(enumerate(*arguments, **named))


_PIECE, _MATCHED = 40, 200
"""Steps charged for each piece of a split text, besides those for its length: with a plain separator, and with RE2."""


def re_match(budget: Budget, pattern: Operand, subject: Operand) -> bool:
    """`re_match(…)`."""
    budget.search(pattern, subject)
    return helpers.re_match(pattern, subject)


def re_split(budget: Budget, pattern: Operand, subject: Operand) -> list[str]:
    """`re_split(…)`."""
    budget.search(pattern, subject)
    pieces = []
    steps = _PIECE if regex.is_literal(pattern) else _MATCHED
    for piece in regex.pieces(pattern, subject):
        budget.spend(steps)
        pieces.append(piece)
    return budget.items(pieces)


def header(budget: Budget, headers: Operand, name: Operand) -> str | None:
    """`header(…)`."""
    budget.spend(1 + len(headers))
    return budget.item(helpers.header(headers, name))


# -- Methods --

_HASHING = frozenset(
    ["union", "difference", "intersection", "symmetric_difference", "isdisjoint", "issubset", "issuperset", "fromkeys"]
)
_SHORT = frozenset(("get", "items", "keys", "values", "bit_length", "bit_count", "is_integer"))


def call_method(budget: Budget, name: str, receiver: Value, *arguments: Value, **named: Value) -> Value:
    """`receiver.name(…)`."""
    if name == "get" and isinstance(receiver, dict):
        return receiver.get(*map(budget.key, arguments[:1]), *arguments[1:], **named)
    if name in _SHORT:
        return getattr(receiver, name)(*arguments, **named)
    if receiver.__class__ in _TEXTS:
        _charge_text(budget, name, receiver, [*arguments, *named.values()])
    elif name in _HASHING:
        arguments = tuple(
            [argument if isinstance(argument, (set, dict)) else _hashable(budget, argument) for argument in arguments]
        )
        budget.spend(1 + sum(map(_count, (receiver, *arguments))))
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
    return budget.items(result) if result.__class__ is list and receiver.__class__ in _TEXTS else budget.item(result)


def _hashable(budget: Budget, items: Value) -> Value:
    return check_hashes(make_list(budget, items), budget) if not hasattr(items, "isdisjoint") else items


def _count(value: Value) -> int:
    return len(value) if hasattr(value, "__len__") else 1


def _charge_text(budget: Budget, name: str, receiver: Operand, arguments: list[Value]) -> None:
    size, longest = len(receiver), 0
    for argument in arguments:
        if argument.__class__ in _TEXTS:
            longest = max(longest, len(argument))
        elif argument.__class__ not in _SMALL:
            if not hasattr(argument, "__len__"):
                continue
            inner = budget.size(argument)
            budget.spend(inner // SLOT)
            longest = max(longest, inner if name in ("startswith", "endswith") else 0)
    if name in PRODUCTS:
        budget.spend(1 + size * max(min(longest, size), 1) // 8)
    elif name in ("startswith", "endswith"):
        budget.spend(1 + longest // 8)
    else:
        budget.spend(1 + (size + longest) // 8)


def join(budget: Budget, receiver: Value, items: Value) -> Value:
    """`receiver.join(…)`; the argument can also be an iterator."""
    members = items if isinstance(items, (list, tuple)) else make_list(budget, items)
    budget.spend(1 + len(members))
    return budget.item(GUARDED["join"](receiver, members))


COUNTING: dict[str, Callable[..., Value]] = {
    "_x_k_mul": multiply,
    "_x_k_times": multiply,
    "_x_k_pow": power,
    "_x_k_shift": shift,
    "_x_k_mod": modulo,
    "_x_k_div": divide,
    "_x_k_compare": compare,
    "_x_k_in": contains,
    "_x_k_text": text,
    "_x_k_repr": make_repr,
    "_x_k_ascii": make_ascii,
    "_x_k_str": make_str,
    "_x_k_int": make_int,
    "_x_k_float": make_float,
    "_x_k_round": make_round,
    "_x_k_sum": make_sum,
    "_x_k_any": any_of,
    "_x_k_all": all_of,
    "_x_k_sorted": make_sorted,
    "_x_k_min": partial(_extreme, min),
    "_x_k_max": partial(_extreme, max),
    "_x_k_list": make_list,
    "_x_k_tuple": make_tuple,
    "_x_k_set": make_set,
    "_x_k_dict": make_dict,
    "_x_k_zip": make_zip,
    "_x_k_enumerate": make_enumerate,
    "_x_k_merge": merge,
    "_x_k_header": header,
    "_x_k_re_match": re_match,
    "_x_k_re_split": re_split,
    "_x_k_method": call_method,
    "_x_k_join": join,
    **{f"_x_k_{function.name}": function.charged for function in LIBRARY.values()},
}
