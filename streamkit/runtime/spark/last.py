"""The last record of each key of a topic: in memory, and on disk once there are many."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path

from streamkit.state.base import BytesMap
from streamkit.state.maps import default_engine, open_map

_PRESENT = b"k"
"""What stands before a key on disk, so that no key is one too."""


class LastOfKeys:
    """Keeps of rows, whose second field is the key, the last one of each key."""

    def __init__(self, path: Callable[[], Path], most: int):
        self._path = path
        self._most = most
        self._rows: dict[bytes | None, tuple] = {}
        self._map: BytesMap | None = None

    def remember(self, rows: Sequence[tuple]) -> None:
        """Take in rows; beyond `most` keys they move to disk. Raises StateError."""
        self._rows.update(zip(map(itemgetter(1), rows), rows, strict=True))
        if len(self._rows) > self._most:
            self._spill()

    def rest(self) -> Iterator[tuple]:
        """Yield the rows that are left and forget them."""
        if self._map is None:
            yield from self._rows.values()
        else:
            self._spill()
            for _, row in self._map.range(None, None):
                yield marshal.loads(row)
            self._map.close()
            self._map = None
        self._rows = {}

    def _spill(self) -> None:
        if self._map is None:
            self._map = open_map(default_engine(), self._path())
        self._map.put_many(
            [(b"" if key is None else _PRESENT + key, marshal.dumps(row)) for key, row in self._rows.items()]
        )
        self._map.commit()
        self._rows = {}
