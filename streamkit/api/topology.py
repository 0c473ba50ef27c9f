"""A topology file as a Python object."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit.errors import Problem, TopologyError, UsageError
from streamkit.plan.model import Plan

if TYPE_CHECKING:
    from streamkit.api.application import Application, Listener
    from streamkit.api.topology_driver import TopologyDriver
    from streamkit.runtime.spark.submission.topic_difference import Difference

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
    return Topology(source, settings or {}, os.environ if environment is None else environment)


class Topology:
    """A topology. Everything but `problems` raises TopologyError if the file has mistakes."""

    def __init__(self, source: str | Path, settings: Mapping[str, object], environment: Mapping[str, str]):
        self._source = source
        self._settings = dict(settings)
        self._environment = environment
        self._plan: Plan | None = None
        self._problems: list[Problem] = []
        try:
            self._plan = self._build()
        except TopologyError as error:
            self._problems = error.problems

    def _build(self) -> Plan:
        from streamkit import plan, spec

        if isinstance(self._source, str) and "\n" in self._source:
            model = spec.load_text(self._source, "<text>", environment=self._environment)
        else:
            model = spec.load(self._source, environment=self._environment)
        return plan.build(model, self._settings, self._environment)

    @property
    def problems(self) -> list[Problem]:
        """Every mistake of the file with its position, in the order of the file; empty for a valid one."""
        return list(self._problems)

    @property
    def plan(self) -> Plan:
        """The frozen plan. Raises TopologyError."""
        if self._plan is None:
            raise TopologyError(self._problems)
        return self._plan

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

    def application(self, listener: Listener | None = None) -> Application:
        """Return an application that is not started; `listener` gets (new state, old state). Raises ConfigError."""
        from streamkit.api.application import Application

        return Application(self.plan, listener)

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
        from streamkit.plan.lookup import find_topic
        from streamkit.runtime.spark.job_options import JobOptions
        from streamkit.runtime.spark.spark_session import Cluster
        from streamkit.runtime.spark.submission.request import inputs_of, outputs_of, run_job
        from streamkit.runtime.spark.submission.submit_job import check

        options = JobOptions(
            inputs_of(self.plan, map(_place, _each(inputs or {}))),
            outputs_of(self.plan, map(_place, (outputs or {}).items())),
            emit,
            overwrite=overwrite,
            compare=tuple(find_topic(self.plan, name).name for name in compare),
        )
        check(self.plan, options)
        return run_job(self.plan, options, Cluster(master, conf or {}))

    def _repr_html_(self) -> str:
        """Return the drawing, which notebooks show; for a topology with mistakes, these."""
        if self._problems:
            from html import escape

            return f"<pre>{escape(str(TopologyError(self._problems)))}</pre>"
        return self.describe("svg")

    def __repr__(self) -> str:
        if self._problems:
            return f"<Topology with {len(self._problems)} problems>"
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
