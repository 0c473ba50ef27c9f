"""Hash codes of Java and the iteration order of java.util.HashSet and HashMap, which names and sizes of topics depend on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")
MASK = 0xFFFFFFFF


def java_hash(text: str) -> int:
    """Return String.hashCode() as an unsigned 32-bit number.

    >>> java_hash("alpha")
    92909918
    """
    result = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(data), 2):
        result = (31 * result + (data[index] << 8 | data[index + 1])) & MASK
    return result


def hash_order(names: Iterable[str], copied: bool = True, capacity: int | None = None) -> list[str]:
    """Return names in the order in which a Java HashSet of them iterates.

    `copied`: the set is a copy of a collection (`new HashSet<>(collection)`). Otherwise names are added one by one to a set of
    the default capacity or of `capacity` (`new HashSet<>(capacity)`).

    >>> hash_order(["t3", "t1", "t2", "alpha", "beta"])
    ['alpha', 't1', 't2', 'beta', 't3']
    """
    unique = {name: java_hash(name) for name in names}
    least = 16 if capacity is None else capacity
    if copied:
        least = max(int(len(unique) / 0.75) + 1, 16)
    return bucket_order(list(unique), list(unique.values()), least)


def bucket_order(items: list[T], hashes: list[int], capacity: int = 16) -> list[T]:
    """Return different items in the order of a Java HashMap to which they are added one by one.

    hashes: hashCode() of each, as 32-bit numbers; capacity: the capacity of the empty map.
    """
    buckets = bucket_count(len(items), capacity)
    numbers = [((code & MASK) ^ ((code & MASK) >> 16)) & (buckets - 1) for code in hashes]
    return [items[index] for index in sorted(range(len(items)), key=numbers.__getitem__)]


def bucket_count(size: int, capacity: int = 16) -> int:
    """Return how many buckets a Java HashMap of this capacity has after `size` items were added."""
    buckets = 1
    while buckets < capacity:
        buckets *= 2
    while size > 0.75 * buckets:
        buckets *= 2
    return buckets


def map_hash(entries: Mapping[str, int] | Mapping[str, str]) -> int:
    """Return Map.hashCode() as an unsigned 32-bit number. The values are text, or the hash codes of other values."""
    codes = ((java_hash(key), value if isinstance(value, int) else java_hash(value)) for key, value in entries.items())
    return sum(key ^ (value & MASK) for key, value in codes) & MASK


def list_hash(codes: Iterable[int]) -> int:
    """Return List.hashCode() of elements with these hash codes (also Objects.hash), as an unsigned 32-bit number."""
    result = 1
    for code in codes:
        result = (31 * result + code) & MASK
    return result


def long_hash(number: int) -> int:
    """Return Long.hashCode() as an unsigned 32-bit number."""
    bits = number & 0xFFFFFFFFFFFFFFFF
    return (bits ^ bits >> 32) & MASK
