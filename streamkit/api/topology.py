"""A topology as a Python object: that of a file, or one that Python code builds."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit.api.topology_calls import TopologyCalls
from streamkit.errors import ConfigError, Position, Problem, TopologyError, UsageError
from streamkit.plan.model import Plan
from streamkit.spec.topology_file import read_text

if TYPE_CHECKING:
    from streamkit.api.application import Application, Listener
    from streamkit.api.topology_driver import TopologyDriver
    from streamkit.api.tried_records import TriedRecords
    from streamkit.runtime.spark.submission.topic_difference import Difference
    from streamkit.serdes.plain import Json
    from streamkit.spec.streams import SerdeSpec
    from streamkit.spec.topology_model import TopologyModel

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
    found = Topology("", settings=settings, environment=environment)
    found._recorded.head = {}
    if isinstance(source, str) and "\n" in source:
        found._recorded.text = source, "<text>"
    else:
        try:
            found._recorded.text = read_text(source), os.fspath(source)
        except TopologyError as error:
            found._unreadable = error.problems
    found._make()
    return found


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
        self._made: tuple[int, TopologyModel | None, Plan | None, list[Problem]] | None = None
        """The number of calls, and what they made."""

    def _make(self) -> tuple[TopologyModel | None, Plan | None, list[Problem]]:
        """Return the model, the plan and the problems of all calls so far."""
        if self._unreadable:
            return None, None, self._unreadable
        size = self._recorded.size
        if self._made is None or self._made[0] != size:
            self._made = (size, *self._build())
        return self._made[1:]

    def _build(self) -> tuple[TopologyModel | None, Plan | None, list[Problem]]:
        from streamkit import plan

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
        from streamkit.api.tried_records import try_records

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
        from streamkit.spec.yaml_writer import to_yaml

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
        from streamkit.plan.model import find_topic
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
        found = []
        for site in model.calls if model is not None else ():
            try:
                pickle.dumps(site.ref.target)
            except ConfigError as error:
                found.append(Problem(site.ref.position or Position("", 1, 1), f"{site.what}: {error}"))
        if found:
            raise TopologyError(found)

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
            return f"<Topology with {len(problems)} problems>"
        return f"<Topology {self.application_id}>"


def _each(
    inputs: Mapping[str, str | Path | Sequence[str | Path] | None],
) -> Iterator[tuple[str, str | Path | None]]:
    """Yield the topic and the path of each input."""
    for topic, found in inputs.items():
        for path in [found] if found is None or isinstance(found, str | Path) else found:
            yield topic, path


def _place(named: tuple[str, str | Path | None]) -> str:
    topic, path = named
    return topic if path is None else f"{topic}={path}"
