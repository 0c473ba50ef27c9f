"""Which records of a topic a command takes: by key, by an expression, by time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from streamkit.errors import Position, SerdeError, TopologyError, UsageError
from streamkit.expressions.types import INTEGER, TEXT
from streamkit.runtime.reasons import human_reason

if TYPE_CHECKING:
    from streamkit.plan.model import Plan
    from streamkit.runtime.topic_forms import Decoded, Side, TopicForms

    from .topic_range import Range
    from .topic_reading import Row

NAMES = ("key", "value", "timestamp", "headers", "topic", "partition", "offset")
_TEXTS = ("string", "uuid")
"""Serdes whose JSON form is text: a key is written without quotes."""


class RecordTests:
    """The conditions of `--key`, `--where` and the range, in the order of their costs. Raises UsageError, TopologyError."""

    def __init__(self, plan: Plan, forms: TopicForms, span: Range, key: str | None, where: str | None):
        self._forms = forms
        self._span = span
        self._keys = None if key is None else _wanted_keys(forms, key)
        self._names: frozenset[str] = frozenset()
        self._holds: Any = None
        if where is not None:
            self._compile(plan, where)
        self.is_open = key is None and where is None and span.until is None
        """Whether about every record that is read is wanted."""
        self.failed = 0
        """Records for which the expression itself failed; they are not wanted."""
        self.failure = ""
        """Why the first of them failed."""

    def _compile(self, plan: Plan, where: str) -> None:
        import time

        from streamkit.expressions import parse
        from streamkit.expressions.infer import infer

        expression = parse(where, NAMES, Position("--where", 1, 1), plan.functions)
        types: dict[str, Any] = dict.fromkeys(("timestamp", "partition", "offset"), INTEGER) | {"topic": TEXT}
        if len(self._forms.pairs) == 1:
            key, value = self._forms.pairs[0]
            types |= {"key": key.type, "value": value.type}
        problems: list[Any] = []
        infer(expression, types, problems)
        if problems:
            raise TopologyError(problems)
        self._names = expression.names
        test = expression.function((*NAMES, "now"))
        self._holds = lambda *facts: test(*facts, lambda: time.time_ns() // 1_000_000)

    def wanted(self, row: Row) -> Decoded | None:
        """Return the decoded record if it meets the conditions. Raises RegistryError."""
        span = self._span
        if row.offset < span.first_offset:
            return None
        if span.since is not None and row.timestamp < span.since:
            return None
        if span.until is not None and row.timestamp >= span.until:
            return None
        found = self._forms.read(row.key, row.value)
        if self._keys is not None and not self._is_key(found):
            return None
        return found if self._holds is None or self._is_true(row, found) else None

    def _is_key(self, found: Decoded) -> bool:
        wanted = (self._keys or {}).get(id(found.sides[0]), _NOTHING)
        if wanted is _NOTHING or found.key is None:
            return False
        key = found.sides[0].to_json(found.key)
        if found.sides[0].is_windowed:
            return all(_text(key[name]) == _text(part) for name, part in wanted.items())
        return _text(key) == _text(wanted)

    def _is_true(self, row: Row, found: Decoded) -> bool:
        unreadable = self._names & found.problems.keys()
        try:
            if unreadable:
                name = min(unreadable)
                raise SerdeError(f"{name}: {found.problems[name]}")
            facts = (row.timestamp, row.headers, row.topic, row.partition, row.offset)
            return bool(self._holds(found.key, found.value, *facts))
        except Exception as error:
            # A condition has no handler of the topology: records for which it fails are counted and reported.
            self.failed += 1
            self.failure = self.failure or human_reason(error)
            return False


_NOTHING = object()


def _text(value: Any) -> str:
    """Return a JSON form as text that is the same for objects with their fields in another order, and only for these."""
    return json.dumps(value, sort_keys=True)


def _wanted_keys(forms: TopicForms, text: str) -> dict[int, Any]:
    """Return what the key's JSON form is by the id of each form of the topic's keys. Raises UsageError where it is none at all."""
    found: dict[int, Any] = {}
    reason = None
    for side, _ in forms.pairs:
        try:
            found[id(side)] = _wanted_key(side, text)
        except SerdeError as error:
            reason = reason or error
    if not found:
        raise UsageError(f"--key {text}: {reason or 'the topic has no keys that can be compared'}")
    return found


def _wanted_key(side: Side, text: str) -> Any:
    serde = side.serde
    if serde is not None and serde.spec in _TEXTS and not side.is_windowed:
        return serde.to_json(serde.from_json(text))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        # A word that is no JSON can only be meant as text.
        value = text
    if side.is_windowed:
        whole = isinstance(value, dict) and {"key", "start"} <= value.keys() <= {"key", "start", "end"}
        if not whole:
            value = {"key": text if serde is not None and serde.spec in _TEXTS else value}
        return {name: _normal(serde, part) if name == "key" else part for name, part in value.items()}
    return _normal(serde, value)


def _normal(serde: Any, value: Any) -> Any:
    """Return a value as the serde gives it back: encoded, so that what the serde does not take is refused."""
    if serde is None:
        return value
    if serde.spec == "bytes" and isinstance(value, (str, int, float)):
        value = serde.to_json(str(value).encode())
    return serde.to_json(serde.decode(serde.encode(serde.from_json(value))))
