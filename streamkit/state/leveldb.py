"""LevelDB below a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from threading import Lock

from streamkit.state.overlay import OverlayMap

_WRITE_BUFFER_BYTES = 2 << 20
"""While a full buffer is written to a file a second one takes writes. 4 MB, LevelDB's default, were no faster."""
_BLOCK_CACHE_BYTES = 1 << 20
"""For blocks that are not read in place: of files that were written compressed, and beyond the 1,000 files that LevelDB maps."""
_SAMPLE = 2_000
"""Rows of which the size of all is taken; a table's block has about a hundred."""


class LevelMap(OverlayMap):
    """A map in the files of LevelDB (plyvel)."""

    def _open(self) -> Callable[[bytes], bytes | None]:
        import plyvel  # imported here: topologies without persistent stores run without it

        # plyvel frees what another thread may be reading outside of Python's lock.
        self._in_use = Lock()
        # Paranoid: a damaged part of the log ends the opening, instead of being passed over with later parts kept.
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
        # As RocksDB does unasked: a block that is damaged must not pass for rows.
        get: Callable[[bytes], bytes | None] = partial(self._db.get, verify_checksums=True)
        return get

    def _scan(self, low: bytes | None, stop: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        # Backwards, plyvel loses a row that stands at the very start: the caller checks that bound.
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
        # LevelDB does not count its rows: a sample tells how many of them take how many bytes.
        with self._in_use:
            with self._db.iterator(include_value=False) as keys:
                sample = list(islice(keys, _SAMPLE))
            if len(sample) < _SAMPLE:
                return len(sample)
            part = self._db.approximate_size(sample[0], sample[-1])
            whole = self._db.approximate_size(sample[0], b"\xff" * 64)
        return max(_SAMPLE, whole * _SAMPLE // part) if part else _SAMPLE

    def _release(self) -> None:
        with self._in_use:
            self._db.close()
