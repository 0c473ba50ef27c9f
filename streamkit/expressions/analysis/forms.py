"""Forms: bounds that are linear in the sizes of inputs, as factors by path; the empty path is a constant."""

from __future__ import annotations

from math import inf

Path = tuple[str, ...]
Form = dict[Path, float]

ONE: Form = {(): 1.0}


def total(*forms: Form) -> Form:
    """Return the sum of forms.

    >>> total({("a",): 1.0}, {("a",): 1.0, (): 3.0})
    {('a',): 2.0, (): 3.0}
    """
    result: Form = {}
    for form in forms:
        for path, factor in form.items():
            result[path] = result.get(path, 0.0) + factor
    return result


def most(*forms: Form) -> Form:
    """Return a form that is at least each of the given ones."""
    result: Form = {}
    for form in forms:
        for path, factor in form.items():
            result[path] = max(result.get(path, 0.0), factor)
    return result


def scaled(form: Form, factor: float) -> Form:
    """Return a form times a factor."""
    return {path: each * factor for path, each in form.items()} if factor != 1.0 else form


def below(form: Form, part: str) -> Form:
    """Return the form of a named part of a value whose form is given."""
    return {(*path, part) if path else path: factor for path, factor in form.items()}


def each_of(body: Form, items: Form, root: str, fields: int) -> Form:
    """Return the form for all items, where `body` is the form for one item.

    root: the first part of paths into an item; fields: how many different fields each item is known to have. What does
    not depend on the item counts once for each, and there are no more items than their size allows.
    """
    result: Form = {}
    least = 1.0 + 2.0 * fields
    for path, factor in body.items():
        if path and path[0] == root:
            for item, count in items.items():
                inside = (*item, "*", *path[1:]) if item else item
                result[inside] = result.get(inside, 0.0) + factor * count
        elif path:
            # A value from outside of the loop, once for each item: it is bounded for a constant number of items only.
            known = items.get((), 0.0) if not any(items) else inf
            result[path] = result.get(path, 0.0) + factor * known
        else:
            for item, count in items.items():
                result[item] = result.get(item, 0.0) + factor * count / (least if item else 1.0)
    return result


def factor_of(form: Form) -> dict[str, float]:
    """Return, by input, how many times its size a form is at most: separate parts of an input do not add up.

    >>> factor_of({("v", "a"): 1.0, ("v", "b"): 1.0, ("v",): 1.0, (): 7.0})
    {'v': 2.0}
    """
    result: dict[str, float] = {}
    for path in form:
        if path:
            along = sum(form.get(path[:length], 0.0) for length in range(1, len(path) + 1))
            result[path[0]] = max(result.get(path[0], 0.0), along)
    return result
