"""Sends code to the workers of a cluster: streamkit itself, and the Python modules beside the topology file."""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit import distribution
from streamkit.errors import UsageError
from streamkit.plan.model import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL = "local"


def ship(spark: SparkSession, plan: Plan) -> None:
    """Send the code that a plan needs to the workers of a cluster; workers on this machine import it directly.

    The libraries that streamkit imports (orjson, google-re2 and others) must be installed there, or be in an archive.
    """
    from streamkit.runtime.spark.spark_session import classic_context

    context = classic_context(spark)
    if context is not None and str(context.master).startswith(_LOCAL):
        return
    folder = Path(tempfile.mkdtemp(prefix="streamkit-ship-"))
    archives = [zip_package(Path(distribution.__file__).parent, folder / "streamkit.zip")]
    archives += [
        archive
        for number, each in enumerate(module_folders(plan))
        if (archive := zip_modules(each, folder / f"modules-{number}.zip")) is not None
    ]
    for archive in archives:
        if context is None:
            spark.addArtifacts(str(archive), pyfile=True)
        else:
            context.addPyFile(str(archive))


def module_folders(plan: Plan) -> list[Path]:
    """Return the folders of the topology and of the files that it includes. Raises UsageError if two have a module of the same name.

    A worker has all modules on one path, so it could not distinguish them.
    """
    folders = list(dict.fromkeys(Path(os.path.abspath(each)).parent for each in (plan.file, *plan.included)))
    known: dict[str, Path] = {}
    for folder in folders:
        for path in modules_of(folder):
            top = path.relative_to(folder).parts[0]
            if known.setdefault(top, folder) != folder:
                raise UsageError(
                    f"{known[top] / top} and {folder / top} have one name, by which a worker of a cluster finds only one"
                )
    return folders


def modules_of(folder: Path) -> list[Path]:
    """Return the files of the modules and packages of a folder."""
    packages = [each for each in folder.iterdir() if (each / "__init__.py").is_file()]
    return [*folder.glob("*.py"), *(path for package in packages for path in package.rglob("*.py"))]


def zip_package(source: Path, target: Path) -> Path:
    """Write a package with its modules to an archive that Python can import from."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(source.rglob("*.py")):
            archive.write(path, Path(source.name) / path.relative_to(source))
    return target


def zip_modules(folder: Path, target: Path) -> Path | None:
    """Write the modules and packages of a folder to an archive; return None if there are none."""
    paths = modules_of(folder)
    if not paths:
        return None
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(paths):
            archive.write(path, path.relative_to(folder))
    return target
