"""Selects records of a topic: by time, by key, by an expression."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from streamkit.errors import Position, Problem, SerdeError, TopologyError
from streamkit.expressions.analysis.types import INTEGER, TEXT, Type
from streamkit.runtime.execution.reasons import human_reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamkit.plan.model import Plan
    from streamkit.runtime.operations.reading.record_range import Range
    from streamkit.runtime.operations.reading.topic_forms import Decoded, Side, TopicForms
    from streamkit.runtime.operations.reading.topic_reading import Row
    from streamkit.serdes.plain import Json
    from streamkit.serdes.serde import Serde


NAMES = ("key", "value", "timestamp", "headers", "topic", "partition", "offset")
_TEXTS = ("string", "uuid")
"""Serdes whose JSON form is text: a key is written without quotes."""


class RecordFilter:
    """The range, a key and an expression, in the order of their costs. Raises TopologyError for a wrong expression."""

    def __init__(self, plan: Plan, forms: TopicForms, span: Range, key: KeyCondition | None, where: str | None):
        self._forms = forms
        self._span = span
        self._key = key
        self._names: frozenset[str] = frozenset()
        self._predicate: Callable[..., bool] | None = None
        if where is not None:
            self._compile(plan, where)
        self.is_open = key is None and where is None and span.until is None
        """Whether it accepts nearly every record."""
        self.failed = 0
        """Records for which the expression raised an error; they are left out."""
        self.failure = ""
        """The reason of the first of these errors."""

    def _compile(self, plan: Plan, where: str) -> None:
        import time

        from streamkit.expressions import parse
        from streamkit.expressions.analysis.infer import infer

        expression = parse(where, NAMES, Position("--where", 1, 1), plan.functions)
        types: dict[str, Type] = {"timestamp": INTEGER, "partition": INTEGER, "offset": INTEGER, "topic": TEXT}
        if len(self._forms.pairs) == 1:
            key, value = self._forms.pairs[0]
            types |= {"key": key.type, "value": value.type}
        problems: list[Problem] = []
        infer(expression, types, problems)
        if problems:
            raise TopologyError(problems)
        self._names = expression.names
        test = expression.function((*NAMES, "now"))
        self._predicate = lambda *facts: test(*facts, lambda: time.time_ns() // 1_000_000)

    def decode_matching(self, row: Row) -> Decoded | None:
        """Return the decoded record if it meets the conditions. Raises RegistryError."""
        span = self._span
        if row.offset < span.first_offset:
            return None
        if span.since is not None and row.timestamp < span.since:
            return None
        if span.until is not None and row.timestamp >= span.until:
            return None
        found = self._forms.read(row.key, row.value)
        if self._key is not None and not self._key.matches(found):
            return None
        return found if self._predicate is None or self._is_true(self._predicate, row, found) else None

    def _is_true(self, predicate: Callable[..., bool], row: Row, found: Decoded) -> bool:
        unreadable = self._names & found.problems.keys()
        try:
            if unreadable:
                name = min(unreadable)
                raise SerdeError(f"{name}: {found.problems[name]}")
            facts = (row.timestamp, row.headers, row.topic, row.partition, row.offset)
            return bool(predicate(found.key, found.value, *facts))
        except Exception as error:
            # The handlers of the topology do not apply to a condition: its errors are counted and reported.
            self.failed += 1
            self.failure = self.failure or human_reason(error)
            return False


class KeyCondition:
    """A key as text or JSON, compared decoded in each form that the topic's keys may have."""

    def __init__(self, forms: TopicForms, text: str):
        """Raises SerdeError where no form has such a key."""
        self._keys: dict[int, Json] = {}
        """The JSON form of the key by the id of each form."""
        reason = None
        for side, _ in forms.pairs:
            try:
                self._keys[id(side)] = _wanted_key(side, text)
            except SerdeError as error:
                reason = reason or error
        if not self._keys:
            raise reason or SerdeError("the topic has no keys that can be compared")

    def matches(self, found: Decoded) -> bool:
        """Return whether a record has the key; of a windowed key also the key alone."""
        wanted = self._keys.get(id(found.sides[0]), _NOTHING)
        if wanted is _NOTHING or found.key is None:
            return False
        key = found.sides[0].to_json(found.key)
        if found.sides[0].is_windowed:
            return all(_text(key[name]) == _text(part) for name, part in wanted.items())
        return _text(key) == _text(wanted)


_NOTHING = object()


def _text(value: Json) -> str:
    """Return a JSON form as text that is equal for equal data, whatever the order of fields."""
    return json.dumps(value, sort_keys=True)


def _wanted_key(side: Side, text: str) -> Json:
    serde = side.serde
    if serde is not None and serde.spec in _TEXTS and not side.is_windowed:
        return serde.to_json(serde.from_json(text))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        # A key that is no JSON is text.
        value = text
    if side.is_windowed:
        is_complete = isinstance(value, dict) and {"key", "start"} <= value.keys() <= {"key", "start", "end"}
        if not is_complete:
            value = {"key": text if serde is not None and serde.spec in _TEXTS else value}
        return {name: _normal(serde, part) if name == "key" else part for name, part in value.items()}
    return _normal(serde, value)


def _normal(serde: Serde | None, value: Json) -> Json:
    """Return the JSON form of a value after a round trip through the serde. Raises SerdeError where it does not encode."""
    if serde is None:
        return value
    if serde.spec == "bytes" and isinstance(value, (str, int, float)):
        value = serde.to_json(str(value).encode())
    return serde.to_json(serde.decode(serde.encode(serde.from_json(value))))
