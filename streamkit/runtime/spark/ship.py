"""What workers elsewhere need: streamkit itself, and the Python modules beside the topology file."""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import streamkit
from streamkit.plan.model import Plan

_LOCAL = "local"


def ship(spark: Any, plan: Plan) -> None:
    """Send the code that a plan needs to the workers of a cluster; those of this machine find it where it is.

    The libraries that streamkit stands on (orjson, google-re2 and others) must be there, or come in an archive.
    """
    from streamkit.runtime.spark.globals import classic_context

    context = classic_context(spark)
    if context is not None and context.master.startswith(_LOCAL):
        return
    folder = Path(tempfile.mkdtemp(prefix="streamkit-ship-"))
    archives = [zip_package(Path(streamkit.__file__).parent, folder / "streamkit.zip")]
    beside = zip_modules(Path(os.path.abspath(plan.file)).parent, folder / "modules.zip")
    if beside is not None:
        archives.append(beside)
    for archive in archives:
        if context is None:
            spark.addArtifacts(str(archive), pyfile=True)
        else:
            context.addPyFile(str(archive))


def zip_package(source: Path, target: Path) -> Path:
    """Write a package with all that is in it to an archive that Python can import from."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(source.rglob("*.py")):
            archive.write(path, Path(source.name) / path.relative_to(source))
    return target


def zip_modules(folder: Path, target: Path) -> Path | None:
    """Write the modules and packages that stand in a folder to an archive; None where there are none."""
    packages = [each for each in folder.iterdir() if (each / "__init__.py").is_file()]
    paths = [*folder.glob("*.py"), *(path for package in packages for path in package.rglob("*.py"))]
    if not paths:
        return None
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(paths):
            archive.write(path, path.relative_to(folder))
    return target
