"""Serdes in hand: which one a stream has, also where merged streams disagree."""

from __future__ import annotations

from typing import Any

from streamkit.operators.base import BuildError
from streamkit.operators.fields import Step
from streamkit.operators.frozen import frozen
from streamkit.serdes.base import Serde


@frozen
class Disagreement:
    """Several streams met that have different serdes; an error only where a serde is needed."""

    serdes: tuple[Serde, ...]

    def __str__(self) -> str:
        return " and ".join(str(serde.spec) for serde in self.serdes)


AnySerde = Serde | Disagreement


def meet(*serdes: AnySerde) -> AnySerde:
    """Return the serde that all have, or their disagreement."""
    flat: dict[Serde, None] = {}
    for serde in serdes:
        flat.update(dict.fromkeys(serde.serdes if isinstance(serde, Disagreement) else (serde,)))
    return next(iter(flat)) if len(flat) == 1 else Disagreement(tuple(flat))


def need(serde: AnySerde, what: str, step: Step, purpose: str) -> Serde:
    """Return the one serde in hand. Raises BuildError where merged streams disagree on it.

    what: "key" or "value"; purpose: what it is needed for, as in "the repartition topic".
    """
    if isinstance(serde, Disagreement):
        raise BuildError(
            step.position,
            f"{step.operator}: the streams that meet here have different {what} serdes ({serde}), so {purpose} can't be "
            f"written; give the one to use with `{what}_serde` (here, or in a `map_values` or `repartition` before)",
        )
    return serde


def plain_or_none(serde: AnySerde) -> Any:
    """Return a serde for the Plan; None where merged streams disagree and nothing needed it."""
    return None if isinstance(serde, Disagreement) else serde


def check_keys_meet(step: Step, one: AnySerde, other: AnySerde, position: Any = None) -> None:
    """Raise BuildError where two serdes can't give the same bytes for the same key, as far as their names tell."""
    if isinstance(one, Disagreement) or isinstance(other, Disagreement):
        return
    if isinstance(one.spec, str) and isinstance(other.spec, str) and one.spec != other.spec:
        raise BuildError(
            position or step.at("with"),
            f"{step.operator}: the keys don't meet: their serde is {one.spec} here and {other.spec} there",
        )
