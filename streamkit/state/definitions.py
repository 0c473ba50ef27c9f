"""What a store is, as a Plan describes it, and how it comes to life in a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from streamkit.errors import StateError
from streamkit.serdes.base import Serde
from streamkit.state.base import BytesMap, Store, StoreContext

if TYPE_CHECKING:
    from streamkit.state.cache import CacheBudget

StoreType = Literal[
    "key_value",
    "timestamped_key_value",
    "window",
    "session",
    "versioned",
    "join_window",
    "outer_join",
    "suppress",
    "join_grace",
    "subscription",
]

DAY_MS = 86_400_000
LONG_MAX = 2**63 - 1

VALID_TO_UNDEFINED = -1
"""A versioned store's `put` returns this when the version is the key's latest (PUT_RETURN_CODE_VALID_TO_UNDEFINED)."""
NOT_PUT = -(2**63)
"""A versioned store's `put` returns this when the version is older than the history (PUT_RETURN_CODE_NOT_PUT)."""


@dataclass(frozen=True)
class StoreDef:
    """A store of the topology; immutable and picklable. Times are milliseconds.

    `persistent` also decides by which rules windows expire, whatever holds the rows. `options`: `on_close` (results are
    emitted when their windows close), `time_ordered` (windows and sessions of such stores come by time), `right_serde`
    (outer_join), `hold_decoded` (no code changes values in place, and each is what its bytes would decode to, so that a
    cache may keep them decoded), `read_only` (processors may not write to it, but for the one that keeps it from its topic), `plain`
    (windows of a processor, whose values have no timestamps in Java's cache).
    """

    name: str
    type: StoreType
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
    """Of windows and sessions: how long the time is whose rows expire together; None: half the retention, at least a minute."""
    topic_config: Mapping[str, str] = field(default_factory=dict)
    """Settings of the changelog that replace those of the application and of Kafka Streams."""
    changelog_topic: str | None = None
    """Without the application's prefix; None without logging."""
    source_topic: str | None = None
    """Where the source topic is the changelog, and nothing is logged."""
    grace: int | None = None
    """Of join_grace buffers."""
    options: Mapping[str, Any] = field(default_factory=dict)
    ttl: int | None = None
    """Of key-value stores: how long a row stays that nothing writes to. Kafka Streams has no such thing."""

    @property
    def in_cache(self) -> bool:
        """Whether this store is cached when its thread has a cache: versioned, join and FK stores never are."""
        return self.caching and self.type in ("key_value", "timestamped_key_value", "window", "session")


WINDOWED = ("window", "session", "join_window")
"""Types of stores whose changelogs are WindowedChangelogTopicConfig in Java."""


def own_config(store: StoreDef) -> dict[str, str]:
    """Return what a store itself sets of its changelog (StoreFactory.logConfig)."""
    return dict(store.topic_config)


def changelog_config(
    store: StoreDef, defaults: Mapping[str, str] = MappingProxyType({}), additional_retention: int = DAY_MS
) -> dict[str, str]:
    """Return the configuration of a store's changelog topic (InternalTopicConfig and its subclasses).

    defaults: the settings `topic.NAME`, which replace those of Kafka Streams and give way to those of the store.
    additional_retention: milliseconds (windowstore.changelog.additional.retention.ms). Only a setting of the store itself
    lowers what windows and versions need: their retention or compaction lag is not taken from the defaults.
    """
    windows, versions = store.type in WINDOWED, store.type == "versioned"
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
    `budget` None: no cache. `rows`: the map to use instead. `engine`: of what lies on disk (state.engine).
    Raises StateError, StateLockedError.
    """
    # Imported here: the stores need StoreDef.
    from streamkit.state.directory import store_path
    from streamkit.state.maps import default_engine, open_map
    from streamkit.state.suppress import SuppressBuffer

    if store.type == "suppress":
        return SuppressBuffer(store, context)
    if rows is None and store.persistent and directory is not None:
        engine = engine or default_engine()
        rows = open_map(engine, store_path(Path(directory), engine, store.name))
    rows = rows or open_map("memory")
    if store.ttl is not None:
        from streamkit.state.ages import AgedMap
        from streamkit.state.expiring import ExpiringStore

        return ExpiringStore(store, AgedMap(rows, store.ttl), context, budget if store.in_cache else None)
    cached, plain = _classes()
    if store.type in cached:
        return cached[store.type](store, rows, context, budget if store.in_cache else None)
    if store.type in plain:
        return plain[store.type](store, rows, context)
    raise StateError(f"Store {store.name} has the unknown type {store.type!r}")


def _classes() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the store classes by type: those that may be cached, and the others."""
    from streamkit.state.grace import JoinGraceBuffer
    from streamkit.state.join import JoinWindowStore, OuterJoinStore
    from streamkit.state.key_value import KeyValueStore
    from streamkit.state.session import SessionStore
    from streamkit.state.subscription import SubscriptionStore
    from streamkit.state.versioned import VersionedStore
    from streamkit.state.window import WindowStore

    cached = {
        "key_value": KeyValueStore,
        "timestamped_key_value": KeyValueStore,
        "window": WindowStore,
        "session": SessionStore,
    }
    plain = {
        "join_window": JoinWindowStore,
        "outer_join": OuterJoinStore,
        "versioned": VersionedStore,
        "join_grace": JoinGraceBuffer,
        "subscription": SubscriptionStore,
    }
    return cached, plain
