"""The creation of a store in a task: its map of bytes, its cache, and the class of its kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from streamkit.state.definitions import BytesMap, Store, StoreContext, StoreDef
from streamkit.state.directory import store_path
from streamkit.state.engines.ages import AgedMap
from streamkit.state.engines.headed import HeadedMap
from streamkit.state.engines.open_maps import DEFAULT_ENGINE, open_map
from streamkit.state.stores.cache import CacheBudget
from streamkit.state.stores.key_value import ExpiringStore


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
    kind = store.kind
    construct: Callable[..., Store] = kind.implementation_class()
    if kind.in_memory_only:
        return construct(store, context)
    if rows is None and store.persistent and directory is not None:
        engine = engine or DEFAULT_ENGINE
        rows = open_map(engine, store_path(Path(directory), engine, store.name))
    rows = open_map("memory") if rows is None else rows
    cache = (budget if store.in_cache else None,) if kind.cached else ()
    if store.restores_headers:
        rows = HeadedMap(rows)
    if store.ttl is not None:
        return ExpiringStore(store, AgedMap(rows, store.ttl), context, *cache)
    return construct(store, rows, context, *cache)
