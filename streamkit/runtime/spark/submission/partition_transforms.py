"""What `partition_by` of an output says: columns, days and the like of a time, and buckets."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NoReturn

from streamkit.errors import UsageError

TIMES = ("years", "months", "days", "hours")
BUCKET = "bucket"
_PIECE = re.compile(r"\s*(?:(\w+)\(\s*(?:(\d+)\s*,)?\s*([^(),]+?)\s*\)|([^(),]+?))\s*(?:,|$)")


@dataclass(frozen=True)
class Transform:
    """A part of the key of a partition. kind: one of TIMES, BUCKET, or "" for the column itself; count: of buckets."""

    column: str
    kind: str = ""
    count: int = 0

    @property
    def text(self) -> str:
        """The transform as it is written."""
        if not self.kind:
            return self.column
        return f"{self.kind}({f'{self.count}, ' if self.count else ''}{self.column})"

    def of(self, column: str) -> str:
        """Return the transform with another name for its column."""
        return replace(self, column=column).text


def parse_transforms(text: str, shown: str) -> tuple[Transform, ...]:
    """Return transforms of text such as `day(timestamp),bucket(16,key)`. Raises UsageError.

    >>> [each.text for each in parse_transforms("day(timestamp),bucket(16,key),region", "")]
    ['days(timestamp)', 'bucket(16, key)', 'region']
    """
    found, at = [], 0
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            _refuse(text, text[at:], shown)
        word, count, inner, column = piece.groups()
        kind = "" if word is None else word if word == BUCKET else f"{word.removesuffix('s')}s"
        if kind not in ("", BUCKET, *TIMES) or (kind == BUCKET) != (count is not None) or count == "0":
            _refuse(text, piece[0].strip(" ,"), shown)
        found.append(Transform(column or inner, kind, int(count or 0)))
        at = piece.end()
    return tuple(found)


def _refuse(text: str, piece: str, shown: str) -> NoReturn:
    raise UsageError(
        f"{shown}: partition_by={text}: {piece!r} is none of COLUMN, {', '.join(f'{each}(COLUMN)' for each in TIMES)} and "
        f"{BUCKET}(N,COLUMN)"
    )
