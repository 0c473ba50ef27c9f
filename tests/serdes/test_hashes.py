"""The hashes by which Kafka's Java client partitions, and foreign-key joins compare."""

from __future__ import annotations

import pytest

from streamkit.serdes.partitioner import murmur2, murmur3_128, partition


@pytest.mark.parametrize(
    ("data", "expected"), [(b"", 275646681), (b"a", -1563381124), (b"21", -973932308), (b"abc", 479470107)]
)
def test_murmur2(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected
    for _ in range(2):
        assert partition(data, 7) == (expected & 0x7FFFFFFF) % 7


def test_murmur2_vectors_of_kafka() -> None:
    # From UtilsTest.testMurmur2.
    known = {
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    }
    assert {data: murmur2(data) for data in known} == known


def test_murmur3_hashes_are_known_and_differ_by_length() -> None:
    assert murmur3_128(b"f1:a", 104729).hex() == "0a8ff9d26a7037bdf6b5d819f80a15ee"
    assert len({murmur3_128(bytes(range(size)), 104729) for size in range(64)}) == 64
