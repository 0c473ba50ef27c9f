"""Definitions of the stores that steps make (Materialized, WindowStoreMaterializer, SessionStoreMaterializer)."""

from __future__ import annotations

import dataclasses
from typing import Any

from streamkit.operators.base import BuildError
from streamkit.operators.context import Context
from streamkit.operators.fields import Step, StoreOptions
from streamkit.operators.serdes import AnySerde, need
from streamkit.operators.windows import SessionWindows, SlidingWindows, TimeWindows, Windows
from streamkit.state.definitions import StoreDef


def materialize(
    step: Step,
    ctx: Context,
    key_serde: AnySerde,
    value_serde: AnySerde,
    generated: str | None = None,
    windows: Windows | None = None,
    on_close: bool = False,
) -> Any:
    """Return the definition of a step's store.

    Without a `store` option: None, or a store with a name of the prefix `generated`, which uses up an index; so does a
    store without a name. Raises BuildError for options that do not fit.
    """
    options: StoreOptions | None = step.get("store")
    if options is None and generated is None:
        return None
    if options is not None:
        _check(step, options, windows, on_close)
    named = options is not None and options.name is not None
    name = options.name if named and options is not None else ctx.graph.names.store(generated or "")
    assert name is not None
    serdes = (need(key_serde, "key", step, f"store {name}"), need(value_serde, "value", step, f"store {name}"))
    return define(name, serdes, typed(options, ctx.store_defaults.in_memory), windows, on_close)


def typed(options: StoreOptions | None, in_memory: bool) -> StoreOptions:
    """Return options that say whether the store is persistent; `in_memory`: what holds where they do not.

    Versions and a segment interval of one's own take a supplier in Java, and none of these is in memory.
    """
    found = options or StoreOptions()
    if found.persistent is not None or found.versioned is not None or found.segment_interval is not None:
        return found
    return dataclasses.replace(found, persistent=not in_memory)


def materialize_if_named(
    step: Step, ctx: Context, serdes: tuple[AnySerde, AnySerde], generated: str | None
) -> StoreDef | None:
    """Return the definition of a store that Java makes only where it has a name (KTableImpl.doFilter, doMapValues).

    One without a name uses up an index of the prefix `generated`, where one is given, and gives None, as no `store` does.
    """
    options: StoreOptions | None = step.get("store")
    if options is None:
        return None
    _check(step, options, None, False)
    if options.name is None:
        refuse_nameless_ttl(options)
        if generated is not None:
            ctx.graph.names.store(generated)
        return None
    what = f"store {options.name}"
    needed = (need(serdes[0], "key", step, what), need(serdes[1], "value", step, what))
    return define(options.name, needed, typed(options, ctx.store_defaults.supplied_in_memory))


def output_versioned(step: Step, store: StoreDef | None) -> bool | None:
    """Tell whether a step's rows are versioned; None: as much as those that it stands on are.

    A store without a name says that they are not, although there is none (KTableImpl.maybeSetOutputVersioned).
    """
    if step.get("store") is None:
        return None
    return store is not None and store.type == "versioned"


def is_named(options: StoreOptions | None) -> bool:
    """Tell whether a table keeps its rows in any case, and not only once something looks them up."""
    return options is not None and options.name is not None


def define(
    name: str,
    serdes: tuple[Any, Any],
    options: StoreOptions | None = None,
    windows: Windows | None = None,
    on_close: bool = False,
) -> StoreDef:
    """Return the definition of a store of the DSL: caching and logging are on unless `options` says otherwise."""
    options = options or StoreOptions(name)
    persistent = options.persistent is not False
    caching = options.caching is not False
    logging = options.logging is not False
    common = {
        "name": name,
        "key_serde": serdes[0],
        "value_serde": serdes[1],
        "persistent": persistent,
        "logging": logging,
        "changelog_topic": f"{name}-changelog" if logging else None,
        "topic_config": dict(options.config),
    }
    if options.versioned is not None:
        return StoreDef(**common, type="versioned", caching=False, history=options.versioned)
    if windows is None:
        return StoreDef(**common, type="timestamped_key_value", caching=caching, ttl=options.ttl)
    if on_close and not isinstance(windows, TimeWindows):
        # Java keeps the cache for time windows only (WindowStoreMaterializer, SessionStoreMaterializer).
        caching = False
    return StoreDef(
        **common,
        type="session" if isinstance(windows, SessionWindows) else "window",
        caching=caching,
        retention=options.retention if options.retention is not None else windows.least_retention,
        segment_interval=options.segment_interval,
        window_size=_window_size(windows),
        # A supplier of one's own gives the plain store, which is ordered by key (RocksDbWindowBytesStoreSupplier).
        options={"on_close": True, "time_ordered": options.segment_interval is None} if on_close else {},
    )


def _window_size(windows: Windows) -> int | None:
    if isinstance(windows, TimeWindows):
        return windows.size
    return windows.difference if isinstance(windows, SlidingWindows) else None


def check_plain(options: StoreOptions | None, position: Any) -> None:
    """Raise BuildError for options that need windows or versions, at a store of rows by their keys."""
    if options is None:
        return
    place = options.position or position
    if options.retention is not None:
        raise BuildError(place, f"{_shown(options)}: `retention` is for the stores of windows and sessions")
    if options.versioned is None:
        if options.segment_interval is not None:
            raise BuildError(
                place, f"{_shown(options)}: `segment_interval` is for the stores of windows and sessions, and versions"
            )
        return
    if options.persistent is False:
        raise BuildError(place, f"{_shown(options)}: a versioned store is always persistent")
    if options.name is None:
        raise BuildError(place, f"{_shown(options)}: a versioned store needs a `name`")


def refuse_ttl(options: StoreOptions | None, why: str) -> None:
    """Raise BuildError where a store has a `ttl` that it can't have."""
    if options is not None and options.ttl is not None:
        raise BuildError(options.ttl_position or options.position, f"{_shown(options)}: `ttl` {why}")


def refuse_nameless_ttl(options: StoreOptions | None) -> None:
    """Raise BuildError for a `ttl` where rows are kept only under a name."""
    if options is not None and options.name is None:
        refuse_ttl(options, "needs a `name` here: without one this table may keep no rows")


def _check(step: Step, options: StoreOptions, windows: Windows | None, on_close: bool) -> None:
    position = options.position or step.at("store")
    if windows is None:
        check_plain(options, position)
        return
    refuse_ttl(options, "is for rows by their keys; windows and sessions have `retention`")
    if options.versioned is not None:
        raise BuildError(position, f"{_shown(options)}: `versioned` is for tables; windows have a store of their own")
    if options.segment_interval is not None:
        _check_segments(options, windows, on_close, position)
    if options.retention is not None and options.retention < windows.least_retention:
        least = (
            "the session inactivity gap plus the grace period"
            if isinstance(windows, SessionWindows)
            else "its window size plus the grace period"
        )
        name = "" if options.name is None else f" {options.name}"
        raise BuildError(
            position,
            f"The retention period of the window store{name} must be no smaller than {least}. "
            f"Got retention=[{options.retention}], need at least [{windows.least_retention}]",
        )


def _check_segments(options: StoreOptions, windows: Windows, on_close: bool, position: Any) -> None:
    """Refuse an interval of segments where Java has no supplier that takes one."""
    if options.name is None:
        raise BuildError(position, f"{_shown(options)}: a store with a `segment_interval` needs a `name`")
    if options.persistent is False:
        raise BuildError(position, f"{_shown(options)}: `segment_interval` is for persistent stores")
    if on_close and isinstance(windows, SessionWindows):
        raise BuildError(position, f"{_shown(options)}: sessions with `emit: on_close` take no `segment_interval`")


def _shown(options: StoreOptions) -> str:
    return "store" if options.name is None else f"store {options.name}"
