"""Definitions of stores, as a Plan has them, and the creation of a store in a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from streamkit.errors import StateError
from streamkit.serdes.serde import Serde
from streamkit.state.store_interface import BytesMap, Store, StoreContext
from streamkit.state.store_kinds import KINDS, StoreKind

if TYPE_CHECKING:
    from streamkit.state.stores.cache import CacheBudget

DAY_MS = 86_400_000
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
    cache may keep them decoded), `read_only` (only the processor that maintains it from its topic may write to it), `plain`
    (windows of a processor, whose values have no timestamps in Java's cache).
    """

    name: str
    type: str
    """Its kind: a name of `store_kinds.KINDS`."""
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
    """Settings of the changelog that replace those of the application and of Kafka Streams."""
    changelog_topic: str | None = None
    """Without the application's prefix; None without logging."""
    source_topic: str | None = None
    """The source topic, where it serves as the changelog, and nothing is logged."""
    grace: int | None = None
    """Of join_grace buffers."""
    options: Mapping[str, object] = field(default_factory=dict)
    ttl: int | None = None
    """Of key-value stores: how long a row stays after its last write. Kafka Streams has no such option."""

    @property
    def right_serde(self) -> Serde | None:
        """The serde of the right side's values; None where a store has one side."""
        serde = self.options.get("right_serde")
        return serde if isinstance(serde, Serde) else None

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


def changelog_config(
    store: StoreDef, defaults: Mapping[str, str] = MappingProxyType({}), additional_retention: int = DAY_MS
) -> dict[str, str]:
    """Return the configuration of a store's changelog topic (InternalTopicConfig and its subclasses).

    defaults: the settings `topic.NAME`, which replace those of Kafka Streams; those of the store replace them in turn.
    additional_retention: milliseconds (windowstore.changelog.additional.retention.ms). Only a setting of the store itself
    lowers what windows and versions need: their retention or compaction lag is not taken from the defaults.
    """
    windows, versions = store.kind.windowed, store.type == "versioned"
    policy = "compact,delete" if windows else "compact"
    own = own_config(store)
    config = {"cleanup.policy": policy, "message.timestamp.type": "CreateTime", **defaults, **own}
    if windows and "retention.ms" not in own:
        config["retention.ms"] = str(min((store.retention or 0) + additional_retention, LONG_MAX))
    if versions and "min.compaction.lag.ms" not in own:
        config["min.compaction.lag.ms"] = str(min((store.history or 0) + DAY_MS, LONG_MAX))
    return config


def create(
    store: StoreDef,
    directory: str | Path | None,
    context: StoreContext,
    budget: CacheBudget | None = None,
    rows: BytesMap | None = None,
    engine: str | None = None,
) -> Store:
    """Return a store that is ready for use: below `directory` (a task's) if it is persistent, else in memory.

    Without a directory a persistent store lives in memory too, with the semantics of a persistent one.
    `budget` None: no cache. `rows`: the map to use instead. `engine`: the engine of stores on disk (state.engine).
    Raises StateError, StateLockedError.
    """
    from streamkit.state.engines.open_maps import default_engine, open_map
    from streamkit.state.files.directory import store_path

    kind = store.kind
    if kind.in_memory_only:
        return kind.implementation_class()(store, context)
    if rows is None and store.persistent and directory is not None:
        engine = engine or default_engine()
        rows = open_map(engine, store_path(Path(directory), engine, store.name))
    rows = rows or open_map("memory")
    cache = (budget if store.in_cache else None,) if kind.cached else ()
    if store.ttl is not None:
        from streamkit.state.engines.ages import AgedMap
        from streamkit.state.stores.expiring import ExpiringStore

        return ExpiringStore(store, AgedMap(rows, store.ttl), context, *cache)
    return kind.implementation_class()(store, rows, context, *cache)
