"""RocksDB below a store."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cache
from typing import Any

from streamkit.state.overlay import OverlayMap

_BLOCK_CACHE_BYTES = 64 * 1024 * 1024
"""Of all stores of the process together."""
_WRITE_BUFFER_BYTES = 4 * 1024 * 1024
"""Of each store, which has two while a full one is written to a file. 16 MB were no faster, and take hours to fill."""
_LOADING_BUFFER_BYTES = 16 * 1024 * 1024
_OPEN_FILES = 1000
_BLOOM_BITS = 10
_ROWS = "default"
"""What RocksDB calls the one column family of a database."""


class RocksMap(OverlayMap):
    """A map in the files of RocksDB (rocksdict)."""

    def _open(self) -> Callable[[bytes], bytes | None]:
        import rocksdict  # imported here: topologies without persistent stores run without it

        self._scans: weakref.WeakSet[Generator[tuple[bytes, bytes], None, None]] = weakref.WeakSet()
        self._synchronous = rocksdict.WriteOptions()
        self._synchronous.sync = True
        return self._open_with(_options())

    def _open_with(self, options: Any) -> Callable[[bytes], bytes | None]:
        from rocksdict import Rdict

        # Without them named rocksdict takes those of rows from its files: as they were then, and without the shared cache.
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
        self._db.write(batch, self._synchronous)

    def _estimate(self) -> int:
        return int(self._db.property_int_value("rocksdb.estimate-num-keys") or 0)

    def _release(self) -> None:
        # RocksDB keeps its lock for as long as anything can read: an iterator left half way would keep the store open.
        for scan in list(self._scans):
            scan.close()
        self._db.close()


def _rows(place: Any, step: Callable[[], None], options: Any, stop: bytes | None) -> Generator[Any, None, None]:
    # rocksdict hands RocksDB a pointer to the bound's bytes and keeps neither options nor bound alive: the parameters do.
    yield None
    valid, key, value = place.valid, place.key, place.value
    while valid():
        yield key(), value()
        step()
    # Rows also end where a block is damaged. rocksdict's own generators, which are quicker, do not tell one from the other.
    place.status()


def _options() -> Any:
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


def _loading(options: Any) -> Any:
    """Have written rows sorted once a buffer is full, beside, instead of each at its place: most of what a write costs.

    A read sorts the buffer first, so that this is for loading only. The log of writes is as usual.
    """
    from rocksdict import MemtableFactory

    options.set_write_buffer_size(_LOADING_BUFFER_BYTES)
    options.set_allow_concurrent_memtable_write(False)  # a vector takes one writer
    options.set_memtable_factory(MemtableFactory.vector())
    return options


@cache
def _block_cache() -> Any:
    from rocksdict import Cache

    return Cache(_BLOCK_CACHE_BYTES)
