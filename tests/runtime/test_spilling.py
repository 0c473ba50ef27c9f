"""Maps of batch jobs: in memory, and on disk from the first commit with more than the limit."""

from __future__ import annotations

from pathlib import Path

from streamkit.runtime.spark.workers.task_stores import SpillingMap


def test_a_large_map_moves_to_disk_with_its_rows(tmp_path: Path) -> None:
    rows = {b"k%04d" % number: b"v" * 50 for number in range(1000)}
    entries = SpillingMap(50_000, lambda: tmp_path / "rows")
    for key, value in rows.items():
        entries.put(key, value)
    assert not (tmp_path / "rows").exists()
    entries.commit()
    assert (tmp_path / "rows").exists()
    assert entries.durable
    assert dict(entries.range(None, None)) == rows
    entries.put(b"k0000", None)
    entries.commit()
    assert (entries.get(b"k0000"), entries.get(b"k0001")) == (None, b"v" * 50)
    entries.close()


def test_a_small_map_stays_in_memory(tmp_path: Path) -> None:
    entries = SpillingMap(50_000_000, lambda: tmp_path / "rows")
    entries.put(b"a", b"b")
    entries.commit()
    assert not entries.durable
    assert not (tmp_path / "rows").exists()
    assert entries.get(b"a") == b"b"
    entries.close()
