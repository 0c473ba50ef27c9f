"""The serdes of a stream or table, also where merged streams have different ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import BuildError
from streamkit.operators.core.parsed_values import Step
from streamkit.serdes.serde import Serde

if TYPE_CHECKING:
    from streamkit.errors import Position


@frozen
class Disagreement:
    """The different serdes of streams that were merged; an error only where one serde is needed."""

    serdes: tuple[Serde, ...]

    def __str__(self) -> str:
        return " and ".join(str(serde.spec) for serde in self.serdes)


AnySerde = Serde | Disagreement


def common_serde(*serdes: AnySerde) -> AnySerde:
    """Return the serde that all have, or the disagreement."""
    flat: dict[Serde, None] = {}
    for serde in serdes:
        flat.update(dict.fromkeys(serde.serdes if isinstance(serde, Disagreement) else (serde,)))
    return next(iter(flat)) if len(flat) == 1 else Disagreement(tuple(flat))


def required_serde(serde: AnySerde, what: str, step: Step, purpose: str) -> Serde:
    """Return the serde. Raises BuildError where merged streams disagree on it.

    what: "key" or "value"; purpose: the part that needs it, as in "the repartition topic".
    """
    if isinstance(serde, Disagreement):
        raise BuildError(
            step.position,
            f"{step.operator}: the streams that meet here have different {what} serdes ({serde}), so {purpose} can't be "
            f"written; give the one to use with `{what}_serde` (here, or in a `map_values` or `repartition` before)",
        )
    return serde


def serde_or_none(serde: AnySerde) -> Serde | None:
    """Return a serde for the Plan; None where merged streams disagree and no step needed it."""
    return None if isinstance(serde, Disagreement) else serde


def check_key_serdes(step: Step, one: AnySerde, other: AnySerde, position: Position | None = None) -> None:
    """Raise BuildError where two serdes, by their names, encode the same key differently."""
    if isinstance(one, Disagreement) or isinstance(other, Disagreement):
        return
    if isinstance(one.spec, str) and isinstance(other.spec, str) and one.spec != other.spec:
        raise BuildError(
            position or step.at("with"),
            f"{step.operator}: the keys don't meet: their serde is {one.spec} here and {other.spec} there",
        )
