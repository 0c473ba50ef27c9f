"""A topology as a Python object: that of a file, or one that Python code builds."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit import plan
from streamkit.api.protocols import FunctionProcessor, ProcessorDecorator
from streamkit.errors import ConfigError, Position, Problem, TopologyError, UsageError
from streamkit.plan.model import Plan, find_topic
from streamkit.spec.call_places import calling_place, plain_name
from streamkit.spec.recorded_calls import Call
from streamkit.spec.recorded_topology import Entry, RecordedTopology, to_yaml
from streamkit.spec.streams import GlobalTable, Stream, Table
from streamkit.spec.topology_file import read_text
from streamkit.suggestions import number_of

if TYPE_CHECKING:
    from streamkit.api.application import Application, Listener
    from streamkit.api.topology_driver import TopologyDriver, TriedRecords
    from streamkit.runtime.spark.submission.topic_difference import Difference
    from streamkit.serdes.plain import Json
    from streamkit.spec.streams import Duration, Expression, SerdeSpec, StoreSpec
    from streamkit.spec.topology_model import TopologyModel

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

    def _entry(self, section: str, name: str, arguments: Mapping[str, object]) -> str:
        options = {plain_name(option): value for option, value in arguments.items() if value is not None}
        self._recorded.entries.append(Entry(section, name, options, calling_place()))
        return name


TEXT = "text"
CODE = "python"


def load(
    source: str | Path, settings: Mapping[str, object] | None = None, environment: Mapping[str, str] | None = None
) -> Topology:
    """Return the topology of a file, or of a text: a string with more than one line is YAML, any other a path.

    settings override all others; environment: variables for `${NAME}` and settings, those of the process by default.
    Mistakes in the topology raise nothing here: `problems` lists them. Raises UsageError for a file that can't be read,
    ConfigError for a setting.
    """
    topology = Topology("", settings=settings, environment=environment)
    topology._recorded.head = {}
    if isinstance(source, str) and "\n" in source:
        topology._recorded.text = source, "<text>"
    else:
        try:
            topology._recorded.text = read_text(source), os.fspath(source)
        except TopologyError as error:
            topology._unreadable = error.problems
    topology._make()
    return topology


class Topology(TopologyCalls):
    """A topology: that of a file (`load`), or one that Python code builds. A file's may be continued in Python.

    What gives a result raises TopologyError if the topology has mistakes; `problems` does not.

    >>> orders = Topology("large-orders")
    >>> orders.stream("orders", value="json").filter(lambda order: order["amount"] > 100).to("large")
    >>> with orders.driver() as driver:
    ...     driver.pipe("orders", {"amount": 120}, key="ann")
    ...     driver.read("large")
    [Record(key='ann', value={'amount': 120}, timestamp=0, headers=())]
    """

    def __init__(
        self,
        application: str,
        *,
        description: str | None = None,
        config: Mapping[str, object] | None = None,
        defaults: Mapping[str, SerdeSpec] | None = None,
        include: str | Path | Sequence[str | Path] | None = None,
        settings: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ):
        """Begin a topology. application, description, config, defaults, include: as in a file; the others as in `load`."""
        super().__init__()
        head: dict[str, object] = {"application": application, "description": description, "include": include}
        head |= {"config": config, "defaults": defaults}
        self._recorded.head = {name: value for name, value in head.items() if value is not None}
        self._settings = dict(settings or {})
        self._environment = os.environ if environment is None else environment
        self._unreadable: list[Problem] = []
        self._built: tuple[int, TopologyModel | None, Plan | None, list[Problem]] | None = None
        """The number of calls, and the model, plan and problems built from them."""

    def _make(self) -> tuple[TopologyModel | None, Plan | None, list[Problem]]:
        """Return the model, the plan and the problems of all calls so far."""
        if self._unreadable:
            return None, None, self._unreadable
        size = self._recorded.size
        if self._built is None or self._built[0] != size:
            self._built = (size, *self._build())
        return self._built[1:]

    def _build(self) -> tuple[TopologyModel | None, Plan | None, list[Problem]]:
        model = None
        try:
            model = self._recorded.load(environment=self._environment)
            return model, plan.build(model, self._settings, self._environment), []
        except TopologyError as error:
            return model, None, error.problems

    @property
    def problems(self) -> list[Problem]:
        """Every mistake with its position, in the order of the file; empty for a valid topology."""
        return list(self._make()[2])

    @property
    def plan(self) -> Plan:
        """The frozen plan. Raises TopologyError."""
        _, plan, problems = self._make()
        if plan is None:
            raise TopologyError(problems)
        return plan

    @property
    def application_id(self) -> str:
        """The application's id."""
        return self.plan.application

    def describe(self, format: str = TEXT) -> str:
        """Return a description of the topology; "text" is `Topology.describe()` of Kafka Streams.

        format: text, json, mermaid, dot, svg, html, or python (the generated code). Raises UsageError for another one.
        """
        from streamkit.compile.compiler import describe_code
        from streamkit.plan.describe import FORMATS, describe

        if format == CODE:
            return describe_code(self.plan)
        if format not in FORMATS:
            raise UsageError(f"format is {format!r}; expected one of {', '.join([*FORMATS, CODE])}")
        return describe(self.plan, format)

    def driver(self) -> TopologyDriver:
        """Return a test driver, which runs the topology in memory."""
        from streamkit.api.topology_driver import TopologyDriver

        return TopologyDriver(self.plan)

    def try_(self, records: str | Path | Iterable[Mapping[str, Json]]) -> TriedRecords:
        """Run the topology in memory over records, as `streamkit try` does; return what it writes, which shows itself as a table.

        records: in their JSON form (`topic`, `key`, `value`, `timestamp`, `headers`), or the path of a file of JSON Lines. Raises
        UsageError for a file that can't be read, and as `TopologyDriver.pipe`.
        """
        from streamkit.api.topology_driver import try_records

        return try_records(self.plan, records)

    def application(self, listener: Listener | None = None) -> Application:
        """Return an application that is not started; `listener` gets (new state, old state). Raises ConfigError."""
        from streamkit.api.application import Application

        return Application(self.plan, listener)

    def run(self, until_idle: bool = False) -> None:
        """Run the topology until SIGTERM or SIGINT, or until all input is processed. Raises the errors of `Application.run`."""
        self.application().run(until_idle)

    def to_yaml(self) -> str:
        """Return the text of a file with the same topology.

        Raises TopologyError for mistakes, and for each function that a file can't name, such as a lambda.
        """
        model, _, problems = self._make()
        if model is None:
            raise TopologyError(problems)
        return to_yaml(self._recorded)

    def submit(
        self,
        master: str | None = None,
        inputs: Mapping[str, str | Path | Sequence[str | Path] | None] | None = None,
        outputs: Mapping[str, str | Path | None] | None = None,
        *,
        emit: str | None = None,
        overwrite: bool = False,
        conf: Mapping[str, str] | None = None,
        compare: Sequence[str] = (),
    ) -> list[Difference]:
        """Run the topology over history as one batch job on Spark; return the differences from topics in `compare`.

        inputs, outputs: paths by topic (",format=parquet" may follow; an input may be a list); None, and every topic not named: the
        log. emit: "updates" or "final". conf: settings of Spark. Raises ConfigError without Spark, UsageError, TransportError.
        """
        from streamkit.runtime.spark.job_options import JobOptions
        from streamkit.runtime.spark.spark_session import Cluster
        from streamkit.runtime.spark.submission.request import inputs_of, outputs_of, run_job
        from streamkit.runtime.spark.submission.submit_job import check

        self._check_pickles()
        options = JobOptions(
            inputs_of(self.plan, map(_place, _each(inputs or {}))),
            outputs_of(self.plan, map(_place, (outputs or {}).items())),
            emit,
            overwrite=overwrite,
            compare=tuple(find_topic(self.plan, name).name for name in compare),
        )
        check(self.plan, options)
        return run_job(self.plan, options, Cluster(master, conf or {}))

    def _check_pickles(self) -> None:
        """Raise TopologyError with the place of each function that can't be sent to the workers of Spark."""
        model = self._make()[0]
        problems = []
        for site in model.calls if model is not None else ():
            try:
                pickle.dumps(site.ref.target)
            except ConfigError as error:
                problems.append(Problem(site.ref.position or Position("", 1, 1), f"{site.what}: {error}"))
        if problems:
            raise TopologyError(problems)

    def _repr_html_(self) -> str:
        """Return the drawing, which notebooks show; for a topology with mistakes, these."""
        problems = self.problems
        if problems:
            from html import escape

            return f"<pre>{escape(str(TopologyError(problems)))}</pre>"
        return self.describe("svg")

    def __repr__(self) -> str:
        problems = self.problems
        if problems:
            return f"<Topology with {number_of(len(problems), 'problem')}>"
        return f"<Topology {self.application_id}>"


def _each(
    inputs: Mapping[str, str | Path | Sequence[str | Path] | None],
) -> Iterator[tuple[str, str | Path | None]]:
    """Yield the topic and the path of each input."""
    for topic, paths in inputs.items():
        for path in [paths] if paths is None or isinstance(paths, str | Path) else paths:
            yield topic, path


def _place(named: tuple[str, str | Path | None]) -> str:
    topic, path = named
    return topic if path is None else f"{topic}={path}"
