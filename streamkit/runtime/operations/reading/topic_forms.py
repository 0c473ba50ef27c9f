"""Reads the records of any topic of a topology: those of the file, and the application's internal ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from streamkit.compile.changed import split_changed
from streamkit.errors import SerdeError
from streamkit.expressions.analysis.types import ANY, Type
from streamkit.plan.model import Plan, SinkNode, SourceNode
from streamkit.record import Key, Value, WindowedKey
from streamkit.runtime.records import RecordJson, raw_json
from streamkit.serdes.plain import Json
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import StoreDef
from streamkit.state.keys import split_combined_key, split_session_key, unpack_long
from streamkit.state.record_context import decode_buffer_value


class Side(NamedTuple):
    """The form of the keys or the values of a topic.

    serde: the serde of the bytes, or of the key within a window where `is_windowed`; None: the bytes have a layout of their own.
    """

    decode: Callable[[bytes], Value]
    to_json: Callable[[Value], Json]
    serde: Serde | None = None
    is_windowed: bool = False
    type: Type = ANY

    def json(self, value: Value) -> Json:
        """Return the JSON form of a decoded value; None is an absent one."""
        return None if value is None else self.to_json(value)


class Decoded(NamedTuple):
    """A record's key and value as objects; bytes where `problems` has a reason, by `key` and `value`."""

    key: Key
    value: Value
    sides: tuple[Side, Side]
    problems: dict[str, str]


def _same(data: bytes) -> bytes:
    return data


RAW = Side(_same, raw_json)
_WITHOUT_PROBLEMS: dict[str, str] = {}


class TopicForms:
    """The forms of the records of one topic, by its name on the log; the first form that decodes is used."""

    def __init__(self, plan: Plan, topic: str):
        self.pairs = _pairs(plan, topic)

    def read(self, key: bytes | None, value: bytes | None) -> Decoded:
        """Return a record decoded. Raises RegistryError where the schema registry does not answer."""
        for sides in self.pairs:
            try:
                return Decoded(
                    None if key is None else sides[0].decode(key),
                    None if value is None else sides[1].decode(value),
                    sides,
                    _WITHOUT_PROBLEMS,
                )
            except SerdeError:
                continue
        problems: dict[str, str] = {}
        parts = [
            self._part(place, name, data, problems) for place, name, data in ((0, "key", key), (1, "value", value))
        ]
        return Decoded(parts[0][0], parts[1][0], (parts[0][1], parts[1][1]), problems)

    def _part(self, place: int, name: str, data: bytes | None, problems: dict[str, str]) -> tuple[Value, Side]:
        """Return one side alone, raw where no form decodes it, with the reason of the first form."""
        for sides in self.pairs:
            try:
                return None if data is None else sides[place].decode(data), sides[place]
            except SerdeError as error:
                problems.setdefault(name, str(error))
        return data, RAW


def _pairs(plan: Plan, topic: str) -> list[tuple[Side, Side]]:
    if topic not in plan.external_topics:
        found = list(_internal(plan, topic)) or list(_changelog(plan, topic))
        if found:
            return found[:1]
    return [(_side(key), _side(value)) for key, value in RecordJson(plan).candidates(topic)]


def _side(serde: Serde | None) -> Side:
    if serde is None:
        return RAW
    # Windowed serdes are the only ones with a serde within.
    inner = getattr(serde, "inner", None)
    return Side(serde.decode, serde.to_json, inner or serde, inner is not None, serde.type)


# -- Internal topics ----------------------------------------------------------------------------------------------------


def _internal(plan: Plan, topic: str) -> Iterator[tuple[Side, Side]]:
    """Yield the form of a repartition, subscription or response topic, once for each node that reads or writes it."""
    for node in (node for sub in plan.sub_topologies for node in sub.nodes.values()):
        if not isinstance(node, (SourceNode, SinkNode)) or not node.internal:
            continue
        names = node.topics if isinstance(node, SourceNode) else (node.topic,)
        if any(name is not None and plan.internal_name(name) == topic for name in names):
            values = {"plain": _side, "changed": _changed}.get(node.value_kind)
            yield _side(node.key_serde), RAW if values is None else values(node.value_serde)


def _changed(serde: Serde) -> Side:
    """Return the form of a table's changes: objects with the new and the old value (ChangedDeserializer)."""

    def decode(data: bytes) -> dict[str, Value]:
        return _each_value(serde, *split_changed(data))

    return Side(_guarded(decode), partial(_each_json, serde))


def _changelog(plan: Plan, topic: str) -> Iterator[tuple[Side, Side]]:
    for name, store in plan.stores.items():
        if plan.changelog_name(name) == topic:
            yield _changelog_key(store), _changelog_value(store)


def _changelog_key(store: StoreDef) -> Side:
    serde = store.key_serde
    size = store.window_size or 0

    def window(data: bytes) -> WindowedKey:
        start = unpack_long(data, len(data) - 12)[0]
        return WindowedKey(serde.decode(data[:-12]), start, start + size)

    def session(data: bytes) -> WindowedKey:
        key, start, end = split_session_key(data)
        return WindowedKey(serde.decode(key), start, end)

    def unmatched(data: bytes) -> dict[str, Value]:
        side = "left" if data[8] else "right"
        return {"key": serde.decode(data[9:]), "timestamp": unpack_long(data)[0], "side": side}

    if store.kind.windowed:
        decode = _guarded(session if store.type == "session" else window)
        return Side(decode, partial(_windowed_json, serde), serde, is_windowed=True)
    if store.type == "outer_join":
        return Side(_guarded(unmatched), lambda key: {**key, "key": serde.to_json(key["key"])})
    if store.type == "join_grace":
        return Side(_guarded(lambda data: serde.decode(data[9:-4])), serde.to_json, serde)
    if store.type == "subscription":
        parts = _guarded(lambda data: dict(zip(("foreign", "primary"), split_combined_key(data), strict=True)))
        return Side(parts, lambda key: {name: raw_json(part) for name, part in key.items()})
    return _side(serde)


def _changelog_value(store: StoreDef) -> Side:
    serde = store.value_serde
    if store.type in ("suppress", "join_grace"):

        def waiting(data: bytes) -> dict[str, Value]:
            buffered = decode_buffer_value(data)[0]
            return _each_value(serde, buffered.new, buffered.old)

        return Side(_guarded(waiting), partial(_each_json, serde))
    # Values of unmatched records belong to the serde of the side that the key names, subscriptions to no serde.
    return RAW if store.type in ("outer_join", "subscription") else _side(serde)


def _windowed_json(serde: Serde, key: WindowedKey) -> dict[str, Value]:
    return {"key": serde.to_json(key.key), "start": key.start, "end": key.end}


def _each_value(serde: Serde, new: bytes | None, old: bytes | None) -> dict[str, Value]:
    return {name: None if each is None else serde.decode(each) for name, each in (("new", new), ("old", old))}


def _each_json(serde: Serde, parts: dict[str, Value]) -> dict[str, Value]:
    return {name: None if each is None else serde.to_json(each) for name, each in parts.items()}


def _guarded(decode: Callable[[bytes], Value]) -> Callable[[bytes], Value]:
    """Return a function that raises SerdeError for bytes without the layout that it expects."""
    from struct import error as short

    def guarded(data: bytes) -> Value:
        try:
            return decode(data)
        except (short, IndexError, ValueError) as error:
            raise SerdeError(f"{len(data)} bytes do not have the layout of this topic ({error})") from error

    return guarded
