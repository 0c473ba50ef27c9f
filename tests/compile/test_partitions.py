"""What an expression for a partition may give, and what is done with it (StreamPartitioner)."""

from __future__ import annotations

import pytest

from streamkit.compile.generator import checked_partition, joining_partition
from streamkit.errors import StreamkitError
from tests.processors.support import Running


@pytest.mark.parametrize(
    ("found", "expected"),
    [(0, 0), (2, 2), (None, None), ([], ()), ([2, 0, 2], (0, 2)), ((1,), (1,)), ({2, 1}, (1, 2))],
)
def test_partitions(found, expected):
    assert checked_partition(found, 3) == expected


@pytest.mark.parametrize("found", [3, -1, True, 1.0, "1", [0, 3], [None], {0: 1}])
def test_what_is_no_partition(found):
    with pytest.raises(StreamkitError, match="expected a number from 0 to 2, a list of them, or None"):
        checked_partition(found, 3)


@pytest.mark.parametrize("found", [[], [0, 1]])
def test_a_foreign_key_join_sends_to_one_partition(found):
    assert joining_partition([1], 3) == 1
    with pytest.raises(StreamkitError, match="sends each record to one partition"):
        joining_partition(found, 3)


def test_a_record_for_no_partition_counts_as_dropped(tmp_path):
    rest = "pipelines: {p: {stream: in, to: {topic: out, partition: '[] if value == \"no\" else [0, 0]'}}}"
    run = Running(tmp_path, "", rest)
    assert run.send("a", "no") == []
    assert run.dropped == 1
    assert run.send("a", "yes") == [("out", "a", "yes", 0)]


def test_a_wrong_partition_fails_at_the_end_of_the_pipeline(tmp_path):
    run = Running(tmp_path, "", "pipelines: {p: {stream: in, to: {topic: out, partition: partitions}}}")
    with pytest.raises(StreamkitError, match="partition gave 1; expected a number from 0 to 0"):
        run.send("a", "x")
