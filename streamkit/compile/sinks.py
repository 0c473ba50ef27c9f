"""Writes the code of sinks, which append records to the output of the task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkit.code import NONE, Code, call, compare, item, literal, negated, sliced, symbol, tuple_of, unless_none
from streamkit.compile.changed import join_changed
from streamkit.errors import StreamkitError
from streamkit.metrics import DropReason
from streamkit.plan.model import Plan, SinkNode, SubTopology
from streamkit.record import Value
from streamkit.serdes.partitioner import partition
from streamkit.serdes.serde import Serde

if TYPE_CHECKING:
    from streamkit.compile.generator import Generator


def emit_sink(node: SinkNode, gen: Generator) -> None:
    """Write the encoding of the current record and the output of its row."""
    with gen.guard(node):
        topic = _topic(node, gen)
        given = None if node.partition is None else _given_partition(node, gen, topic)
    with gen.guard(node, "unencodable"):
        if node.route is None:
            key, value = gen.bytes_of(gen.record.key, node.key_serde), _value(node, gen)
        else:
            key, value = _routed_record(node, gen, topic)
        where = given or _partition(node, gen, key, topic)
    row = (topic, key, value, gen.record.time, gen.headers())
    if node.partition is None or node.value_kind in ("subscription", "response"):
        gen.do(call("out", tuple_of(*row, where)))
        return
    with gen.when(compare(call("type", where), "is", symbol("tuple"))):
        each = gen.var("partition")
        with gen.when(negated(where)):
            gen.drop(DropReason.NO_PARTITION)
        with gen.each((each,), where):
            gen.do(call("out", tuple_of(*row, each)))
    with gen.otherwise():
        gen.do(call("out", tuple_of(*row, where)))


def sinks_by_topic(plan: Plan, sub_topology: SubTopology) -> dict[str, str]:
    """Return the names of the sinks whose records are exactly the output rows of one topic, by that topic.

    Others share their topic, or write a record to several topics or partitions.
    """
    sinks = [node for node in sub_topology.nodes.values() if isinstance(node, SinkNode)]
    if any(node.topic is None for node in sinks):
        return {}
    names = [plan.internal_name(node.topic) for node in sinks if node.topic is not None]
    return {
        topic: node.name
        for topic, node in zip(names, sinks, strict=True)
        if names.count(topic) == 1 and (node.partition is None or node.value_kind in ("subscription", "response"))
    }


def _value(node: SinkNode, gen: Generator) -> Code:
    """Return the piece of the value's bytes."""
    if node.value_kind == "plain":
        return gen.bytes_of(gen.record.value, node.value_serde)
    if node.value_kind == "changed":
        assert gen.record.old is not None
        new, old = gen.bytes_of(gen.record.value, node.value_serde), gen.bytes_of(gen.record.old, node.value_serde)
        value = gen.var("b")
        gen.assign(value, call(gen.name_of(join_changed, "join_changed"), new, old))
        return value
    # Foreign-key joins forward bytes; a response carries the partition of its subscription.
    value = gen.object_of(gen.record.value)
    return item(value, 0) if node.value_kind == "response" else value


def _routed_record(node: SinkNode, gen: Generator, topic: Code) -> tuple[Code, Code]:
    """Return the variables of key and value; a registry's serdes write by the subject of each record's topic."""
    found: list[Code] = []
    by_topic: list[tuple[int, Code, Serde]] = []
    for slot, serde in ((gen.record.key, node.key_serde), (gen.record.value, node.value_serde)):
        if serde.by_topic:
            by_topic.append((len(found), gen.object_of(slot), serde))
            found.append(gen.var("b"))
        else:
            found.append(gen.bytes_of(slot, serde))
    for index, variable, serde in by_topic:
        encode = gen.name_of(RoutedEncoder(serde, index == 0), "encode")
        gen.assign(found[index], unless_none(variable, call(encode, topic, variable)))
    return found[0], found[1]


class RoutedEncoder:
    """Encodes with the serde bound to each topic; it binds the serde when a topic first occurs."""

    def __init__(self, serde: Serde, is_key: bool):
        self._serde = serde
        self._is_key = is_key
        self._known: dict[str, Serde] = {}

    def __call__(self, topic: str, value: Value) -> bytes:
        """Return the bytes of a value for a topic. Raises SerdeError, RegistryError."""
        serde = self._known.get(topic)
        if serde is None:
            serde = self._known[topic] = self._serde.on_topic(topic, self._is_key)
        return serde.encode(value)


def _topic(node: SinkNode, gen: Generator) -> Code:
    if node.topic is not None:
        return literal(gen.plan.internal_name(node.topic))
    assert node.route is not None
    topic = gen.var("topic")
    gen.assign(topic, call(gen.name_of(routed, "routed"), gen.expr(node.route)))
    return topic


def _given_partition(node: SinkNode, gen: Generator, topic: Code) -> Code:
    """Return the variable of the partition from the sink's own expression."""
    count, found = gen.var("count"), gen.var("partition")
    gen.assign(count, call("rt.partitions", topic))
    assert node.partition is not None
    given = gen.expr(node.partition, partitions=count)
    check = joining_partition if node.value_kind in ("subscription", "response") else checked_partition
    gen.assign(found, call(gen.name_of(check, "checked"), given, count))
    return found


def _partition(node: SinkNode, gen: Generator, key: Code, topic: Code) -> Code:
    partitions = call("rt.partitions", topic)
    if node.value_kind == "response":
        return item(gen.object_of(gen.record.value), 1)
    tail = windowed_tail(node.key_serde)
    if tail == 0 or (node.internal and node.value_kind != "subscription"):
        # Repartition topics are partitioned by all bytes of a windowed key (BaseRepartitionNode).
        return NONE
    found = gen.var("partition")
    inner = sliced(key, stop=-tail)
    gen.assign(found, unless_none(key, call(gen.name_of(partition, "partition"), inner, partitions)))
    return found


def windowed_tail(serde: Serde) -> int:
    """Return how many bytes of an encoded key are its window; they don't decide the partition (WindowedStreamPartitioner)."""
    spec = serde.spec
    if isinstance(spec, dict) and "windowed" in spec:
        return 8
    if isinstance(spec, dict) and "session_windowed" in spec:
        return 16
    return 0


def routed(topic: object) -> str:
    """Return the topic name that `route` gave. Raises StreamkitError for anything else."""
    if not isinstance(topic, str) or not topic:
        raise StreamkitError(f"route gave {topic!r}; expected the name of a topic")
    return topic


def checked_partition(found: object, count: int) -> int | tuple[int | None, ...] | None:
    """Return a partition that an expression gave, None for the key's, or a tuple of several in ascending order.

    Raises StreamkitError for anything but a number from 0 to count - 1 or a list of them (StreamPartitioner.partitions).
    """
    if type(found) is int and 0 <= found < count:
        return found
    if found is None:
        return None
    if isinstance(found, (list, tuple, set, frozenset)) and all(
        type(each) is int and 0 <= each < count for each in found
    ):
        return tuple(sorted(set(found)))
    raise StreamkitError(f"partition gave {found!r}; expected a number from 0 to {count - 1}, a list of them, or None")


def joining_partition(found: object, count: int) -> int | None:
    """Return the one partition that an expression of a foreign-key join gave, or None. Raises StreamkitError for several."""
    partition = checked_partition(found, count)
    if not isinstance(partition, tuple):
        return partition
    if len(partition) != 1:
        raise StreamkitError(f"a foreign-key join sends each record to one partition; its expression gave {found!r}")
    return partition[0]
