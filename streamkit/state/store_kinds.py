"""The kinds of stores: one entry in `KINDS` has the properties of a kind that the other packages use."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamkit.state.store_interface import Store
    from streamkit.state.views import Now, ProcessorStore


@dataclass(frozen=True)
class StoreKind:
    """A kind of store, as `StoreDef.type` names it. Classes are named as `module:Class` and imported on first use."""

    name: str
    implementation: str
    """Constructor: (definition, map, context), and a cache budget where `cached`."""
    rows: str
    """A noun for its rows, for messages."""
    cached: bool = False
    """Whether a cache may keep its updates."""
    windowed: bool = False
    """Whether its keys carry a window, and its changelog is a WindowedChangelogTopicConfig."""
    in_memory_only: bool = False
    """Whether its rows are always in memory; the constructor then takes no map."""
    queries: tuple[str, ...] = ("all",)
    """The kinds of interactive queries that it answers (state/reading.py)."""
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

    def implementation_class(self) -> Callable[..., Store]:
        """Return the class of its stores."""
        found: Callable[..., Store] = _imported(self.implementation)
        return found

    def view_class(self) -> Callable[[Store, Now], ProcessorStore] | None:
        """Return the class by which processors use its stores, None where they can't."""
        found: Callable[[Store, Now], ProcessorStore] | None = None if self.view is None else _imported(self.view)
        return found


def _imported(reference: str) -> Any:
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
        "streamkit.state.stores.grace_buffer:JoinGraceBuffer",
        "records that wait for a table",
        lost="records that wait for the table are lost",
    ),
    StoreKind(
        "subscription",
        "streamkit.state.stores.subscription:SubscriptionStore",
        "subscriptions of a foreign-key join",
        lost="rows of the left table are not joined with changes of the right one until they change themselves",
    ),
)

KINDS = {kind.name: kind for kind in _ALL}
"""By name, in the order in which messages list them."""

IN_FILE = tuple(kind.name for kind in _ALL if kind.in_file)
"""The values of `type` in the section `stores`."""
