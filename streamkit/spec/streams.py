"""Streams, tables and groups of a topology in Python: a method for each step records its call.

The methods are made from the steps' declarations when they are looked up; `streams.pyi` shows them to editors and type checkers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

from streamkit.operators import STEPS
from streamkit.spec.call_places import plain_name
from streamkit.spec.recorded_calls import Branch as Branch
from streamkit.spec.recorded_calls import RecordedStream, record_branches
from streamkit.spec.step_methods import CLASSES, Method, annotation_words, methods, result_of


class AnyStream(RecordedStream):
    """What all streams, tables and groups have. A method that is not a step of streamkit stands for a macro or a plugin's step."""

    kind = "stream"

    def step(self, name: str, *arguments: object, **options: object) -> AnyStream:
        """Add a step by its name: a macro, or a step of a plugin."""
        return self._added(name, CLASSES_BY_NAME[_result_of(name, self.kind)], arguments, options)

    def to(self, *arguments: object, **options: object) -> None:
        """Write the records to a topic."""
        self._record("to", arguments, options)

    def for_each(self, *arguments: object, **options: object) -> None:
        """Call a function with the key and the value of each record."""
        self._record("for_each", arguments, options)

    def __getattr__(self, name: str) -> Callable[..., AnyStream]:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return lambda *arguments, **options: self.step(plain_name(name), *arguments, **options)

    def _added(
        self, name: str, stream_class: type[AnyStream], arguments: tuple[object, ...], options: dict[str, object]
    ) -> AnyStream:
        call = self._record(name, arguments, options)
        stream = stream_class(self._recorder, call)
        if isinstance(stream, Branches):
            stream._streams = record_branches(self, call, Stream)
        return stream


def _result_of(name: str, kind: str) -> str:
    operator = STEPS.get(name)
    known = (
        operator is not None and kind in operator.accepts and set(annotation_words(operator)) & set(CLASSES.values())
    )
    return result_of(operator, kind) if known else "Stream"


def _made_class(kind: str, name: str) -> type[AnyStream]:
    members = {method.name: _made_method(method) for method in methods(kind)}
    doc = f"{name} of a topology in Python."
    return type(name, (AnyStream,), {"__doc__": doc, "__module__": __name__, "kind": kind, **members})


def _made_method(method: Method) -> Callable[..., AnyStream]:
    def add(self: AnyStream, *arguments: object, **options: object) -> AnyStream:
        return self._added(method.step, CLASSES_BY_NAME[method.result], arguments, options)

    add.__name__ = add.__qualname__ = method.name
    add.__doc__ = method.doc
    kinds = inspect.Parameter
    add.__signature__ = inspect.Signature(
        [
            kinds("self", kinds.POSITIONAL_OR_KEYWORD),
            *(
                kinds(
                    one.name,
                    kinds.POSITIONAL_OR_KEYWORD if one.is_positional else kinds.KEYWORD_ONLY,
                    default=kinds.empty if one.is_required else None,
                    annotation=one.annotation,
                )
                for one in method.parameters
            ),
        ],
        return_annotation=method.result,
    )
    return add


class Branches(AnyStream):
    """The branches of a stream by name."""

    kind = "branches"
    _streams: dict[str, RecordedStream]

    def __getitem__(self, name: str) -> AnyStream:
        stream = self._streams.get(name)
        # A name that no branch has is reported with the other mistakes.
        return stream if stream is not None else Stream(self._recorder, self._call, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)


CLASSES_BY_NAME: dict[str, type[AnyStream]] = {
    name: Branches if kind == "branches" else _made_class(kind, name) for kind, name in CLASSES.items()
}
Stream, Table, GlobalTable = (CLASSES_BY_NAME[name] for name in ("Stream", "Table", "GlobalTable"))
GroupedStream, GroupedTable = CLASSES_BY_NAME["GroupedStream"], CLASSES_BY_NAME["GroupedTable"]
CogroupedStream, WindowedCogroup = CLASSES_BY_NAME["CogroupedStream"], CLASSES_BY_NAME["WindowedCogroup"]
WindowedStream = CLASSES_BY_NAME["WindowedStream"]
