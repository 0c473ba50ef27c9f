"""Columns that are taken at once: keys partitioned and plain data made a column at a time are those made one by one."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.runtime.spark.workers.arrow_rows import plain_of
from streamkit.runtime.spark.workers.output_collector import partitions_of
from streamkit.serdes.partitioner import partition

keys = st.lists(st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=250, max_size=300)), max_size=30)


@settings(deadline=None)
@given(keys, st.integers(1, 50), st.integers(0, 3))
def test_same_as_one_by_one(found: list, count: int, skipped: int) -> None:
    column = pa.array(found, pa.binary())[skipped:]
    expected = [0 if key is None else partition(key, count) for key in found[skipped:]]
    assert partitions_of(column, count).tolist() == expected


def test_plain_data_of_arrow_columns_are_those_of_arrow_itself() -> None:
    inner = pa.struct([("x", pa.int32()), ("y", pa.string())])
    kind = pa.struct(
        [
            ("whole", pa.int64()),
            ("real", pa.float32()),
            ("text", pa.string()),
            ("raw", pa.binary()),
            ("flag", pa.bool_()),
            ("inner", inner),
            ("list", pa.list_(inner)),
            ("map", pa.map_(pa.string(), pa.float64())),
            ("nothing", pa.null()),
        ]
    )
    full: dict = {
        "whole": 1 << 60,
        "real": 0.1,
        "text": "é😀",
        "raw": b"\0\xff",
        "flag": True,
        "inner": {"x": 1, "y": ""},
        "list": [{"x": None, "y": "z"}, None],
        "map": [("k", 0.5), ("l", None)],
        "nothing": None,
    }
    rows = [full, None, dict.fromkeys(full), {**full, "inner": {"x": None, "y": None}, "list": [], "map": []}, full]
    array = pa.array(rows, kind)
    for column in (array, array.slice(1, 3), array.slice(4), array.slice(0, 0)):
        assert plain_of(column) == column.to_pylist(maps_as_pydicts="strict")
