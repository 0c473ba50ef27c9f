"""The positions of rows in files: Spark's hidden columns for them, and their text in messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from pyspark.sql import Column

FILE, BLOCK, ROW, INDEX = "_streamkit_file", "_streamkit_block", "_streamkit_row", "_streamkit_index"


def position_columns(place: str) -> list[Column]:
    """Return the columns of a row's position: its file, the offset of its block in the file, and its index among all rows."""
    from pyspark.sql import functions as sf

    row = sf.monotonically_increasing_id().alias(ROW)
    return [sf.col("_metadata.file_path").alias(FILE), sf.col(place).cast("bigint").alias(BLOCK), row]


def same_path(name: str) -> str:
    """Return the normal form of a file's name; Spark writes both file:/a and file:///a.

    >>> same_path("file:///a%20b"), same_path("file:/a%20b"), same_path("s3a://lake/a")
    ('/a b', '/a b', 's3a://lake/a')
    """
    return unquote(re.sub("^file:/+", "/", name))


def place_of_line(path: str, block: int, row: int) -> str:
    """Return the file and line number of a row. A block is a part of a file, which a task reads from the first line that begins in it."""
    if not block:
        return f"{path}:{row + 1}"
    if not path.startswith("/"):
        return f"{path}: line {row + 1} after byte {block}"
    with open(path, "rb") as file:
        lines = sum(file.read(min(1 << 20, block - at)).count(b"\n") for at in range(0, block, 1 << 20))
    # A line that begins at the end of a block belongs to that block.
    return f"{path}:{lines + 2 + row}"
