"""Finds topics whose serde can't write the type of the records that reach them (in Java a ClassCastException at run time)."""

from __future__ import annotations

from streamkit.expressions.analysis.types import ANY, NOTHING, OneOf, Type, WindowedKey
from streamkit.serdes.formats.windowed import SessionWindowedSerde, TimeWindowedSerde
from streamkit.serdes.serde import Serde


def misfit(side: str, given: Type, serde: Serde) -> str | None:
    """Return why a serde fails for every value of a type; None where it takes some.

    side: "key" or "value".

    >>> from streamkit.expressions.analysis.types import INTEGER
    >>> from streamkit.serdes.formats.primitives import StringSerde
    >>> misfit("value", INTEGER, StringSerde())
    'takes text as its value (serde string), and gets a whole number; make it text: str(value)'
    """
    choices = given.choices if isinstance(given, OneOf) else (given,)
    if given is NOTHING or any(_may_take(serde, each) for each in choices):
        return None
    kind = serde.spec if isinstance(serde.spec, str) else next(iter(serde.spec))
    takes = serde.takes[0].word if serde.takes else "a windowed key"
    cure = ""
    if all(isinstance(each, WindowedKey) for each in choices):
        cure = "; give the topic a windowed key serde, or take the key out: to_stream: {key: key.key}"
    elif kind == "string":
        cure = f"; make it text: str({side})"
    return f"takes {takes} as its {side} (serde {kind}), and gets {given.word}{cure}"


def _may_take(serde: Serde, given: Type) -> bool:
    if given is ANY:
        return True
    if isinstance(serde, (TimeWindowedSerde, SessionWindowedSerde)):
        return isinstance(given, WindowedKey) and _may_take(serde.inner, given.fields["key"])
    return serde.takes is None or given in serde.takes
