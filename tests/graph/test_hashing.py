"""The iteration order of Java's HashSet, against sets that Java printed."""

from __future__ import annotations

import pytest

from streamkit.hashing import hash_order, java_hash


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("alpha", 92909918), ("KSTREAM-SOURCE-0000000000", None), ("\U0001f600", 1772899)],
)
def test_string_hash(text: str, expected: int | None) -> None:
    if expected is None:
        expected = 0
        for character in text:
            expected = (31 * expected + ord(character)) % 2**32
    assert java_hash(text) == expected


def test_order_of_a_small_set() -> None:
    assert hash_order(["t3", "t1", "t2", "alpha", "beta"]) == ["alpha", "t1", "t2", "beta", "t3"]
    assert hash_order(["orders-eu", "orders-us"]) == ["orders-us", "orders-eu"]


def test_entries_of_one_bucket_keep_the_order_of_insertion() -> None:
    # "Aa" and "BB" have the same hash.
    assert hash_order(["Aa", "BB"]) == ["Aa", "BB"]
    assert hash_order(["BB", "Aa"]) == ["BB", "Aa"]


def test_capacity_grows_at_three_quarters() -> None:
    names = [f"n{index}" for index in range(13)]
    grown = hash_order(names, copied=False)
    assert sorted(grown) == sorted(names)
    by_bucket = sorted(names, key=lambda name: (java_hash(name) ^ java_hash(name) >> 16) & 31)
    assert grown == by_bucket


def test_copying_a_set_may_choose_another_capacity_than_growing() -> None:
    names = [f"topic-{index}" for index in range(24)]
    by_32 = sorted(names, key=lambda name: (java_hash(name) ^ java_hash(name) >> 16) & 31)
    by_64 = sorted(names, key=lambda name: (java_hash(name) ^ java_hash(name) >> 16) & 63)
    assert hash_order(names, copied=False) == by_32
    assert hash_order(names) == by_64


def test_a_set_of_given_capacity() -> None:
    names = ["a", "b", "c"]
    by_4 = sorted(names, key=lambda name: (java_hash(name) ^ java_hash(name) >> 16) & 3)
    assert hash_order(names, copied=False, capacity=4) == by_4
