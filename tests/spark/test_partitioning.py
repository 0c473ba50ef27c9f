"""Keys partitioned a column at a time fall where they fall one by one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.runtime.spark.workers.partitioning import partitions_of
from streamkit.serdes.partitioner import partition

keys = st.lists(st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=250, max_size=300)), max_size=30)


@settings(deadline=None)
@given(keys, st.integers(1, 50), st.integers(0, 3))
def test_same_as_one_by_one(found: list, count: int, skipped: int) -> None:
    import pyarrow as pa

    column = pa.array(found, pa.binary())[skipped:]
    expected = [0 if key is None else partition(key, count) for key in found[skipped:]]
    assert partitions_of(column, count).tolist() == expected
