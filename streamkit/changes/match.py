"""Matches the stores and topics of two versions: those of equal names, and those that are likely renamed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from streamkit.changes.finding import Verdict
from streamkit.changes.form import RowForm, StoreForm, TopicForm
from streamkit.changes.serde_forms import compare_rows

StoreOrTopic = TypeVar("StoreOrTopic", StoreForm, TopicForm)
_INDEX = re.compile(r"\d{10}")


@dataclass(frozen=True)
class Matched(Generic[StoreOrTopic]):
    """The stores, or the topics, of two versions, matched."""

    kept: tuple[tuple[StoreOrTopic, StoreOrTopic], ...]
    """Of the same name: old and new."""
    renamed: tuple[tuple[StoreOrTopic, StoreOrTopic], ...]
    """Likely the same under another name: old and new."""
    gone: tuple[StoreOrTopic, ...]
    added: tuple[StoreOrTopic, ...]

    @property
    def names(self) -> dict[str, str]:
        """Return the new name of each old one."""
        return {old.name: new.name for old, new in (*self.kept, *self.renamed)}


def match_stores(old: Mapping[str, StoreForm], new: Mapping[str, StoreForm]) -> Matched[StoreForm]:
    """Return the stores of two versions, matched by the names of their changelogs."""
    return _match(old, new, _stores_alike)


def match_topics(old: Mapping[str, TopicForm], new: Mapping[str, TopicForm]) -> Matched[TopicForm]:
    """Return the internal topics of two versions, matched."""
    return _match(old, new, _topics_alike)


def _match(
    old: Mapping[str, StoreOrTopic],
    new: Mapping[str, StoreOrTopic],
    alike: Callable[[StoreOrTopic, StoreOrTopic], float | None],
) -> Matched[StoreOrTopic]:
    gone = {name: each for name, each in old.items() if name not in new}
    added = {name: each for name, each in new.items() if name not in old}
    scores = [
        (score, one, other) for one in gone for other in added if (score := alike(gone[one], added[other])) is not None
    ]
    renamed = []
    # Sorting is stable: among equal scores the order of the versions decides, which is that of generated names too.
    for _, one, other in sorted(scores, key=lambda each: -each[0]):
        if one in gone and other in added:
            renamed.append((gone.pop(one), added.pop(other)))
    kept = tuple((each, new[name]) for name, each in old.items() if name in new)
    return Matched(kept, tuple(renamed), tuple(gone.values()), tuple(added.values()))


def is_generated(name: str) -> bool:
    """Return whether a name has an index of Kafka Streams, and so depends on the steps before it."""
    return _INDEX.search(name) is not None


def _role(name: str) -> str:
    # A side of a stream-stream join has another prefix where it is an outer side.
    return re.sub("KSTREAM-OUTER(THIS|OTHER)-", r"KSTREAM-JOIN\1-", _INDEX.sub("#", name))


def _stores_alike(old: StoreForm, new: StoreForm) -> float | None:
    """Return the likelihood that two stores are the same one; None where the new one can't use the rows of the old one."""
    if old.is_global != new.is_global or not _rows_fit(old.rows, new.rows):
        return None
    return _alike(old, new)


def _topics_alike(old: TopicForm, new: TopicForm) -> float | None:
    if None not in (old.value_kind, new.value_kind) and old.value_kind != new.value_kind:
        return None
    return _alike(old, new)


def _alike(old: StoreOrTopic, new: StoreOrTopic) -> float | None:
    generated = is_generated(old.name), is_generated(new.name)
    if all(generated) and _role(old.name) != _role(new.name):
        return None
    if not old.roots or not new.roots:
        # A log has names only, and names that users give are not comparable.
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
