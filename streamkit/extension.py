"""The switch of the optional extension `streamkit._native`, which is read where the extension is imported."""

from __future__ import annotations

import os

SWITCH = "STREAMKIT_NATIVE"
"""The environment variable that turns the extension off."""
OFF, AUTO = "off", "auto"


def switch() -> str:
    """Return the value of the environment variable, in lower case; AUTO where it is not set."""
    return os.environ.get(SWITCH, AUTO).lower()
