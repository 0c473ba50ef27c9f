"""Imports the Python code that a file names, and checks that its calls fit; `validate` does so on request, `run` always."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator

from streamkit.errors import Position, Problem, SerdeError, StreamkitError, TopologyError
from streamkit.expressions.calls import (
    FunctionCall,
    coroutine_in_source,
    load_object,
    misfits,
    misfits_of_call,
    module_exists,
    signature_of,
)
from streamkit.spec.topology_model import CallSite, TopologyModel

_METHODS = {
    ("record",): "process(self, record)",
    ("argument",): "__call__(self, argument)",
    ("keys", "values"): "__call__(self, keys, values)",
}
"""The method that a class must have, by the arguments of a function in its place."""


_AWAITED = ("argument",)
"""The arguments that `enrich` passes; it is the only step that waits for coroutines."""
_NOT_AWAITED = "is `async`, and its coroutine would never run; write a function without `async`, or use the step enrich"


def check_imports(model: TopologyModel) -> None:
    """Import everything that a file names. Raises TopologyError with all problems."""
    problems = import_problems(model)
    if problems:
        raise TopologyError(problems)


def import_problems(model: TopologyModel) -> list[Problem]:
    """Return the problems of the modules, objects and calls of a file, by place; runs the modules' code."""
    problems = [problem for site in model.calls for problem in _problems_of_call(site)]
    problems += [problem for call in model.function_calls for problem in _problems_of_function_call(call)]
    for serde, position, what in model.called_serdes:
        try:
            serde.load()
        except SerdeError as error:
            problems.append(Problem(position, f"{what}: {error}"))
    return sorted(
        dict.fromkeys(problems),
        key=lambda problem: (problem.position.file, problem.position.line, problem.position.column),
    )


def source_problems(model: TopologyModel) -> list[Problem]:
    """Return the problems that the sources of a file's modules show without an import: missing modules, and `async` functions for which no step waits."""
    problems = []
    for site in model.calls:
        ref, position = site.ref, site.ref.position or Position("", 1, 1)
        if ref.target is not None:
            problems += [problem for problem in _problems_of_call(site) if _NOT_AWAITED in problem.message]
            continue
        if not module_exists(os.path.abspath(ref.folder or "."), ref.module):
            text = f"there is no module {ref.module!r} beside the file or on the Python path"
            problems.append(Problem(position, f"{site.what}: {text}"))
            continue
        method = _METHODS.get(site.usage.passed or (), "__call__").partition("(")[0]
        coroutine = coroutine_in_source(ref.folder, ref.module, ref.attribute, method)
        if coroutine is not None and site.usage.passed != _AWAITED:
            problems.append(Problem(position, f"{site.what}: {coroutine} {_NOT_AWAITED}"))
    return list(dict.fromkeys(problems))


def _problems_of_call(site: CallSite) -> Iterator[Problem]:
    ref, position = site.ref, site.ref.position or Position("", 1, 1)
    try:
        target = load_object(ref)
    except TopologyError as error:
        for problem in error.problems:
            yield Problem(problem.position, f"{site.what}: {problem.message}")
        return
    except StreamkitError as error:
        yield Problem(position, f"{site.what}: {error}")
        return
    if not callable(target):
        kind = type(target).__name__
        yield Problem(position, f"{site.what}: {ref} is a value of type {kind} and can't be called")
        return
    method = _METHODS.get(site.usage.passed or ())
    if inspect.isclass(target) and (method or site.usage.makes):
        missing = method if method and not _has(target, method.partition("(")[0]) else ", ".join(_abstract(target))
        if missing:
            yield Problem(position, f"{site.what}: class {target.__name__} has no method {missing}")
    called = target, inspect.getattr_static(target, "__call__", None)
    run = inspect.getattr_static(target, method.partition("(")[0], None) if method and inspect.isclass(target) else None
    if site.usage.passed != _AWAITED and any(map(_is_async, (target, run))):
        yield Problem(position, f"{site.what}: {ref} {_NOT_AWAITED}")
    # A generator without `async` may give the results of a list (`batch`).
    if site.usage.passed == ("argument",) and any(map(inspect.isasyncgenfunction, called)):
        text = f"{ref} is an async generator; expected a result: `return` in place of `yield`"
        yield Problem(position, f"{site.what}: {text}")
    signature = signature_of(target)
    if signature is None:
        return
    places = {argument.name: argument.position for argument in ref.arguments}
    for misfit in misfits(signature, {argument.name: argument.value for argument in ref.arguments}, site.usage):
        yield Problem(places.get(misfit.argument or "") or position, f"{site.what}: {misfit}")


def _problems_of_function_call(call: FunctionCall) -> Iterator[Problem]:
    try:
        target = load_object(call.ref)
    except StreamkitError:  # reported at the function's own place
        return
    signature = signature_of(target) if callable(target) else None
    if signature is not None:
        yield from (Problem(call.position, str(misfit)) for misfit in misfits_of_call(signature, call))


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _has(class_: type, method: str) -> bool:
    # hasattr would not do: each class has the `__call__` of its metaclass.
    return any(method in vars(base) for base in class_.__mro__)


def _abstract(class_: type) -> list[str]:
    """Return the abstract methods of a class, which prevent it from being instantiated."""
    return sorted(getattr(class_, "__abstractmethods__", ()))
