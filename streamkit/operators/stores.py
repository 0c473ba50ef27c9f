"""Definitions of the stores that steps make (Materialized, WindowStoreMaterializer and its kin)."""

from __future__ import annotations

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

    Without a `store` option: None, or a store with a name of the prefix `generated`, which uses up an index.
    Raises BuildError for options that do not fit.
    """
    options: StoreOptions | None = step.get("store")
    if options is None and generated is None:
        return None
    name = options.name if options is not None else ctx.graph.names.store(generated or "")
    if options is not None:
        _check(step, options, windows)
    serdes = (need(key_serde, "key", step, f"store {name}"), need(value_serde, "value", step, f"store {name}"))
    return define(name, serdes, options, windows, on_close)


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
    }
    if options.versioned is not None:
        return StoreDef(**common, type="versioned", caching=False, history=options.versioned)
    if windows is None:
        return StoreDef(**common, type="timestamped_key_value", caching=caching)
    if on_close and not isinstance(windows, TimeWindows):
        # Java keeps the cache for time windows only (WindowStoreMaterializer, SessionStoreMaterializer).
        caching = False
    return StoreDef(
        **common,
        type="session" if isinstance(windows, SessionWindows) else "window",
        caching=caching,
        retention=options.retention if options.retention is not None else windows.least_retention,
        window_size=_window_size(windows),
        options={"time_ordered": True} if on_close else {},
    )


def _window_size(windows: Windows) -> int | None:
    if isinstance(windows, TimeWindows):
        return windows.size
    return windows.difference if isinstance(windows, SlidingWindows) else None


def _check(step: Step, options: StoreOptions, windows: Windows | None) -> None:
    position = options.position or step.at("store")
    if options.versioned is not None:
        if windows is not None:
            raise BuildError(
                position, f"store {options.name}: `versioned` is for tables; windows have a store of their own"
            )
        if options.persistent is False:
            raise BuildError(position, f"store {options.name}: a versioned store is always persistent")
    if options.retention is not None and windows is None:
        raise BuildError(position, f"store {options.name}: `retention` is for the stores of windows and sessions")
    if windows is not None and options.retention is not None and options.retention < windows.least_retention:
        least = (
            "the session inactivity gap plus the grace period"
            if isinstance(windows, SessionWindows)
            else "its window size plus the grace period"
        )
        raise BuildError(
            position,
            f"The retention period of the window store {options.name} must be no smaller than {least}. "
            f"Got retention=[{options.retention}], need at least [{windows.least_retention}]",
        )
