"""The methods that build a topology in Python: its sources, topics, stores and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from streamkit.api.function_processor import FunctionProcessor, ProcessorDecorator
from streamkit.spec.call_places import calling_place, plain_name
from streamkit.spec.recorded_calls import Call
from streamkit.spec.recorded_topology import Entry, RecordedTopology
from streamkit.spec.streams import GlobalTable, Stream, Table

if TYPE_CHECKING:
    from streamkit.spec.streams import Duration, Expression, SerdeSpec, StoreSpec

    TopicConfig = Mapping[str, str | int | float | bool]


class TopologyCalls:
    """Records what Python code calls on a topology."""

    def __init__(self) -> None:
        self._recorded = RecordedTopology(calling_place())

    def stream(
        self,
        topic: str | Sequence[str] | None = None,
        *,
        pattern: str | None = None,
        key: SerdeSpec | None = None,
        value: SerdeSpec | None = None,
        timestamp: Expression | None = None,
        reset: str | Mapping[str, str | int] | None = None,
        partitions: int | None = None,
        name: str | None = None,
    ) -> Stream:
        """Read topics as a stream: one, several, or all whose names match a pattern.

        key, value, timestamp, reset, partitions: the entry of the topic, unless `topic` declares it. name: of the source's node.
        """
        options = {"pattern": pattern, "key": key, "value": value, "timestamp": timestamp, "reset": reset}
        call = self._source("stream", topic, {**options, "partitions": partitions, "name": name})
        return Stream(self._recorded.recorder, call)

    def table(
        self,
        topic: str,
        *,
        key: SerdeSpec | None = None,
        value: SerdeSpec | None = None,
        timestamp: Expression | None = None,
        reset: str | Mapping[str, str | int] | None = None,
        partitions: int | None = None,
        store: StoreSpec | None = None,
        name: str | None = None,
    ) -> Table:
        """Read a topic as a table; the options of `stream`, and `store`: the store of its rows."""
        options = {"key": key, "value": value, "timestamp": timestamp, "reset": reset, "partitions": partitions}
        return Table(self._recorded.recorder, self._source("table", topic, {**options, "store": store, "name": name}))

    def global_table(
        self,
        topic: str,
        *,
        key: SerdeSpec | None = None,
        value: SerdeSpec | None = None,
        timestamp: Expression | None = None,
        partitions: int | None = None,
        store: StoreSpec | None = None,
        name: str | None = None,
    ) -> GlobalTable:
        """Read a topic as a table that each instance has as a whole; the options of `table`."""
        options = {"key": key, "value": value, "timestamp": timestamp, "partitions": partitions}
        call = self._source("global_table", topic, {**options, "store": store, "name": name})
        return GlobalTable(self._recorded.recorder, call)

    def global_store(
        self, topic: str, store: str, *, process: str | Callable[..., object] | None = None, name: str | None = None
    ) -> None:
        """Fill one of the topology's stores from a topic, as a whole in each instance; `process` writes to it."""
        self._source("global_store", topic, {"store": store, "process": process, "name": name})

    def read_only_store(
        self,
        topic: str,
        store: str,
        *,
        process: str | Callable[..., object] | None = None,
        name: str | None = None,
        source_name: str | None = None,
    ) -> None:
        """Fill one of the topology's stores from a topic, which serves as its changelog; `process` writes to it."""
        options = {"store": store, "process": process, "name": name, "source_name": source_name}
        self._source("read_only_store", topic, options)

    def topic(
        self,
        name: str,
        *,
        topic: str | None = None,
        key: SerdeSpec | None = None,
        value: SerdeSpec | None = None,
        timestamp: Expression | None = None,
        reset: str | Mapping[str, str | int] | None = None,
        partitions: int | None = None,
        replication_factor: int | None = None,
        config: TopicConfig | None = None,
    ) -> str:
        """Declare a topic and return its name. topic: its name on the log, if that is another."""
        options = {"topic": topic, "key": key, "value": value, "timestamp": timestamp, "reset": reset}
        more = {"partitions": partitions, "replication_factor": replication_factor, "config": config}
        return self._entry("topics", name, {**options, **more})

    def store(
        self,
        name: str,
        type: str = "key_value",
        *,
        key: SerdeSpec | None = None,
        value: SerdeSpec | None = None,
        persistent: bool | None = None,
        caching: bool | None = None,
        logging: bool | None = None,
        config: TopicConfig | None = None,
        retention: Duration | None = None,
        window_size: Duration | None = None,
        segment_interval: Duration | None = None,
        history: Duration | None = None,
        ttl: Duration | None = None,
    ) -> str:
        """Declare a store for processors and return its name; type: key_value, window, session or versioned."""
        serdes = {"type": type, "key": key, "value": value}
        flags = {"persistent": persistent, "caching": caching, "logging": logging, "config": config}
        lengths = {"retention": retention, "window_size": window_size, "segment_interval": segment_interval}
        return self._entry("stores", name, {**serdes, **flags, **lengths, "history": history, "ttl": ttl})

    def function(
        self,
        name: str,
        call: str | Callable[..., object] | None = None,
        *,
        with_: Mapping[str, object] | None = None,
        params: Sequence[str] | None = None,
        expr: str | None = None,
    ) -> None:
        """Declare a function for expressions in text: a callable, or an expression over `params`."""
        self._entry("functions", name, {"call": call, "with_": with_, "params": params, "expr": expr})

    def processor(
        self, *, stores: Sequence[str] | Mapping[str, Mapping[str, object]] = ()
    ) -> Callable[[Callable[..., object]], type[FunctionProcessor]]:
        """Decorate a function that `process` runs, as `streamkit.processor` does; a mapping of `stores` declares them, too."""
        if isinstance(stores, Mapping):
            for name, options in stores.items():
                self._entry("stores", name, {"type": "key_value", **options})
        return ProcessorDecorator(tuple(stores))

    def _source(self, kind: str, topic: object, options: Mapping[str, object]) -> Call:
        return self._recorded.recorder.record(kind, None, () if topic is None else (topic,), options)

    def _entry(self, section: str, name: str, options: Mapping[str, object]) -> str:
        given = {plain_name(each): value for each, value in options.items() if value is not None}
        self._recorded.entries.append(Entry(section, name, given, calling_place()))
        return name
