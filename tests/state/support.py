"""What tests of stores share: small serdes, a context that records, and every kind of store."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import SerdeError
from streamkit.record import Headers
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import CurrentTopic, StoreDef
from streamkit.state.open_store import create
from streamkit.state.stores.cache import CacheBudget
from tests.requirements import EVERY_ENGINE


class Long(Serde):
    """Eight bytes, big-endian."""

    spec = "long"
    immutable = True

    def encode(self, value: Any) -> bytes:
        try:
            return struct.pack(">q", value)
        except struct.error as error:
            raise SerdeError(str(error)) from error

    def decode(self, data: bytes) -> Any:
        return struct.unpack(">q", data)[0]

    def to_json(self, value: Any) -> Any:
        return value

    def from_json(self, data: Any) -> Any:
        return data


class Text(Long):
    """UTF-8."""

    spec = "string"

    def encode(self, value: Any) -> bytes:
        return value.encode()

    def decode(self, data: bytes) -> Any:
        return data.decode()


class Json(Long):
    """Compact JSON, whose values can be changed in place."""

    spec = "json"
    immutable = False

    def encode(self, value: Any) -> bytes:
        return json.dumps(value, separators=(",", ":")).encode()

    def decode(self, data: bytes) -> Any:
        return json.loads(data)


LONG, TEXT, JSON = Long(), Text(), Json()


@dataclass
class Recorder:
    """A store's context that keeps what it is told."""

    logged: list[tuple[bytes, bytes | None, int | None, Headers | None]] = field(default_factory=list)
    drops: int = 0
    topic: CurrentTopic = field(default_factory=CurrentTopic)

    def log(self, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers | None) -> None:
        self.logged.append((key, value, timestamp, headers))

    def dropped(self, reason: str) -> None:
        self.drops += 1

    def replay(self, store: Any) -> None:
        """Restore a store from what was logged."""
        if self.logged:
            keys, values, times, headers = map(list, zip(*self.logged, strict=True))
            store.restore_batch(keys, values, [-1 if time is None else time for time in times], headers)


@dataclass(frozen=True)
class Variant:
    """One way to run a store: with which semantics, what keeps its rows (None: memory), and whether it has a cache."""

    persistent: bool
    engine: str | None
    cached: bool

    def __str__(self) -> str:
        names = ("persistent" if self.persistent else "in-memory", self.engine or "dict")
        return "-".join((*names, "cached" if self.cached else "uncached"))


VARIANTS = [
    pytest.param(variant := Variant(persistent, engine, cached), id=str(variant), marks=marks)
    for persistent, engine, marks in (
        (False, None, ()),
        (True, None, ()),
        *((True, each.values[0], each.marks) for each in EVERY_ENGINE),
    )
    for cached in (False, True)
]


def definition(type: Any, **changes: Any) -> StoreDef:
    """Return a store of strings and longs whose windows have size 10 and live 100 seconds."""
    base = StoreDef("store", type, TEXT, LONG, retention=100_000, window_size=10, history=100, changelog_topic="log")
    if type == "join_window":  # as joins make them
        base = replace(base, topic_config={"cleanup.policy": "delete"})
    return replace(base, **changes)


def make(variant: Variant, store: StoreDef, directory: Path, max_bytes: int = 1 << 20) -> tuple[Any, Recorder]:
    """Return a store of a variant and its context."""
    context = Recorder()
    chosen = replace(store, persistent=variant.persistent)
    budget = CacheBudget(max_bytes) if variant.cached else None
    return create(chosen, directory if variant.engine else None, context, budget, engine=variant.engine), context
