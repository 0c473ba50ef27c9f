"""The engine LevelDB."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from threading import Lock

from streamkit.state.engines.overlay import OverlayMap

_WRITE_BUFFER_BYTES = 2 << 20
"""While a full buffer is written to a file a second one takes writes. 4 MB, LevelDB's default, is not faster."""
_BLOCK_CACHE_BYTES = 1 << 20
"""For blocks that are not read in place: of files that were written compressed, and beyond the 1,000 files that LevelDB maps."""
_SAMPLE = 2_000
"""How many rows the estimate measures; a table's block has about a hundred."""


class LevelMap(OverlayMap):
    """A map in the files of LevelDB (plyvel)."""

    def _open(self) -> Callable[[bytes], bytes | None]:
        import plyvel  # imported here: topologies without persistent stores run without it

        # plyvel releases Python's lock while it reads, and frees the database even if another thread reads it.
        self._in_use = Lock()
        # Paranoid: opening fails at a damaged part of the log, instead of skipping it and keeping later parts.
        # Uncompressed, as RocksDB in Kafka Streams: blocks are read in place from mapped files. Compressed ones are unpacked
        # into the block cache, 8 MB a store by default, which fill over hours; a smaller cache makes reads slower by up to half.
        self._db = plyvel.DB(
            str(self._path),
            create_if_missing=True,
            bloom_filter_bits=10,
            paranoid_checks=True,
            write_buffer_size=_WRITE_BUFFER_BYTES,
            lru_cache_size=_BLOCK_CACHE_BYTES,
            compression=None,
        )
        # RocksDB verifies checksums by default: a damaged block must not be read as rows.
        get: Callable[[bytes], bytes | None] = partial(self._db.get, verify_checksums=True)
        return get

    def _scan(self, low: bytes | None, stop: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        # In reverse, plyvel loses a row at the very start: the caller checks that bound.
        scan: Iterator[tuple[bytes, bytes]] = self._db.iterator(
            start=None if reverse else low, stop=stop, reverse=reverse, verify_checksums=True
        )
        return scan

    def _write(self, items: Iterable[tuple[bytes, bytes | None]]) -> None:
        batch = self._db.write_batch(sync=True)
        for key, value in items:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        batch.write()

    def _estimate(self) -> int:
        # LevelDB does not count its rows: a sample gives their average size.
        with self._in_use:
            with self._db.iterator(include_value=False) as keys:
                sample = list(islice(keys, _SAMPLE))
            if len(sample) < _SAMPLE:
                return len(sample)
            part = self._db.approximate_size(sample[0], sample[-1])
            total = self._db.approximate_size(sample[0], b"\xff" * 64)
        return max(_SAMPLE, total * _SAMPLE // part) if part else _SAMPLE

    def _release(self) -> None:
        with self._in_use:
            self._db.close()
