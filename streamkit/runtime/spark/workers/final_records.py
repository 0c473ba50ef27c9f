"""The final record of each key of a topic: in memory, and on disk where there are many keys."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path

from streamkit.record import OutputTuple
from streamkit.state.definitions import BytesMap
from streamkit.state.engines.open_maps import DEFAULT_ENGINE, open_map

_PRESENT = b"k"
"""The prefix of keys on disk, so that the empty key stands for None."""


class FinalRecords:
    """Keeps the last row of each key."""

    def __init__(self, path: Callable[[], Path], max_keys_in_memory: int):
        self._path = path
        self._max_keys_in_memory = max_keys_in_memory
        self._rows: dict[bytes | None, OutputTuple] = {}
        self._map: BytesMap | None = None

    def put(self, rows: Sequence[OutputTuple]) -> None:
        """Add rows; beyond `max_keys_in_memory` keys they move to disk. Raises StateError."""
        self._rows.update(zip(map(itemgetter(1), rows), rows, strict=True))
        if len(self._rows) > self._max_keys_in_memory:
            self._spill()

    def drain(self) -> Iterator[OutputTuple]:
        """Yield the last row of each key and remove all."""
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
            self._map = open_map(DEFAULT_ENGINE, self._path())
        self._map.put_many(
            [(b"" if key is None else _PRESENT + key, marshal.dumps(row)) for key, row in self._rows.items()]
        )
        self._map.commit()
        self._rows = {}
