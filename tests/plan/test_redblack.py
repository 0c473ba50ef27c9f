"""The tree that prints as Java's TreeSet does."""

from __future__ import annotations

import random

from streamkit.plan.describe.text import TreeSet


def compare(one: list[int], other: list[int]) -> int:
    return (one[0] > other[0]) - (one[0] < other[0])


def test_sorts_when_nothing_changes() -> None:
    numbers = list(range(500))
    random.Random(1).shuffle(numbers)
    tree = TreeSet(compare)
    for number in numbers:
        tree.add([number])
        tree.add([number])
    assert [element[0] for element in tree] == sorted(numbers)


def test_does_not_sort_again_when_elements_change() -> None:
    tree = TreeSet(compare)
    elements = [[number] for number in (5, 3, 8)]
    for element in elements:
        tree.add(element)
    elements[1][0] = 9
    assert [element[0] for element in tree] == [9, 5, 8]
    tree.add([7])
    assert [element[0] for element in tree] == [9, 5, 7, 8]


def test_the_tree_stays_balanced_when_keys_ascend() -> None:
    tree = TreeSet(compare)
    for number in range(2**12):
        tree.add([number])

    def depth(entry: object) -> int:
        return 0 if entry is None else 1 + max(depth(entry.left), depth(entry.right))  # type: ignore[attr-defined]

    assert depth(tree._root) <= 2 * 13
