"""Another project's distribution called `streamkit`, whose files would take the place of ours."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

_NAMED_STREAMKIT = re.compile(r"streamkit-([^-]+)\.(dist|egg)-info")


def foreign_package(path: list[str] | None = None) -> str | None:
    """Return what is wrong and how to mend it where such a distribution is on the path (sys.path); else None.

    importlib.metadata would answer too; its import takes a tenth of the time of `streamkit validate`.
    """
    for folder in sys.path if path is None else path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            found = _NAMED_STREAMKIT.fullmatch(name)
            if found and not _is_ours(Path(folder, name)):
                return (
                    f"the package streamkit {found[1]} of another project is in {folder}, and its modules replace those of this"
                    f" one; remove it ({sys.executable} -m pip uninstall streamkit), then install streamkit-kafka again"
                )
    return None


def _is_ours(folder: Path) -> bool:
    """Return whether this is an older installation of this project, which had that name too."""
    try:
        return "streamkit_cli" in (folder / "entry_points.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
