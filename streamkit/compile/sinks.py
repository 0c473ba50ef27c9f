"""Writes sinks: a record becomes a row of the task's output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamkit.compile.changed import join_changed
from streamkit.errors import StreamkitError
from streamkit.plan.model import SinkNode
from streamkit.serdes.base import Serde
from streamkit.serdes.partitioner import partition

if TYPE_CHECKING:
    from streamkit.compile.generator import Generator


def emit_sink(node: SinkNode, gen: Generator) -> None:
    """Write the encoding of the record in hand and the row that it becomes."""
    with gen.guard(node):
        if node.route is None:
            topic = _topic(node, gen)
            key, value = gen.raw(gen.hand.key, node.key_serde), _value(node, gen)
        else:
            key, value, topic = _routed_record(node, gen)
        where = _partition(node, gen, key, topic)
    gen.line(f"out(({topic}, {key}, {value}, {gen.hand.time}, {gen.headers()}, {where}))")


def _value(node: SinkNode, gen: Generator) -> str:
    """Return the variable of the value's bytes."""
    if node.value_kind == "plain":
        return gen.raw(gen.hand.value, node.value_serde)
    if node.value_kind == "changed":
        assert gen.hand.old is not None
        new, old = gen.raw(gen.hand.value, node.value_serde), gen.raw(gen.hand.old, node.value_serde)
        value = gen.var("b")
        gen.line(f"{value} = {gen.name_of(join_changed, 'join_changed')}({new}, {old})")
        return value
    # Foreign-key joins hand over bytes; a response comes with the partition that asked.
    value = gen.obj(gen.hand.value)
    return f"{value}[0]" if node.value_kind == "response" else value


def _routed_record(node: SinkNode, gen: Generator) -> tuple[str, str, str]:
    """Return the variables of key, value and topic; a registry's serdes write by the subject of each record's topic."""
    found: list[str] = []
    by_topic: list[tuple[int, str, Serde]] = []
    for slot, serde in ((gen.hand.key, node.key_serde), (gen.hand.value, node.value_serde)):
        if serde.by_topic:
            by_topic.append((len(found), gen.obj(slot), serde))
            found.append(gen.var("b"))
        else:
            found.append(gen.raw(slot, serde))
    topic = _topic(node, gen)
    for index, variable, serde in by_topic:
        encode = gen.name_of(RoutedEncoder(serde, index == 0), "encode")
        gen.line(f"{found[index]} = None if {variable} is None else {encode}({topic}, {variable})")
    return found[0], found[1], topic


class RoutedEncoder:
    """Encodes by the serde that a topic has, which is bound when the topic first occurs."""

    def __init__(self, serde: Serde, is_key: bool):
        self._serde = serde
        self._is_key = is_key
        self._known: dict[str, Serde] = {}

    def __call__(self, topic: str, value: Any) -> bytes:
        """Return the bytes of a value for a topic. Raises SerdeError, RegistryError."""
        serde = self._known.get(topic)
        if serde is None:
            serde = self._known[topic] = self._serde.on_topic(topic, self._is_key)
        return serde.encode(value)


def _topic(node: SinkNode, gen: Generator) -> str:
    if node.topic is not None:
        return repr(gen.plan.internal_name(node.topic))
    name = gen.var("topic")
    gen.line(f"{name} = {gen.name_of(routed, 'routed')}({gen.expr(node.route)})")
    return name


def _partition(node: SinkNode, gen: Generator, key: str, topic: str) -> str:
    if node.value_kind == "response":
        return f"{gen.obj(gen.hand.value)}[1]"
    if node.partition is not None:
        count, name = gen.var("count"), gen.var("partition")
        gen.line(f"{count} = rt.partitions({topic})")
        source = gen.expr(node.partition, partitions=count)
        gen.line(f"{name} = {gen.name_of(checked_partition, 'checked')}({source}, {count})")
        return name
    tail = windowed_tail(node.key_serde)
    if tail == 0:
        return "None"
    name = gen.var("partition")
    inner = gen.name_of(partition, "partition")
    gen.line(f"{name} = None if {key} is None else {inner}({key}[:-{tail}], rt.partitions({topic}))")
    return name


def windowed_tail(serde: Serde) -> int:
    """Return how many bytes of an encoded key are its window; they don't decide the partition (WindowedStreamPartitioner)."""
    spec = serde.spec
    if isinstance(spec, dict) and "windowed" in spec:
        return 8
    if isinstance(spec, dict) and "session_windowed" in spec:
        return 16
    return 0


def routed(topic: Any) -> str:
    """Return a topic name that `route` gave; raises where it is none."""
    if not isinstance(topic, str) or not topic:
        raise StreamkitError(f"route gave {topic!r}; expected the name of a topic")
    return topic


def checked_partition(number: Any, count: int) -> int:
    """Return a partition that `partition:` gave; raises outside 0 … count - 1."""
    if type(number) is not int or not 0 <= number < count:
        raise StreamkitError(f"partition gave {number!r}; expected a number from 0 to {count - 1}")
    return number
