"""Imports the Python callables that a topology names: `module:object`, from the YAML file's folder first."""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Protocol

from streamkit.errors import Position, Problem, StreamkitError, TopologyError
from streamkit.record import Value
from streamkit.suggestions import did_you_mean

_lock = threading.RLock()
_modules: dict[tuple[str, str], ModuleType] = {}


@dataclass(frozen=True)
class Argument:
    """An argument of a call by name (`with:`); `data`: its value in the file, as JSON."""

    name: str
    data: str
    position: Position | None = field(default=None, compare=False)

    @property
    def value(self) -> Value:
        """The value: a new one each time, so that calls that change theirs do not affect each other."""
        return json.loads(self.data)


class CallableRef(Protocol):
    """A topology's reference to a Python object: `module:attribute`, searched in `folder` first.

    A reference may also have a `position`: its place in the file.
    """

    @property
    def module(self) -> str:
        """The module's full name."""

    @property
    def attribute(self) -> str:
        """The object's name in the module; dots lead to attributes of it."""

    @property
    def folder(self) -> str:
        """The folder of the topology file."""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The arguments by name."""


def load_callable(ref: CallableRef) -> Callable[..., Value]:
    """Return the callable (function or class) of a reference; with arguments, a `functools.partial` of both.

    Raises TopologyError (StreamkitError where the reference has no position) that names module, attribute or argument,
    with the nearest one.
    """
    found = load_object(ref)
    if not callable(found):
        raise _wrong(ref, f"{ref.module}:{ref.attribute} is a value of type {type(found).__name__} and can't be called")
    if not ref.arguments:
        return found
    from streamkit.expressions.call_signatures import Misfit, bound  # inspect is slow to import

    try:
        return bound(found, {each.name: each.value for each in ref.arguments})
    except Misfit as error:
        raise _wrong(ref, str(error)) from None


def load_object(ref: CallableRef) -> object:
    """Return the object of a reference. Raises the errors of `load_callable`."""
    found: object = _module(ref)
    for part in ref.attribute.split("."):
        if part.startswith("_") or not hasattr(found, part):
            public = [name for name in dir(found) if not name.startswith("_")]
            raise _wrong(ref, f"module {ref.module!r} has no public {part!r}{did_you_mean(part, public)}")
        found = getattr(found, part)
    return found


def _wrong(ref: CallableRef, message: str) -> StreamkitError:
    position = getattr(ref, "position", None)
    return TopologyError([Problem(position, message)]) if position is not None else StreamkitError(message)


def _module(ref: CallableRef) -> ModuleType:
    folder = os.path.abspath(ref.folder or ".")
    with _lock:
        known = _modules.get((folder, ref.module))
        if known is None:
            known = _modules[folder, ref.module] = _import(ref, folder)
    return known


def _import(ref: CallableRef, folder: str) -> ModuleType:
    name = ref.module
    try:
        return _import_beside(folder, name) if _is_beside(folder, name) else importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise _wrong(ref, f"there is no module {name!r} beside the file or on the Python path") from None
        raise _wrong(ref, f"module {name!r} can't be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise _wrong(ref, f"module {name!r} can't be imported: {type(error).__name__}: {error}") from error


def _is_beside(folder: str, name: str) -> bool:
    top = os.path.join(folder, name.partition(".")[0])
    return os.path.isfile(top + ".py") or os.path.isdir(top)


def module_exists(folder: str, name: str) -> bool:
    """Return whether a module is beside the file or on the Python path; imports nothing, not even the packages around it."""
    parts = name.split(".")
    if _is_beside(folder, name):
        path = os.path.join(folder, *parts)
        return os.path.isfile(f"{path}.py") or os.path.isdir(path) or name in sys.modules
    places: Iterable[str] | None = None
    for number in range(len(parts)):
        whole = ".".join(parts[: number + 1])
        if whole in sys.modules:
            places = getattr(sys.modules[whole], "__path__", None)
            continue
        finders = [find for each in sys.meta_path if (find := getattr(each, "find_spec", None)) is not None]
        spec = next((found for find in finders if (found := find(whole, places)) is not None), None)
        if spec is None:
            return False
        # A package may make its modules itself, when it is imported.
        places = spec.submodule_search_locations
        if places is None and number + 1 < len(parts):
            return True
    return True


def _import_beside(folder: str, name: str) -> ModuleType:
    top = name.partition(".")[0]
    # Two files in different folders may each have a module of one name; neither may get the other's.
    others = {key: sys.modules[key] for key in list(sys.modules) if _within(key, top)}
    if any(_stands_in(folder, module) for module in others.values()):
        return importlib.import_module(name)
    for key in others:
        del sys.modules[key]
    sys.path.insert(0, folder)
    try:
        importlib.invalidate_caches()
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)
        if others:
            for key in [key for key in sys.modules if _within(key, top)]:
                del sys.modules[key]
            sys.modules.update(others)
        if folder not in sys.path:
            # For imports in the module's functions; last in the path, so that it shadows no other module.
            sys.path.append(folder)


def _within(name: str, top: str) -> bool:
    return name == top or name.startswith(top + ".")


def _stands_in(folder: str, module: ModuleType) -> bool:
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    return bool(file) and os.path.abspath(file).startswith(folder + os.sep)
