"""Versioned stores: what `put` gives and what remains, as Kafka Streams 4.3.1 has it (RocksDBVersionedStore)."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamkit.state.definitions import VALID_TO_UNDEFINED
from tests.state.support import Variant, definition, make

LATEST = VALID_TO_UNDEFINED
# Puts of (value, timestamp), and what the last one gives.
PUTS = {
    "a deletion that only takes a value back": ([(1, 10), (None, 10), (2, 5)], LATEST),
    "a deletion after a value": ([(1, 10), (None, 20), (2, 15)], 20),
    "a deletion of a value after another": ([(1, 10), (2, 20), (None, 20), (3, 15)], 20),
    "a deletion behind one that had a later version": ([(1, 20), (None, 10), (None, 20), (3, 15)], 20),
    "a deletion behind one that was the latest": ([(1, 5), (None, 10), (2, 20), (None, 20), (3, 15)], LATEST),
    "a value in the place of a deletion of nothing": ([(None, 20), (1, 20), (None, 20), (2, 15)], 20),
    "a value in the place of a deletion": ([(1, 5), (None, 20), (2, 20), (None, 20), (3, 15)], 20),
}


@pytest.mark.parametrize("name", PUTS)
def test_what_a_late_version_ends_with(name: str, tmp_path: Path) -> None:
    puts, end = PUTS[name]
    store, context = make(Variant(True, None, False), definition("versioned"), tmp_path)
    given = [store.put(b"k", value, timestamp) for value, timestamp in puts]
    assert given[-1] == end
    restored, _ = make(Variant(True, None, False), definition("versioned"), tmp_path)
    context.replay(restored)
    assert list(restored._map.range(None, None)) == list(store._map.range(None, None))
