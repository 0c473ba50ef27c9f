"""The engine RocksDB."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from streamkit.state.engines.overlay import OverlayMap

if TYPE_CHECKING:
    from rocksdict import Cache, Options, RdictIter, ReadOptions

_BLOCK_CACHE_BYTES = 64 * 1024 * 1024
"""Shared by all stores of the process."""
_WRITE_BUFFER_BYTES = 4 * 1024 * 1024
"""For each store, which has two buffers while it writes a full one to a file. 16 MB is no faster, and takes hours to fill."""
_LOADING_BUFFER_BYTES = 16 * 1024 * 1024
_OPEN_FILES = 1000
_BLOOM_BITS = 10
_ROWS = "default"
"""The name that RocksDB gives to the only column family of a database."""


class RocksMap(OverlayMap):
    """A map in the files of RocksDB (rocksdict)."""

    def _open(self) -> Callable[[bytes], bytes | None]:
        self._scans: weakref.WeakSet[Generator[tuple[bytes, bytes], None, None]] = weakref.WeakSet()
        return self._open_with(_options())

    def _open_with(self, options: Options) -> Callable[[bytes], bytes | None]:
        from rocksdict import Rdict  # imported here: topologies without persistent stores run without it

        # Without `column_families`, rocksdict takes the options of rows from its files: old ones, without the shared cache.
        self._db = Rdict(str(self._path), options, column_families={_ROWS: options})
        get: Callable[[bytes], bytes | None] = self._db.get
        return get

    def _reopen(self, *, load: bool) -> Callable[[bytes], bytes | None]:
        self._release()
        return self._open_with(_loading(_options()) if load else _options())

    def _scan(self, low: bytes | None, stop: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        from rocksdict import ReadOptions

        options = ReadOptions()
        if stop is not None:
            options.set_iterate_upper_bound(stop)
        place = self._db.iter(options)
        if reverse:
            place.seek_to_last() if stop is None else place.seek_for_prev(stop)
        else:
            place.seek_to_first() if low is None else place.seek(low)
        rows = _rows(place, place.prev if reverse else place.next, options, stop)
        next(rows)  # now the generator holds the iterator
        self._scans.add(rows)
        return rows

    def _write(self, items: Iterable[tuple[bytes, bytes | None]]) -> None:
        from rocksdict import WriteBatch

        batch = WriteBatch(raw_mode=True)
        for key, value in items:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        # A synchronous write would keep Python's lock while it waits for the disk: no other thread could work, or write its store.
        self._db.write(batch)
        self._db.flush_wal(True)

    def _estimate(self) -> int:
        return int(self._db.property_int_value("rocksdb.estimate-num-keys") or 0)

    def _release(self) -> None:
        # RocksDB keeps its lock as long as an iterator exists: one that is not exhausted would keep the store open.
        for scan in list(self._scans):
            scan.close()
        self._db.close()


def _rows(
    place: RdictIter, step: Callable[[], None], options: ReadOptions, stop: bytes | None
) -> Generator[tuple[bytes, bytes], None, None]:
    # rocksdict passes RocksDB a pointer to the bytes of the bound, but keeps no reference to the options or the bound. The
    # parameters of this generator keep both alive.
    yield b"", b""
    valid, key, value = place.valid, place.key, place.value
    while valid():
        yield key(), value()
        step()
    # Iteration also ends at a damaged block. rocksdict's own generators are quicker, but do not report that.
    place.status()


def _options() -> Options:
    from rocksdict import BlockBasedOptions, DBCompressionType, Options

    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_max_open_files(_OPEN_FILES)
    options.set_keep_log_file_num(1)
    options.set_compression_type(DBCompressionType.lz4())
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(_BLOOM_BITS, False)
    blocks.set_block_cache(_block_cache())
    options.set_block_based_table_factory(blocks)
    return options


def _loading(options: Options) -> Options:
    """Set a buffer that another thread sorts when it is full; inserting each row in order is most of the cost of a write.

    Only loading uses it, because each read sorts the buffer first. The write-ahead log stays on.
    """
    from rocksdict import MemtableFactory

    options.set_write_buffer_size(_LOADING_BUFFER_BYTES)
    options.set_allow_concurrent_memtable_write(False)  # a vector takes one writer
    options.set_memtable_factory(MemtableFactory.vector())
    return options


@cache
def _block_cache() -> Cache:
    from rocksdict import Cache

    return Cache(_BLOCK_CACHE_BYTES)
