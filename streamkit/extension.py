"""The switch of the optional extension `streamkit._native`, which is read where the extension is imported."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TypeVar

SWITCH = "STREAMKIT_NATIVE"
"""The environment variable that turns the extension off."""
OFF, AUTO = "off", "auto"

Function = TypeVar("Function")


def switch() -> str:
    """Return the value of the environment variable, in lower case; AUTO if it is not set."""
    return os.environ.get(SWITCH, AUTO).lower()


def native(name: str, in_python: Function) -> Function:
    """Return the extension's function of a name; `in_python` if the extension is off, not built, or too old to have it."""
    if switch() == OFF:
        return in_python
    try:
        module = import_module("streamkit._native")
    except ImportError:
        return in_python
    function: Function = getattr(module, name, in_python)
    return function
