"""A red-black tree that behaves like java.util.TreeSet even where its elements change their order after insertion.

Topology.describe() prints such sets in the order of their trees, so its text depends on the shape of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Element = TypeVar("Element")


class _Entry(Generic[Element]):
    __slots__ = ("element", "left", "parent", "red", "right")

    def __init__(self, element: Element, parent: _Entry[Element] | None):
        self.element = element
        self.parent = parent
        self.left: _Entry[Element] | None = None
        self.right: _Entry[Element] | None = None
        self.red = False


class TreeSet(Generic[Element]):
    """Elements in the order of `compare` at the time of their insertion; the set never sorts them again."""

    def __init__(self, compare: Callable[[Element, Element], int]):
        self._compare = compare
        self._root: _Entry[Element] | None = None

    def add(self, element: Element) -> None:
        """Insert an element unless the search meets an equal one."""
        if self._root is None:
            self._root = _Entry(element, None)
            return
        entry: _Entry[Element] | None = self._root
        while entry is not None:
            parent = entry
            order = self._compare(element, entry.element)
            if order == 0:
                return
            entry = entry.left if order < 0 else entry.right
        added = _Entry(element, parent)
        if order < 0:
            parent.left = added
        else:
            parent.right = added
        self._rebalance(added)

    def __iter__(self) -> Iterator[Element]:
        stack: list[_Entry[Element]] = []
        entry = self._root
        while stack or entry is not None:
            while entry is not None:
                stack.append(entry)
                entry = entry.left
            last = stack.pop()
            yield last.element
            entry = last.right

    def _rebalance(self, entry: _Entry[Element]) -> None:
        entry.red = True
        while entry.parent is not None and entry.parent.red:
            parent = entry.parent
            grand = parent.parent
            assert grand is not None  # A red node is never the root.
            on_left = parent is grand.left
            uncle = grand.right if on_left else grand.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                grand.red = True
                entry = grand
                continue
            if entry is (parent.right if on_left else parent.left):
                entry = parent
                self._rotate(entry, left=on_left)
                parent = entry.parent or parent
            parent.red = False
            grand.red = True
            self._rotate(grand, left=not on_left)
        assert self._root is not None
        self._root.red = False

    def _rotate(self, entry: _Entry[Element], left: bool) -> None:
        riser = entry.right if left else entry.left
        assert riser is not None
        moved = riser.left if left else riser.right
        if left:
            entry.right = moved
            riser.left = entry
        else:
            entry.left = moved
            riser.right = entry
        if moved is not None:
            moved.parent = entry
        riser.parent = entry.parent
        if entry.parent is None:
            self._root = riser
        elif entry.parent.left is entry:
            entry.parent.left = riser
        else:
            entry.parent.right = riser
        entry.parent = riser
