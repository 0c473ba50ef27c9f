"""Serdes, steps, functions and rules of lint that installed packages add by entry points.

Entry points are searched only for names that streamkit does not define, because the search takes longer than checking a file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TypeVar

log = logging.getLogger(__name__)

SERDES = "streamkit.serdes"
STEPS = "streamkit.steps"
FUNCTIONS = "streamkit.functions"
RULES = "streamkit.lint"

T = TypeVar("T")
_NO_OBJECT = "The plugin %s of %s is left out: the entry point names no object: %s; expected MODULE:OBJECT"
_IS_OWN = "The plugin %s is left out: that name is streamkit's own"


@cache
def load(group: str) -> dict[str, object]:
    """Return the objects of a group's entry points by name.

    An entry point that can't be imported is skipped, with one warning that names it and its package.
    """
    from importlib.metadata import entry_points

    objects: dict[str, object] = {}
    for point in entry_points(group=group):
        package = point.dist.name if point.dist is not None else point.value
        if point.name in objects:
            log.warning("The plugin %s of %s is left out: another package has that name", point.name, package)
            continue
        if not point.attr:
            log.warning(_NO_OBJECT, point.name, package, point.value)
            continue
        try:
            objects[point.name] = point.load()
        except Exception as error:  # code of a plugin, which may raise any error
            log.warning(
                "The plugin %s of %s can't be imported: %s: %s", point.name, package, type(error).__name__, error
            )
    return objects


@cache
def references(group: str) -> dict[str, tuple[str, str]]:
    """Return module and attribute of a group's entry points by name, without an import."""
    from importlib.metadata import entry_points

    targets: dict[str, tuple[str, str]] = {}
    for point in entry_points(group=group):
        package = point.dist.name if point.dist is not None else point.value
        if point.name in targets:
            log.warning("The plugin %s of %s is left out: another package has that name", point.name, package)
        elif not point.attr:
            log.warning(_NO_OBJECT, point.name, package, point.value)
        else:
            targets[point.name] = point.module, point.attr
    return targets


@cache
def warn_of_own(group: str, own: frozenset[str]) -> None:
    """Warn once about entry points that are skipped because streamkit defines their names."""
    from importlib.metadata import entry_points

    for name in sorted(own.intersection(point.name for point in entry_points(group=group))):
        log.warning(_IS_OWN, name)


class WithPlugins(Mapping[str, T]):
    """A table with streamkit's own items and those of a group's plugins; `make` turns an entry point's object into an item.

    Plugins can't replace streamkit's own items.
    """

    def __init__(self, own: Mapping[str, T], group: str, make: Callable[[str, object], T]):
        self._own = own
        self._group = group
        self._make = make
        self._added: dict[str, T] | None = None

    def __getitem__(self, name: str) -> T:
        return self._own[name] if name in self._own else self.added[name]

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self.added

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from self.added

    def __bool__(self) -> bool:
        # The default, by __len__, would import the plugins.
        return bool(self._own or self.added)

    def __len__(self) -> int:
        return len(self._own) + len(self.added)

    @property
    def added(self) -> dict[str, T]:
        """The items of plugins, except those whose names streamkit defines."""
        if self._added is None:
            self._added = {}
            for name, loaded in load(self._group).items():
                if name in self._own:
                    log.warning(_IS_OWN, name)
                    continue
                try:
                    self._added[name] = self._make(name, loaded)
                except Exception as error:  # code of a plugin, which may raise any error
                    log.warning("The plugin %s can't be used: %s: %s", name, type(error).__name__, error)
        return self._added
