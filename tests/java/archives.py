"""Archives of the classes that a JVM loads: with one a broker starts in half of its CPU time, and so do Spark and its first jobs."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def archive(jars: Path, folder: Path) -> Path:
    """Return where the archive for the jars of a folder is: another file when a jar or the JVM has changed."""
    java = Path(shutil.which("java") or "java").resolve()
    digest = hashlib.sha256(str(java).encode())
    for file in (*([java] if java.exists() else []), *sorted(jars.glob("*.jar"))):
        status = file.stat()
        digest.update(f"{file} {status.st_size} {status.st_mtime_ns}\n".encode())
    return folder / f"{jars.parent.name}-{jars.name}-{digest.hexdigest()[:16]}.jsa"


def options(file: Path) -> list[str]:
    """The options with which a JVM uses an archive. Where it is missing, or is not for this JVM, the JVM goes without."""
    return [f"-XX:SharedArchiveFile={file}", "-Xshare:auto", "-Xlog:disable"]


def make(file: Path, train: Callable[[str], None]) -> None:
    """Make an archive if it is missing. train: runs a program that loads the classes, with the option that it is given."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # Another process of the tests waits for it, and makes none of its own.
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if file.exists():
            return
        with tempfile.TemporaryDirectory(dir=file.parent) as partial:
            made = Path(partial) / file.name
            train(f"-XX:ArchiveClassesAtExit={made}")
            # A JVM that can make none leaves an empty file, so that it is asked once.
            made.touch()
            made.rename(file)
