"""`window`: the windows of an aggregation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from streamkit.errors import Problem
from streamkit.operators.core.fields import Choice, Duration, Field
from streamkit.operators.core.operator import (
    BuildError,
    CogroupedStream,
    Context,
    GroupedStream,
    Operator,
    WindowedCogroup,
    WindowedStream,
)
from streamkit.operators.core.parsed_values import SessionWindows, SlidingWindows, Step, TimeWindows, Windows

KINDS = ("tumbling", "hopping", "sliding", "session")


class WindowOperator(Operator[GroupedStream | CogroupedStream]):
    """`window` (windowedBy and emitStrategy)."""

    name: ClassVar[str] = "window"
    fields = (
        Field("tumbling", Duration(1), "Windows of this size, one after the other."),
        Field("hopping", Duration(1), "Windows of this size, a new one every `advance`."),
        Field("advance", Duration(1), "The interval between the starts of hopping windows."),
        Field("sliding", Duration(0), "A window for each set of records at most this far apart."),
        Field("session", Duration(0), "A window for each burst of records, with gaps of at most this between them."),
        Field(
            "grace",
            Duration(0),
            "How long a window accepts late records after its end, in the task's stream time. If a repartition "
            "merges partitions that are catching up, partitions that are ahead make the records of the others late.",
            default=0,
        ),
        Field("emit", Choice(("on_update", "on_close")), "When results are emitted.", default="on_update"),
    )
    accepts = ("grouped_stream", "cogrouped")
    summary = (
        "Divides the records of each group by time, so that the next aggregation has one result per key and window: "
        "`tumbling`, `hopping`, `sliding` or `session`. Results are emitted with every update, or with `emit: "
        "on_close` once, when the window and its `grace` have ended."
    )

    def check(self, step: Step) -> Iterable[Problem]:
        kinds = [kind for kind in KINDS if step.get(kind) is not None]
        if len(kinds) != 1:
            listed = " and ".join(f"`{kind}`" for kind in kinds) or "none"
            yield Problem(
                step.position, f"window: expected exactly one of tumbling, hopping, sliding, session; found {listed}"
            )
            return
        advance = step.get("advance")
        if kinds == ["hopping"]:
            if advance is None:
                yield Problem(
                    step.position, "window: `hopping` needs `advance`, the interval between the starts of windows"
                )
            elif advance > step.options["hopping"]:
                yield Problem(step.at("advance"), "window: `advance` can't be longer than the window")
        elif advance is not None:
            yield Problem(step.at("advance"), f"window: `advance` goes with `hopping`, not with `{kinds[0]}`")

    def build(
        self, step: Step, upstream: GroupedStream | CogroupedStream, builder: Context
    ) -> WindowedStream | WindowedCogroup:
        on_close = step.get("emit") == "on_close"
        windows = _windows(step)
        if isinstance(upstream, CogroupedStream):
            if on_close:
                raise BuildError(step.at("emit"), "window: `emit: on_close` is not available after `cogroup`")
            return WindowedCogroup(upstream, windows)
        return WindowedStream(upstream, windows, on_close)


def _windows(step: Step) -> Windows:
    grace = step.get("grace") or 0
    if step.get("session") is not None:
        return SessionWindows(grace, step.options["session"])
    if step.get("sliding") is not None:
        return SlidingWindows(grace, step.options["sliding"])
    size = step.get("tumbling") or step.get("hopping")
    return TimeWindows(grace, size, step.get("advance") or size)
