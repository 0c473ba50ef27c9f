"""Python callables that a topology names: `module:object`, looked for beside the YAML file first."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from typing import Any

from streamkit.errors import Problem, StreamkitError, TopologyError
from streamkit.suggestions import did_you_mean

_lock = threading.RLock()
_modules: dict[tuple[str, str], Any] = {}


def load_callable(ref: Any) -> Any:
    """Return the callable (function or class) of a reference with `module`, `attribute`, `folder`, `position`.

    Raises TopologyError (StreamkitError where the reference has no position) that names module or attribute,
    with the nearest attribute.
    """
    found = load_object(ref)
    if not callable(found):
        raise _wrong(ref, f"{ref.module}:{ref.attribute} is a value of type {type(found).__name__} and can't be called")
    return found


def load_object(ref: Any) -> Any:
    """Return any object of a reference; errors as those of `load_callable`."""
    found = _module(ref)
    for part in ref.attribute.split("."):
        if part.startswith("_") or not hasattr(found, part):
            public = [name for name in dir(found) if not name.startswith("_")]
            raise _wrong(ref, f"module {ref.module!r} has no public {part!r}{did_you_mean(part, public)}")
        found = getattr(found, part)
    return found


def _wrong(ref: Any, message: str) -> StreamkitError:
    position = getattr(ref, "position", None)
    return TopologyError([Problem(position, message)]) if position is not None else StreamkitError(message)


def _module(ref: Any) -> Any:
    folder = os.path.abspath(ref.folder or ".")
    with _lock:
        known = _modules.get((folder, ref.module))
        if known is None:
            known = _modules[folder, ref.module] = _import(ref, folder)
    return known


def _import(ref: Any, folder: str) -> Any:
    name = ref.module
    try:
        return _import_beside(folder, name) if _is_beside(folder, name) else importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise _wrong(ref, f"there is no module {name!r} beside the file or on the Python path") from None
        raise _wrong(ref, f"module {name!r} can't be imported: {error}") from error
    except Exception as error:
        raise _wrong(ref, f"module {name!r} can't be imported: {type(error).__name__}: {error}") from error


def _is_beside(folder: str, name: str) -> bool:
    top = os.path.join(folder, name.partition(".")[0])
    return os.path.isfile(top + ".py") or os.path.isdir(top)


def _import_beside(folder: str, name: str) -> Any:
    top = name.partition(".")[0]
    # Two files may each have a module of the same name beside them; neither may get the other's.
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
            # For imports that the module makes later, inside its functions; last, so that nothing is shadowed.
            sys.path.append(folder)


def _within(name: str, top: str) -> bool:
    return name == top or name.startswith(top + ".")


def _stands_in(folder: str, module: Any) -> bool:
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    return bool(file) and os.path.abspath(file).startswith(folder + os.sep)
