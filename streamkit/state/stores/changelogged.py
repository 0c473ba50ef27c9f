"""Base classes of typed stores: definition, map, changelog and cache."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import ClassVar

from streamkit.errors import QueryError, StateError
from streamkit.record import Headers, RecordContext, Value, WindowedKey
from streamkit.serdes.sides import Side, windowed_side
from streamkit.state.definitions import BytesMap, CurrentTopic, Owner, Store, StoreContext, StoreDef, StoreSize
from streamkit.state.engines.ages import relaid, without_ttl
from streamkit.state.engines.segments import Segments
from streamkit.state.layouts import pack_long, unpack_int, unpack_long
from streamkit.state.store_offsets import WITH_HEADERS, StoreOffsets, decode_offsets
from streamkit.state.stores.cache import Cache, CacheBudget, CacheEntry

NO_HEADERS = 1
"""Bytes of empty headers in a value: their length."""

MAX_DECODED = 64
"""Bytes up to which a cache keeps a value decoded beside its bytes; a longer one is decoded at each read."""

Log = Callable[[bytes, "bytes | None", "int | None", "Headers | None"], None]


def no_log(key: bytes, value: bytes | None, timestamp: int | None, headers: Headers | None) -> None:
    """Do nothing: the log of a store without a changelog, or whose source topic is its changelog."""


def timestamped_rows(
    keys: list[bytes], values: list[bytes | None], timestamps: list[int]
) -> list[tuple[bytes, bytes | None]]:
    """Return the rows of changelog records whose values have their timestamp before them in the map.

    A source topic may have records without a key, which make no rows.
    """
    pack = pack_long
    return [
        (key, None if value is None else pack(timestamp) + value)
        for key, value, timestamp in zip(keys, values, timestamps, strict=True)
        if key is not None
    ]


def window_key_side(definition: StoreDef) -> Side:
    """Return the form of changelog keys that are key + start8 + sequence4."""
    serde, size = definition.key_serde, definition.window_size or 0

    def decode(data: bytes) -> WindowedKey:
        start = unpack_long(data, len(data) - 12)[0]
        return WindowedKey(serde.decode(data[:-12]), start, start + size)

    return windowed_side(serde, decode)


class Unlogged:
    """The services of a store that is only restored or read: they log and count nothing."""

    topic = CurrentTopic()

    def log(self, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers | None) -> None:
        """Do nothing."""

    def dropped(self, reason: str) -> None:
        """Do nothing."""


class MapStore(Store):
    """A store on one map. `persistent` decides which of Java's variants it behaves like, whichever map it has."""

    _segments: Segments | None = None

    def __init__(self, definition: StoreDef, entries: BytesMap, context: StoreContext):
        self.definition = definition
        self.name = definition.name
        self.persistent = definition.persistent
        self.key_serde = definition.key_serde
        self.value_serde = definition.value_serde
        self._map = entries
        self.durable = entries.durable
        self._log: Log = context.log if definition.logging and definition.source_topic is None else no_log
        self.keeps_headers = definition.keeps_headers
        self._dropped = context.dropped
        self.topic = context.topic
        self._offsets: StoreOffsets | None = None

    def flush(self) -> None:
        """Do nothing: there is no cache."""

    def adopt(self, owner: Owner, *, unmarked: bool = False) -> str | None:
        data = self._map.metadata
        if data is None:
            rows = any(True for _ in self._map.range(None, None, limit=1))
            if rows and not unmarked:
                return "does not record how much of its changelog it contains"
            self._offsets = StoreOffsets(owner)
            if rows:  # written by a release that had no index of due times
                before = replace(owner, layout=without_ttl(owner.layout))
                self._offsets = relaid(self._map, StoreOffsets(before), owner.layout)
            return None
        try:
            offsets = decode_offsets(data)
        except ValueError as error:
            return f"is damaged: {error}"
        if replace(owner, layout=offsets.owner.layout).other_than(offsets.owner) is None:
            offsets = relaid(self._map, offsets, owner.layout)
            if owner.layout == offsets.owner.layout + WITH_HEADERS:
                offsets = offsets.owned_by(owner)  # the rows of the plain layout have no headers, as in Java
        problem = owner.other_than(offsets.owner)
        if problem is None:
            self._offsets = offsets.owned_by(owner)
        return problem

    def position(self, partition: int) -> int | None:
        return None if self._offsets is None else self._offsets.positions.get(partition)

    def note_position(self, partition: int, position: int) -> None:
        if self._offsets is not None:
            self._offsets.note(partition, position)

    def inputs(self) -> Mapping[str, int]:
        return {} if self._offsets is None else self._offsets.inputs

    def note_inputs(self, offsets: Mapping[str, int]) -> None:
        if self._offsets is not None:
            self._offsets.inputs = dict(offsets)

    def uncommitted_bytes(self) -> int:
        return self._map.uncommitted_bytes()

    def committed(self) -> Store:
        """Return the store as of its last commit, without a cache: a commit empties it (see Store.committed)."""
        rows = self._map.committed()
        if rows is None:
            raise QueryError(
                f"store {self.name} is in memory and has no state of its last commit apart: "
                "set enable.transactional.statestores: true"
            )
        store = type(self)(self.definition, rows, Unlogged())
        # As in Java, the present stream time decides which rows have expired (AbstractRocksDBSegmentedBytesStore.getActualFrom).
        store.restore_volatile(self.volatile_values())
        return store

    def measure(self) -> StoreSize:
        try:
            return StoreSize(self._map.bytes_on_disk(), self._map.rows_estimate())
        except StateError:
            return StoreSize()

    @property
    def committed_ms(self) -> int | None:
        return None if self._offsets is None else self._offsets.committed_ms

    def commit(self) -> None:
        """Make everything flushed durable in one write batch, with the offsets of the changelog up to which it is complete."""
        if self._offsets is not None:
            self._map.metadata = self._offsets.encode()
        self._map.commit()

    def begin_load(self, executor: Executor) -> None:
        """Prepare for many records of the changelog (see Store.begin_load)."""
        self._map.begin_load(executor)
        if self._segments is not None:
            self._segments.begin_load()

    def end_load(self) -> None:
        self._map.end_load()
        if self._segments is not None:
            self._segments.end_load()

    def close(self) -> None:
        """Close the store; cached and uncommitted writes are lost."""
        self._map.close()


class NumberedStore(MapStore):
    """A store whose keys end with a number, by which records of one key and time are kept apart.

    The number continues with each run, where Java's begins again and a record may replace one of an earlier run.
    """

    volatile: ClassVar[tuple[str, ...]] = ("observed_time", "_sequence")
    _sequence = 0

    def adopt(self, owner: Owner, *, unmarked: bool = False) -> str | None:
        problem = super().adopt(owner, unmarked=unmarked)
        if self._offsets is not None:
            self._sequence = self._offsets.sequence
        return problem

    def commit(self) -> None:
        if self._offsets is not None:
            self._offsets.sequence = self._sequence
        super().commit()

    def note_numbers(self, keys: Iterable[bytes]) -> None:
        """Continue behind the numbers of keys that are restored."""
        last = max((key[-4:] for key in keys), default=None)
        if last is not None:
            self._sequence = max(self._sequence, unpack_int(last)[0])


def cache_overhead(definition: StoreDef) -> tuple[int, int]:
    """Return how many bytes a key and a value have in Java's cache beside those of the cache here.

    Windows and sessions have their segment's number before the key, windows a sequence number after it and those
    that are ordered by time a prefix (SegmentedCacheFunction, WindowKeySchema, TimeFirstWindowKeySchema); the values of
    tables have their timestamp before them, and with headers the length of these, which are none.
    """
    headers = NO_HEADERS if definition.keeps_headers else 0
    if definition.type == "session":
        return 8, headers
    if definition.type == "window":
        by_time = definition.persistent and bool(definition.options.get("time_ordered"))
        return 13 if by_time else 12, 0 if definition.options.get("plain") else 8 + headers
    return 0, 8 + headers if definition.type == "timestamped_key_value" else 0


class CachedMapStore(MapStore):
    """A store that may keep updates in a cache, and calls a listener for each update that leaves it."""

    def __init__(
        self, definition: StoreDef, entries: BytesMap, context: StoreContext, budget: CacheBudget | None = None
    ):
        super().__init__(definition, entries, context)
        self.cache: Cache | None = None
        if budget is not None and definition.caching:
            self.cache = Cache(budget, self._apply, context.topic, *cache_overhead(definition))
        # Decoded values may stay in the cache only if no code can change them in place.
        self.holds_decoded = definition.value_serde.immutable or bool(definition.options.get("hold_decoded"))
        self._encode = definition.value_serde.encode
        self._decode = definition.value_serde.decode
        self._listener: Callable[..., None] | None = None
        self._send_old = False
        self._forwards = False
        """Whether updates that leave the cache are forwarded, even if there is no child."""

    @property
    def cached(self) -> bool:
        """Whether updates wait in a cache, so that the listener forwards them instead of the caller."""
        return self.cache is not None

    @property
    def entries(self) -> dict[bytes, CacheEntry]:
        """The entries of the cache by its keys; empty for a store without one."""
        return {} if self.cache is None else self.cache.entries

    def set_listener(self, listener: Callable[..., None] | None, send_old: bool) -> None:
        """Call `listener` for each update that leaves the cache, with the old value if `send_old`.

        None: updates are forwarded to no child. A key that was put and deleted within the cache is not written at all.
        """
        self._listener = listener
        self._send_old = send_old and listener is not None
        self._forwards = True

    @abstractmethod
    def _apply(self, key: bytes, value: Value, timestamp: int, context: RecordContext, data: bytes | None) -> None:
        """Write an update that leaves the cache to the map and the changelog, and call the listener.

        data: the value's bytes; None if only the value is known.
        """

    def _cache_put(self, key: bytes, value: Value, timestamp: int, context: RecordContext) -> None:
        assert self.cache is not None
        data = None if value is None else self._encode(value)
        is_short = data is not None and len(data) <= MAX_DECODED
        decoded = self.value_serde.as_decoded(value) if is_short and self.holds_decoded else None
        self.cache.put(key, decoded, timestamp, context, data)

    def _entry_value(self, entry: CacheEntry) -> Value:
        """Return the value of a cache entry: VALUE if it is there, else DATA decoded."""
        value, data = entry[0], entry[5]
        return value if value is not None or data is None else self._decode(data)

    def flush(self) -> None:
        """Empty the cache into the store and the changelog, forwarding each last update to the listener."""
        if self.cache is not None:
            self.cache.flush()

    def forget(self) -> None:
        if self.cache is not None:
            self.cache.clear()

    def close(self) -> None:
        self.forget()
        super().close()
