"""Which stores and topics of two versions are the same, and which are likely to be: under another name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from streamkit.changes.finding import Verdict
from streamkit.changes.form import RowForm, StoreForm, TopicForm
from streamkit.changes.rows import compare_rows

Thing = TypeVar("Thing", StoreForm, TopicForm)
_INDEX = re.compile(r"\d{10}")


@dataclass(frozen=True)
class Matched(Generic[Thing]):
    """What became of the stores, or of the topics, of the old version."""

    kept: tuple[tuple[Thing, Thing], ...]
    """Of the same name: old and new."""
    renamed: tuple[tuple[Thing, Thing], ...]
    """Likely the same under another name: old and new."""
    gone: tuple[Thing, ...]
    added: tuple[Thing, ...]

    @property
    def names(self) -> dict[str, str]:
        """Return the new name of each old one."""
        return {old.name: new.name for old, new in (*self.kept, *self.renamed)}


def match_stores(old: Mapping[str, StoreForm], new: Mapping[str, StoreForm]) -> Matched[StoreForm]:
    """Return which stores go on, by the names of their changelogs."""
    return _match(old, new, _stores_alike)


def match_topics(old: Mapping[str, TopicForm], new: Mapping[str, TopicForm]) -> Matched[TopicForm]:
    """Return which internal topics go on."""
    return _match(old, new, _topics_alike)


def _match(
    old: Mapping[str, Thing], new: Mapping[str, Thing], alike: Callable[[Any, Any], float | None]
) -> Matched[Thing]:
    gone = {name: each for name, each in old.items() if name not in new}
    added = {name: each for name, each in new.items() if name not in old}
    scores = [
        (score, one, other) for one in gone for other in added if (score := alike(gone[one], added[other])) is not None
    ]
    renamed = []
    # Sorting is stable: among equals the order of the versions decides, which is that of generated names too.
    for _, one, other in sorted(scores, key=lambda each: -each[0]):
        if one in gone and other in added:
            renamed.append((gone.pop(one), added.pop(other)))
    kept = tuple((each, new[name]) for name, each in old.items() if name in new)
    return Matched(kept, tuple(renamed), tuple(gone.values()), tuple(added.values()))


def is_generated(name: str) -> bool:
    """Tell whether a name has an index of Kafka Streams, and so depends on the steps before."""
    return _INDEX.search(name) is not None


def _role(name: str) -> str:
    # The side of a join of streams has other names where its records come out without a partner too.
    return re.sub("KSTREAM-OUTER(THIS|OTHER)-", r"KSTREAM-JOIN\1-", _INDEX.sub("#", name))


def _stores_alike(old: StoreForm, new: StoreForm) -> float | None:
    """Return how likely two stores are the same one; None where one can't go on as the other."""
    if old.is_global != new.is_global or not _rows_fit(old.rows, new.rows):
        return None
    return _alike(old, new)


def _topics_alike(old: TopicForm, new: TopicForm) -> float | None:
    if None not in (old.value_kind, new.value_kind) and old.value_kind != new.value_kind:
        return None
    return _alike(old, new)


def _alike(old: Thing, new: Thing) -> float | None:
    generated = is_generated(old.name), is_generated(new.name)
    if all(generated) and _role(old.name) != _role(new.name):
        return None
    if not old.roots or not new.roots:
        # A log knows no more than names; those that were given tell nothing of each other.
        return 1.0 if all(generated) else None
    common = len(old.roots & new.roots) / len(old.roots | new.roots)
    if not common:
        return None
    same_pipeline = bool(old.place.pipeline) and old.place.pipeline == new.place.pipeline
    same_step = same_pipeline and old.place.step == new.place.step
    return 2 * common + 3 * same_pipeline + same_step + all(generated)


def _rows_fit(old: RowForm | None, new: RowForm | None) -> bool:
    if old is None or new is None:
        return True
    return all(verdict is not Verdict.INCOMPATIBLE for verdict, _ in compare_rows(old, new))
