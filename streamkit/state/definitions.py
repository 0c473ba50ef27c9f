"""Definitions of stores, as a Plan has them, and the interfaces and kinds of stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

from streamkit.durations import DAY_MS
from streamkit.errors import QueryError, StateError
from streamkit.record import Headers, Key, RecordContext, Value
from streamkit.serdes.plain import Json
from streamkit.serdes.serde import Serde
from streamkit.serdes.sides import Side, side_of, windowed_json
from streamkit.state.layouts import unpack_long

if TYPE_CHECKING:
    from concurrent.futures import Executor


LONG_MAX = 2**63 - 1

VALID_TO_UNDEFINED = -1
"""A versioned store's `put` returns this when the version is the key's latest (PUT_RETURN_CODE_VALID_TO_UNDEFINED)."""
NOT_PUT = -(2**63)
"""A versioned store's `put` returns this when the version is older than the history (PUT_RETURN_CODE_NOT_PUT)."""


@dataclass(frozen=True)
class StoreDef:
    """A store of the topology; immutable and picklable. Times are milliseconds.

    `persistent` also decides by which rules windows expire, whether the rows are in memory or on disk. `options`: `on_close` (results are
    emitted when their windows close), `time_ordered` (windows and sessions of such stores come by time), `right_serde`
    (outer_join), `hold_decoded` (no code changes values in place, and each equals what its bytes decode to, so that a
    cache may keep them decoded), `headers` (the format of dsl.store.format HEADERS, KIP-1271), `read_only` (only the processor that maintains it from its topic may write to it), `plain`
    (windows of a processor, whose values have no timestamps in Java's cache).
    """

    name: str
    type: str
    """Its kind: a name of `KINDS`."""
    key_serde: Serde
    value_serde: Serde
    persistent: bool = True
    caching: bool = True
    logging: bool = True
    retention: int | None = None
    """Of windows and sessions."""
    window_size: int | None = None
    history: int | None = None
    """Of versioned stores: history retention, which is also their grace period."""
    segment_interval: int | None = None
    """Of windows and sessions: length of a segment, whose rows expire together; None: half the retention, at least a minute."""
    topic_config: Mapping[str, str] = field(default_factory=dict)
    """Settings of the changelog, which override those of the application and of Kafka Streams."""
    changelog_topic: str | None = None
    """Without the application's prefix; None without logging."""
    source_topic: str | None = None
    """The source topic, if it serves as the changelog, and nothing is logged."""
    grace: int | None = None
    """Of join_grace buffers."""
    options: Mapping[str, object] = field(default_factory=dict)
    ttl: int | None = None
    """Of key-value stores: how long a row stays after its last write. Kafka Streams has no such option."""

    @property
    def right_serde(self) -> Serde | None:
        """The serde of the right side's values; None if a store has one side."""
        serde = self.options.get("right_serde")
        return serde if isinstance(serde, Serde) else None

    @property
    def keeps_headers(self) -> bool:
        """Whether rows have headers (dsl.store.format)."""
        return bool(self.options.get("headers"))

    @property
    def restores_headers(self) -> bool:
        """Whether rows may have headers that are not empty: those of a source topic. Steps write none, as in Java (KTableSource)."""
        return self.keeps_headers and self.source_topic is not None

    @property
    def in_cache(self) -> bool:
        """Whether this store is cached when its thread has a cache: versioned, join and FK stores never are."""
        return self.caching and self.kind.cached

    @property
    def kind(self) -> StoreKind:
        """The properties of stores of its type. Raises StateError for an unknown type."""
        try:
            return KINDS[self.type]
        except KeyError:
            raise StateError(f"Store {self.name} has the unknown type {self.type!r}") from None


def own_config(store: StoreDef) -> dict[str, str]:
    """Return the settings of the changelog that the store itself gives (StoreFactory.logConfig)."""
    return dict(store.topic_config)


def changelog_config(store: StoreDef, defaults: Mapping[str, str], additional_retention: int) -> dict[str, str]:
    """Return the configuration of a store's changelog topic (InternalTopicConfig and its subclasses).

    defaults: the settings `topic.NAME`, which override those of Kafka Streams; the store's settings override both.
    additional_retention: milliseconds (windowstore.changelog.additional.retention.ms). Only a setting of the store itself
    lowers what windows and versions need: their retention or compaction lag is not taken from the defaults.
    """
    windows, versions = store.kind.windowed, "history" in store.kind.options
    policy = "compact,delete" if windows else "compact"
    own = own_config(store)
    config = {"cleanup.policy": policy, "message.timestamp.type": "CreateTime", **defaults, **own}
    if windows and "retention.ms" not in own:
        config["retention.ms"] = str(min((store.retention or 0) + additional_retention, LONG_MAX))
    if versions and "min.compaction.lag.ms" not in own:
        config["min.compaction.lag.ms"] = str(min((store.history or 0) + DAY_MS, LONG_MAX))
    return config


# Interfaces of stores: an ordered map of bytes, and typed stores with caching and changelogging on it.


class StoreSize(NamedTuple):
    """The size of a store: bytes of its files (None: in memory), and rows (None: not known)."""

    bytes: int | None = None
    rows: int | None = None


class BytesMap(ABC):
    """An ordered map of bytes; reads see writes that are not committed (memory, LevelDB)."""

    metadata: bytes | None = None
    """Bytes that a map on disk writes with its entries, in the batch of each commit; reads do not show them."""
    durable = False
    """Whether entries outlive the process."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return a value or None."""

    @abstractmethod
    def put(self, key: bytes, value: bytes | None) -> None:
        """Set a value; None deletes."""

    @abstractmethod
    def range(
        self,
        low: bytes | None,
        high: bytes | None,
        reverse: bool = False,
        include_high: bool = True,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return entries from low to high in byte order (inclusive; None: unbounded), stable under writes meanwhile.

        `limit`: return at most so many; the others are not read.
        """

    def committed(self) -> BytesMap | None:
        """Return the entries as of the last commit, for reads while nothing is written; None: they are not kept apart."""
        return None

    def uncommitted_bytes(self) -> int:
        """Return about how many bytes were written since the last commit; 0 if they are not kept apart."""
        return 0

    def stored(self, low: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return the entries from low up to stop that were committed; a map on disk leaves out what was written since."""
        return self.range(low, stop, include_high=False)

    def delete_range(self, low: bytes | None, high: bytes) -> None:
        """Delete entries from low up to high, that one not included."""
        for key in [key for key, _ in self.range(low, high, include_high=False)]:
            self.put(key, None)

    @abstractmethod
    def put_many(self, items: list[tuple[bytes, bytes | None]]) -> None:
        """Apply many writes at once, the last one of a key winning (restoring)."""

    def bytes_on_disk(self) -> int | None:
        """Return the size of its files; None if there are none. Every thread may call it."""
        return None

    def rows_estimate(self) -> int | None:
        """Return about how many entries there are; None if that is not known. Every thread may call it."""
        return None

    def begin_load(self, executor: Executor) -> None:  # noqa: B027 - only maps on disk have a use for it
        """Prepare for many writes and few reads: `executor` writes commits while the caller makes further changes.

        Each call after a commit that failed raises its error.
        """

    def end_load(self) -> None:  # noqa: B027 - see begin_load
        """End the load: return when all commits are written."""

    @abstractmethod
    def commit(self) -> None:
        """Write everything since the last commit in one write batch."""

    @abstractmethod
    def close(self) -> None:
        """Close the files; uncommitted writes are lost."""


class MapOnMap(BytesMap):
    """A map whose rows are in another map, in a form of its own; what a subclass does not define goes to that map."""

    def __init__(self, inner: BytesMap):
        self._inner = inner
        self.durable = inner.durable

    @property
    def metadata(self) -> bytes | None:
        """The metadata of the map below."""
        return self._inner.metadata

    @metadata.setter
    def metadata(self, data: bytes | None) -> None:
        self._inner.metadata = data

    def put(self, key: bytes, value: bytes | None) -> None:
        self._inner.put(key, value)

    def put_many(self, items: list[tuple[bytes, bytes | None]]) -> None:
        self._inner.put_many(items)

    def uncommitted_bytes(self) -> int:
        return self._inner.uncommitted_bytes()

    def bytes_on_disk(self) -> int | None:
        return self._inner.bytes_on_disk()

    def rows_estimate(self) -> int | None:
        """Return about how many rows there are. Every thread may call it."""
        return self._inner.rows_estimate()

    def begin_load(self, executor: Executor) -> None:
        self._inner.begin_load(executor)

    def end_load(self) -> None:
        self._inner.end_load()

    def commit(self) -> None:
        self._inner.commit()

    def close(self) -> None:
        self._inner.close()


class CurrentTopic:
    """The length of the current record's topic name, which is part of the size of a cached entry."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0
        """In characters; 0 without a record, as in punctuators."""


class StoreContext(Protocol):
    """The services of the task that its stores use."""

    @property
    def topic(self) -> CurrentTopic:
        """Return the topic of the current record."""

    def log(self, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers | None) -> None:
        """Append a record to this store's changelog, in the task's partition."""

    def dropped(self, reason: str) -> None:
        """Count a record that a store dropped (dropped-records)."""


FlushListener = Callable[[bytes, Value, Value, int, RecordContext], None]
"""(key bytes, new value or None, old value or None, timestamp in ms, context) for each entry that leaves a cache."""

WindowedFlushListener = Callable[[bytes, int, int, Value, Value, int, RecordContext], None]
"""(key bytes without the window, start, end, new, old, timestamp, context): as above, for window and session stores."""


@dataclass(frozen=True)
class Owner:
    """The owner of a store; the state of any other owner is not used."""

    application: str
    store: str
    partition: int | None
    """None: a global store."""
    topic: str | None
    """Its changelog; None if it has none."""
    topic_id: str = ""
    """The id of the topic, which changes when it is deleted and created again; empty if it is not known."""
    layout: str = ""

    def other_than(self, marked: Owner) -> str | None:
        """Return why this owner can't use the state of `found`; None if it can."""
        if marked.topic_id and self.topic_id and marked.topic == self.topic and marked.topic_id != self.topic_id:
            return f"follows a topic {self.topic} that was deleted since"
        for name, noun in _NOUNS.items():
            have, want = getattr(marked, name), getattr(self, name)
            if have != want:
                return f"is of {noun} {have}, not {want}"
        return None


_NOUNS = {
    "application": "the application",
    "store": "the store",
    "partition": "the partition",
    "topic": "the changelog",
    "layout": "the layout",
}


# Reads of stores from outside their task: pages of rows, in the order of bytes, that leave caches as they are.


@dataclass(frozen=True)
class Query:
    """A query for a page of a store. Keys are bytes, times milliseconds; a kind ignores the fields that it does not use."""

    kind: str
    key: bytes | None = None
    """Of get, prefix, windows, sessions and versions; windows and sessions of all keys if None."""
    low: bytes | None = None
    high: bytes | None = None
    """Bounds of range, both included."""
    start: int = 0
    end: int = LONG_MAX
    """Window starts, versions' times, or for sessions earliest end and latest start; both included."""
    as_of: int | None = None
    """Of a versioned get."""
    reverse: bool = False
    limit: int = 100
    after: tuple[bytes, int] | None = None
    """Place and partition of the last row of the previous page."""
    committed: bool | None = None
    """Whether only what the last commit has is read; None: as default.interactive.query.isolation.level says."""
    headers: bool = False
    """Whether rows are returned with their headers (KIP-1356)."""

    def beyond(self, rows: Iterator[StoredRow], partition: int) -> Iterator[StoredRow]:
        """Leave out the rows of earlier pages."""
        after = self.after
        if after is None:
            return rows
        if self.reverse:
            return (row for row in rows if (row.place, partition) < after)
        return (row for row in rows if (row.place, partition) > after)


class StoredRow(NamedTuple):
    """A row, decoded; `place` orders rows and stays the same between pages."""

    place: bytes
    key: Key
    value: Value
    timestamp: int | None
    headers: Headers | None = None
    """None: it has none, or they were not asked for."""


def require_headers(definition: StoreDef) -> None:
    """Raise QueryError unless queries of a store may ask for headers (TimestampedKeyWithHeadersQuery and TimestampedRangeWithHeadersQuery)."""
    if not definition.keeps_headers:
        raise QueryError(
            f"store {definition.name} keeps no headers: dsl.store.format: HEADERS is for tables and aggregations on disk, without versions"
        )
    if definition.kind.windowed:
        raise QueryError(
            f"store {definition.name} returns no headers: in Kafka Streams 4.4 no window or session of a step has any"
        )


def require_kind(definition: StoreDef, kind: str) -> None:
    """Raise QueryError unless a store answers this kind of query."""
    offered = definition.kind.queries
    if kind not in offered:
        raise QueryError(
            f"store {definition.name} is a {definition.type} store: it answers {', '.join(offered)}, not {kind}"
        )


# The rows of stores, decoded, on disk and on the log.


class ChangelogRecord(NamedTuple):
    """A record of a changelog. order: the order in which records are written, if it matters; timestamp None: the producer's time."""

    order: int
    key: bytes
    value: bytes | None
    timestamp: int | None
    headers: Headers | None = None


Rows = Iterable[tuple[bytes, bytes]]
"""The rows of a map, sorted by key."""

RowWriter: TypeAlias = Callable[[Key, Value], tuple[Json, Json]]
"""Converts a decoded key and value of a store to their JSON forms."""


class Volatile:
    """Has numbers that a restart of a live task loses, as in Java, but a batch job keeps between runs."""

    __slots__ = ()
    volatile: ClassVar[tuple[str, ...]] = ()
    """The attributes with these numbers, integers all."""

    def volatile_values(self) -> list[int]:
        """Return the numbers."""
        return [getattr(self, name) for name in self.volatile]

    def restore_volatile(self, values: Sequence[int]) -> None:
        """Continue with the numbers that `volatile_values` returned."""
        for name, value in zip(self.volatile, values, strict=True):
            setattr(self, name, value)


class Store(Volatile, ABC):
    """Any store of a task.

    Its class also describes the rows of its kind: as JSON, on the log, and in pages of queries. The methods here are of kinds whose
    rows are a timestamp and a value by the bytes of a key.
    """

    name: str
    definition: StoreDef
    persistent = False
    durable = False
    """Whether a commit writes files, and waits until the disk has them."""
    around: ClassVar[tuple[int, int] | None] = (0, 0)
    """The bytes before and after the serialized key in the keys of changelogs; None: a value contains the partition of another row."""
    converts: ClassVar[bool] = False
    """Whether values consist only of the serde's bytes, so that a migration can convert them to another serde."""

    @property
    def committed_ms(self) -> int | None:
        """Return when the offset of the store last moved, in ms since the epoch; None if it has none."""
        return None

    def restore_batch(
        self,
        keys: list[bytes],
        values: list[bytes | None],
        timestamps: list[int],
        headers: list[Headers | None],
    ) -> None:
        """Apply consecutive changelog records, given as columns, without those of a source topic that have no key."""
        for key, value, timestamp, header in zip(keys, values, timestamps, headers, strict=True):
            if key is not None:
                self.restore(key, value, timestamp, header)

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers | None) -> None:
        """Apply one changelog record, without logging or forwarding; each kind defines this or `restore_batch`."""
        self.restore_batch([key], [value], [timestamp], [headers])

    def begin_load(self, executor: Executor) -> None:  # only stores on disk have a use for it
        """Prepare for many calls of restore_batch: `executor` writes commits while the caller restores further records."""

    def end_load(self) -> None:
        """End the load; the caller commits next. Raises the error of a commit that failed."""

    @abstractmethod
    def flush(self) -> None:
        """Empty the cache into the store and the changelog, forwarding each last update to the listener."""

    @abstractmethod
    def commit(self) -> None:
        """Make everything flushed durable in one write batch."""

    def adopt(self, owner: Owner, *, unmarked: bool = False) -> str | None:
        """Use the rows on disk for this owner; return why they can't be used, or None if they can, or there are none.

        `unmarked`: accept rows without metadata, as older releases of streamkit wrote them.
        """
        return None

    def position(self, partition: int) -> int | None:
        """Return the offset up to which the store on disk has a partition of its changelog, exclusive; None: not known."""
        return None

    def note_position(self, partition: int, position: int) -> None:  # stores in memory have no metadata
        """Set the offset up to which the store has a partition of its changelog, exclusive; the next commit writes it."""

    def inputs(self) -> Mapping[str, int]:
        """Return the input offsets that were committed before the rows on disk, by partition, as far as they are known."""
        return {}

    def note_inputs(self, offsets: Mapping[str, int]) -> None:  # stores in memory have no metadata
        """Set the committed input offsets; the next commit writes them."""

    def measure(self) -> StoreSize:
        """Return the size of the store. Every thread may call it, also while the store is closed."""
        return StoreSize()

    def forget(self) -> None:  # only some stores have a cache
        """Drop all cached entries, which must be flushed: the rows of the map are about to change without the cache."""

    @abstractmethod
    def rows(self) -> Iterator[tuple[Key, Value]]:
        """Yield (key, value) decoded (WindowedKey for windows), cache included, in byte order of keys."""

    @classmethod
    def row_writer(cls, definition: StoreDef) -> RowWriter:
        """Return the function that converts a decoded key and value to their JSON forms."""
        serde, value_json = definition.key_serde, definition.value_serde.to_json
        key_json = partial(windowed_json, serde) if definition.kind.windowed else serde.to_json
        return lambda key, value: (key_json(key), None if value is None else value_json(value))

    @classmethod
    def changelog_sides(cls, definition: StoreDef) -> tuple[Side, Side]:
        """Return the forms of the changelog's keys and values."""
        return side_of(definition.key_serde), side_of(definition.value_serde)

    @classmethod
    def changelog_records(cls, rows: Rows) -> Iterator[ChangelogRecord]:
        """Yield the changelog records whose restore gives these rows of the map."""
        for key, data in rows:
            yield ChangelogRecord(0, key, data[8:], unpack_long(data)[0])

    def uncommitted_bytes(self) -> int:
        """Return about how many bytes were written since the last commit, without a cache; 0 if they are not kept apart."""
        return 0

    def committed(self) -> Store:
        """Return the store as of its last commit, for reads while nothing is written. Raises QueryError if it is not kept apart."""
        raise QueryError(
            f"store {self.definition.name} is a {self.definition.type} store, which has no state of its last commit"
        )

    def page(self, query: Query, partition: int) -> list[StoredRow]:
        """Return a page of the store, which holds `partition`; the caller prevents writes in the meantime.

        Raises QueryError for a kind of query that the store's kind does not answer.
        """
        require_kind(self.definition, query.kind)
        return list(islice(query.beyond(self._answers(query), partition), query.limit))

    def _answers(self, query: Query) -> Iterator[StoredRow]:
        """Return the rows of a query, or more, in its order."""
        rows = [StoredRow(repr(key).encode(), key, value, None) for key, value in self.rows()]
        rows.sort(key=lambda row: row.place, reverse=query.reverse)
        return iter(rows)

    @abstractmethod
    def close(self) -> None:
        """Close the files and drop all data in memory."""


# The kinds of stores: one entry in `KINDS` has the properties of a kind that the other packages use.


@dataclass(frozen=True)
class StoreKind:
    """A kind of store, as `StoreDef.type` names it. Classes are named as `module:Class` and imported on first use."""

    name: str
    implementation: str
    """Constructor: (definition, map, context), and a cache budget if `cached`."""
    rows: str
    """A noun for its rows, for messages."""
    cached: bool = False
    """Whether a cache may keep its updates."""
    compared: bool = True
    """Whether a step compares a record with rows that the same record may have written when it was processed before."""
    windowed: bool = False
    """Whether its keys carry a window, and its changelog is a WindowedChangelogTopicConfig."""
    in_memory_only: bool = False
    """Whether its rows are always in memory; the constructor then takes no map."""
    queries: tuple[str, ...] = ("all",)
    """The kinds of interactive queries that it answers (`Query.kind`)."""
    view: str | None = None
    """The class by which processors use it; None: they can't."""
    title: str = "an internal store"
    """A noun for the store, for the error of a processor that names a store without a view."""
    in_file: bool = False
    """Whether the section `stores` may define it."""
    options: tuple[str, ...] = ()
    """The options of the section `stores` that belong to this kind."""
    needed: tuple[str, ...] = ()
    """The options that it requires, as in Java's Stores."""
    lost: str = ""
    """What is lost when the store starts empty and only its step can fill it."""

    def implementation_class(self) -> type[Store]:
        """Return the class of its stores."""
        class_: type[Store] = imported(self.implementation)
        return class_


def imported(reference: str) -> Any:
    """Return a class by its name, which only the caller can give a type."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


_BY_KEY = ("get", "range", "prefix", "all")
_ALL = (
    StoreKind(
        "key_value",
        "streamkit.state.stores.key_value:KeyValueStore",
        "rows by key",
        cached=True,
        queries=_BY_KEY,
        view="streamkit.state.views:KeyValueView",
        in_file=True,
        options=("ttl",),
    ),
    StoreKind(
        "timestamped_key_value",
        "streamkit.state.stores.key_value:KeyValueStore",
        "rows by key",
        cached=True,
        queries=_BY_KEY,
        view="streamkit.state.views:KeyValueView",
    ),
    StoreKind(
        "window",
        "streamkit.state.stores.window_store:WindowStore",
        "windows",
        cached=True,
        windowed=True,
        queries=("windows", "all"),
        view="streamkit.state.views:WindowView",
        in_file=True,
        options=("retention", "window_size", "segment_interval"),
        needed=("retention", "window_size"),
    ),
    StoreKind(
        "session",
        "streamkit.state.stores.session_store:SessionStore",
        "sessions",
        cached=True,
        windowed=True,
        queries=("sessions", "all"),
        view="streamkit.state.views:SessionView",
        in_file=True,
        options=("retention", "segment_interval"),
        needed=("retention",),
    ),
    StoreKind(
        "versioned",
        "streamkit.state.stores.versioned:VersionedStore",
        "versions by key",
        queries=("get", "versions", "all"),
        view="streamkit.state.views:VersionedView",
        in_file=True,
        options=("segment_interval", "history"),
        needed=("history",),
    ),
    StoreKind(
        "join_window",
        "streamkit.state.stores.stream_join_store:JoinWindowStore",
        "the records of one side of a join",
        # A record looks for partners in the rows of the other side.
        compared=False,
        windowed=True,
        title="a join's window store",
        lost="records that wait for a partner are forgotten",
    ),
    StoreKind(
        "outer_join",
        "streamkit.state.stores.stream_join_store:OuterJoinStore",
        "the unmatched records of a join",
        lost="records without a partner are forgotten",
    ),
    StoreKind(
        "suppress",
        "streamkit.state.stores.suppress_buffer:SuppressBuffer",
        "updates that are held back",
        in_memory_only=True,
        lost="updates that it holds back never come out",
    ),
    StoreKind(
        "join_grace",
        "streamkit.state.stores.suppress_buffer:JoinGraceBuffer",
        "records that wait for a table",
        lost="records that wait for the table are lost",
    ),
    StoreKind(
        "subscription",
        "streamkit.state.stores.key_value:SubscriptionStore",
        "subscriptions of a foreign-key join",
        lost="rows of the left table are not joined with changes of the right one until they change themselves",
    ),
)

KINDS = {kind.name: kind for kind in _ALL}
"""By name, in the order in which messages list them."""

IN_FILE = tuple(kind.name for kind in _ALL if kind.in_file)
"""The values of `type` in the section `stores`."""
