"""Definitions of the stores that steps create (Materialized, WindowStoreMaterializer, SessionStoreMaterializer)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from streamkit.errors import Position
from streamkit.graph.physical_topology import ProcessorGraphNode
from streamkit.operators.codegen.code_writer import Processor
from streamkit.operators.core.operator import (
    AnySerde,
    BuildError,
    Context,
    DerivedWork,
    Table,
    required_serde,
    serde_or_none,
)
from streamkit.operators.core.parsed_values import (
    SessionWindows,
    Step,
    StoreOptions,
    TimeWindows,
    Windows,
)
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import StoreDef


def materialize(
    step: Step,
    ctx: Context,
    key_serde: AnySerde,
    value_serde: AnySerde,
    generated: str,
    windows: Windows | None = None,
    on_close: bool = False,
) -> StoreDef:
    """Return the definition of a step's store. Raises BuildError for options that are not allowed here.

    Without a name, or without `store`, the name is generated from the prefix `generated` and uses up an index.
    """
    options: StoreOptions | None = step.get("store")
    if options is not None:
        _check(step, options, windows, on_close)
    name = options.name if options is not None else None
    if name is None:
        name = ctx.graph.names.store(generated)
    serdes = (
        required_serde(key_serde, "key", step, f"store {name}"),
        required_serde(value_serde, "value", step, f"store {name}"),
    )
    typed = with_type(options, ctx.store_defaults.in_memory)
    return with_format(define_store(name, serdes, typed, windows, on_close), ctx)


def with_type(options: StoreOptions | None, in_memory: bool) -> StoreOptions:
    """Return options with `persistent` set, by default to the opposite of `in_memory`.

    In Java, versions and a segment interval need a store supplier, and no such supplier is in memory.
    """
    chosen = options or StoreOptions()
    if chosen.persistent is not None or chosen.versioned is not None or chosen.segment_interval is not None:
        return chosen
    return dataclasses.replace(chosen, persistent=not in_memory)


def materialize_if_named(
    step: Step, ctx: Context, serdes: tuple[AnySerde, AnySerde], generated: str | None
) -> StoreDef | None:
    """Return the definition of a store that Java creates only if it has a name (KTableImpl.doFilter, doMapValues).

    Return None for an absent `store` or one without a name, which uses up an index if `generated` is given.
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
    needed = (required_serde(serdes[0], "key", step, what), required_serde(serdes[1], "value", step, what))
    typed = with_type(options, ctx.store_defaults.supplied_in_memory)
    return with_format(define_store(options.name, needed, typed), ctx)


def output_versioned(step: Step, store: StoreDef | None) -> bool | None:
    """Return whether a step's rows are versioned; None: as in its upstream.

    A `store` without a name makes them unversioned, although no store is created (KTableImpl.maybeSetOutputVersioned).
    """
    if step.get("store") is None:
        return None
    return store is not None and store.type == "versioned"


def derived_table(
    step: Step,
    ctx: Context,
    name: str,
    work: DerivedWork,
    serde: Serde | None,
    processor: Callable[[ProcessorGraphNode, str | None], Processor],
    stores: Iterable[StoreDef | str] = (),
) -> Table:
    """Return a table that is computed from another one, and add its node.

    serde: the serde of its values; None: that of its parent. processor: makes the node's work, given the node and the
    name of the table's own store, once all steps are built.
    """
    parent, store = work.parent, work.store
    node: ProcessorGraphNode = ProcessorGraphNode(
        name,
        lambda: processor(node, None if store is None else store.name),
        stores=(*(() if store is None else (store,)), *stores),
    )
    value_serde = parent.value_serde if serde is None else serde
    node.serdes = (serde_or_none(parent.key_serde), serde_or_none(value_serde))
    node.output_versioned = output_versioned(step, store)
    ctx.graph.add(parent.node, node)
    return Table(name, node, parent.sources, parent.key_serde, value_serde, work)


def is_named(options: StoreOptions | None) -> bool:
    """Return whether a table always keeps its rows, even if no step looks them up."""
    return options is not None and options.name is not None


def define_store(
    name: str,
    serdes: tuple[Serde, Serde],
    options: StoreOptions | None,
    windows: Windows | None = None,
    on_close: bool = False,
) -> StoreDef:
    """Return the definition of a store of the DSL: caching and logging are on unless `options` turns them off."""
    options = options or StoreOptions(name)
    persistent = options.persistent is not False
    caching = options.caching is not False
    logging = options.logging is not False
    common = StoreDef(
        name=name,
        type="timestamped_key_value",
        key_serde=serdes[0],
        value_serde=serdes[1],
        persistent=persistent,
        caching=caching,
        logging=logging,
        changelog_topic=f"{name}-changelog" if logging else None,
        topic_config=dict(options.config),
    )
    if options.versioned is not None:
        return dataclasses.replace(common, type="versioned", caching=False, history=options.versioned)
    if windows is None:
        return dataclasses.replace(common, ttl=options.ttl)
    if on_close and not isinstance(windows, TimeWindows):
        # Java has a cache for time windows only (WindowStoreMaterializer, SessionStoreMaterializer).
        caching = False
    return dataclasses.replace(
        common,
        type="session" if isinstance(windows, SessionWindows) else "window",
        caching=caching,
        retention=options.retention if options.retention is not None else windows.least_retention,
        segment_interval=options.segment_interval,
        window_size=windows.length,
        # A custom supplier creates the plain store, which is ordered by key (RocksDbWindowBytesStoreSupplier).
        options={"on_close": True, "time_ordered": options.segment_interval is None} if on_close else {},
    )


def with_format(store: StoreDef, ctx: Context) -> StoreDef:
    """Return the store in the format of dsl.store.format.

    Only Java's RocksDB suppliers support it. Stores in memory, versioned stores, and stores whose segment interval requires a custom
    supplier do not change (BuiltInDslStoreSuppliers, KeyValueStoreMaterializer).
    """
    if not ctx.store_defaults.headers or not store.persistent or store.segment_interval is not None:
        return store
    return (
        store if store.type == "versioned" else dataclasses.replace(store, options={**store.options, "headers": True})
    )


def check_plain(options: StoreOptions | None, position: Position) -> None:
    """Raise BuildError if a plain key-value store has options of windowed or versioned stores."""
    if options is None:
        return
    at = options.position or position
    if options.retention is not None:
        raise BuildError(at, f"{_shown(options)}: `retention` is for the stores of windows and sessions")
    if options.versioned is None:
        if options.segment_interval is not None:
            raise BuildError(
                at, f"{_shown(options)}: `segment_interval` is for the stores of windows and sessions, and versions"
            )
        return
    if options.persistent is False:
        raise BuildError(at, f"{_shown(options)}: a versioned store is always persistent")
    if options.name is None:
        raise BuildError(at, f"{_shown(options)}: a versioned store needs a `name`")


def refuse_ttl(options: StoreOptions | None, why: str) -> None:
    """Raise BuildError if a store has a `ttl`; `why` completes the message."""
    if options is not None and options.ttl is not None:
        raise BuildError(options.ttl_position or options.position, f"{_shown(options)}: `ttl` {why}")


def refuse_nameless_ttl(options: StoreOptions | None) -> None:
    """Raise BuildError for a `ttl` without a name if only a named store is certain to keep rows."""
    if options is not None and options.name is None:
        refuse_ttl(options, "needs a `name` here: without one this table may keep no rows")


def _check(step: Step, options: StoreOptions, windows: Windows | None, on_close: bool) -> None:
    position = options.position or step.at("store")
    if windows is None:
        check_plain(options, position)
        return
    refuse_ttl(options, "is only for stores of rows by key; windows and sessions have `retention`")
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


def _check_segments(options: StoreOptions, windows: Windows, on_close: bool, position: Position) -> None:
    """Raise BuildError for a segment interval if Java has no supplier that takes one."""
    if options.name is None:
        raise BuildError(position, f"{_shown(options)}: a store with a `segment_interval` needs a `name`")
    if options.persistent is False:
        raise BuildError(position, f"{_shown(options)}: `segment_interval` is for persistent stores")
    if on_close and isinstance(windows, SessionWindows):
        raise BuildError(position, f"{_shown(options)}: sessions with `emit: on_close` take no `segment_interval`")


def _shown(options: StoreOptions) -> str:
    return "store" if options.name is None else f"store {options.name}"
