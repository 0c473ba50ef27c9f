"""The places of rows in files: hidden columns of Spark that give them, and their text in messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from pyspark.sql import Column

FILE, BLOCK, ROW, INDEX = "_streamkit_file", "_streamkit_block", "_streamkit_row", "_streamkit_index"


def position_columns(place: str) -> list[Column]:
    """Return the columns of a row's position: its file, the place of its block there, and its place among all rows."""
    from pyspark.sql import functions as sf

    row = sf.monotonically_increasing_id().alias(ROW)
    return [sf.col("_metadata.file_path").alias(FILE), sf.col(place).cast("bigint").alias(BLOCK), row]


def same_path(name: str) -> str:
    """Return one form of a file's name: Spark writes file:/a and file:///a for the same one.

    >>> same_path("file:///a%20b"), same_path("file:/a%20b"), same_path("s3a://lake/a")
    ('/a b', '/a b', 's3a://lake/a')
    """
    return unquote(re.sub("^file:/+", "/", name))


def place_of_line(path: str, block: int, row: int) -> str:
    """Return file and line of a row of a block, a part of a file that one task reads from the first line that begins there."""
    if not block:
        return f"{path}:{row + 1}"
    if not path.startswith("/"):
        return f"{path}: line {row + 1} after byte {block}"
    with open(path, "rb") as file:
        lines = sum(file.read(min(1 << 20, block - at)).count(b"\n") for at in range(0, block, 1 << 20))
    # The block before has also the line that begins at its end.
    return f"{path}:{lines + 2 + row}"
