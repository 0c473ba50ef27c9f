"""Which tests start processes: found by the functions and fixtures that a test calls."""

from __future__ import annotations

import inspect
import os
import subprocess
from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

TESTS = os.path.dirname(__file__)


def starts_processes(item: pytest.Item) -> bool:
    """Return whether a test, its fixtures, or a function of tests/ that one of them calls by name uses `subprocess`."""
    if not isinstance(item, pytest.Function):
        return False
    fixtures = [each.func for defs in item._fixtureinfo.name2fixturedefs.values() for each in defs]
    return any(_starts_processes(function) for given in (item.function, *fixtures) for function in _functions(given))


@cache
def _starts_processes(function: FunctionType) -> bool:
    waiting = [function]
    seen = {function}
    while waiting:
        is_it, named = _named(waiting.pop())
        if is_it:
            return True
        found = named - seen
        seen |= found
        waiting += found
    return False


@cache
def _named(function: FunctionType) -> tuple[bool, set[FunctionType]]:
    """Return whether a function names `subprocess`, and the functions of tests/ that it names."""
    used = list(_used(function.__code__, function.__globals__))
    return any(each is subprocess for each in used), {found for each in used for found in _functions(each)}


def _functions(found: Any) -> Iterator[FunctionType]:
    """The functions of tests/ that a name stands for: itself, or the methods of a class."""
    for each in vars(found).values() if inspect.isclass(found) else [found]:
        function = inspect.unwrap(each) if callable(each) else each
        if isinstance(function, FunctionType) and function.__code__.co_filename.startswith(TESTS):
            yield function


def _used(code: CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """What a function's code names, inner functions included; of a module what is taken from it."""
    for name in code.co_names:
        # Also where the function imports it itself.
        found = subprocess if name == subprocess.__name__ else names.get(name)
        if isinstance(found, ModuleType) and found.__name__.startswith("tests."):
            yield from (getattr(found, each, None) for each in code.co_names)
        else:
            yield found
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _used(each, names)
