"""A cached store that keeps what it forwards."""

from __future__ import annotations

from typing import Any

from streamkit.state.definitions import StoreDef
from streamkit.state.open_store import create
from streamkit.state.stores.cache import ENTRY_BYTES, CacheBudget
from tests.state.support import Recorder, definition

CONTEXT_IN_HAND = (None, "topic", 0, 7)


class Listening:
    """A cached store in memory with everything that it forwards."""

    def __init__(self, store: StoreDef, budget: CacheBudget | None = None, send_old: bool = True):
        self.context = Recorder()
        self.budget = budget or CacheBudget(1 << 20)
        self.store: Any = create(store, None, self.context, self.budget)
        self.forwarded: list[tuple] = []
        self.store.set_listener(lambda *update: self.forwarded.append(update), send_old)


def kv(**options: Any) -> Listening:
    return Listening(definition("timestamped_key_value"), **options)


def entry_size(key: bytes) -> int:
    return ENTRY_BYTES + len(key) + 16
