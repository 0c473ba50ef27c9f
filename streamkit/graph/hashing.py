"""The iteration order of java.util.HashSet and HashMap with text as keys, which shows in Topology.describe()."""

from __future__ import annotations

from collections.abc import Iterable


def java_hash(text: str) -> int:
    """Return String.hashCode() as an unsigned 32-bit number.

    >>> java_hash("alpha")
    92909918
    """
    result = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(data), 2):
        result = (31 * result + (data[index] << 8 | data[index + 1])) & 0xFFFFFFFF
    return result


def hash_order(names: Iterable[str], copied: bool = True, capacity: int | None = None) -> list[str]:
    """Return names in the order in which a Java HashSet of them iterates.

    copied: the set was made from a collection of known size (`new HashSet<>(collection)`), else by adding one by one,
    to a set of the default capacity or the one given (`new HashSet<>(capacity)`).

    >>> hash_order(["t3", "t1", "t2", "alpha", "beta"])
    ['alpha', 't1', 't2', 'beta', 't3']
    """
    unique = list(dict.fromkeys(names))
    least = 16 if capacity is None else capacity
    if copied:
        least = max(int(len(unique) / 0.75) + 1, 16)
    buckets = 1
    while buckets < least:
        buckets *= 2
    while len(unique) > 0.75 * buckets:
        buckets *= 2
    mask = buckets - 1

    def bucket(name: str) -> int:
        value = java_hash(name)
        return (value ^ (value >> 16)) & mask

    return sorted(unique, key=bucket)
