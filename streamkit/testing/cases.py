"""The contents of a test file: cases, their phases, input and expectations, with their positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit.errors import Position
from streamkit.serdes.plain import Document, Json
from streamkit.spec.yaml_nodes import Node, Source
from streamkit.spec.yaml_reader import Name

if TYPE_CHECKING:
    from streamkit.runtime.spark.submission.job_file import JobFile

RECORD_FIELDS = ("key", "value", "timestamp", "headers")
ORDERED, UNORDERED, CONTAINS = MATCHES = ("ordered", "unordered", "contains")
ALL, LAST = COMPARED = ("all", "last")
RESTART, REBALANCE, CRASH = FAULTS = ("restart", "rebalance", "crash")


@dataclass(frozen=True)
class Sample:
    """The first records of each input of a job file, of files and tables, in the order of a job."""

    job: JobFile
    limit: int


@dataclass(frozen=True)
class Given:
    """One action of a test: it sends a record or a sample, moves the clock by milliseconds, or restarts the application."""

    position: Position
    record: Mapping[str, Json] | None = None
    """In the JSON form, its topic by the physical name."""
    advance_ms: int | None = None
    restart: bool = False
    sample: Sample | None = None


@dataclass(frozen=True)
class Expected:
    """One record, or one row of a store: the fields that the file gives. node: None if it comes from another file."""

    fields: Mapping[str, Document]
    position: Position
    node: Node | None


@dataclass(frozen=True)
class Expectation:
    """The expected records of a topic, or rows of a store.

    name: the topic's entry or the store; match: one of MATCHES; partial: fields left out are not compared;
    node: the value after the name; records_node: the list in it; file: the file that contains the records instead.
    """

    name: str
    kind: str
    match: str
    partial: bool
    records: tuple[Expected, ...]
    position: Position
    key: Node
    node: Node
    records_node: Node
    file: Path | None = None


@dataclass(frozen=True)
class Plain:
    """A single value that is expected: the text of an error, the number of dropped records."""

    value: Document
    node: Node

    @property
    def position(self) -> Position:
        """The position of the value."""
        return self.node.position


@dataclass(frozen=True)
class Described:
    """The text of `describe` that is expected; file: the file that contains it, None for inline text."""

    text: str
    node: Node
    file: Path | None


@dataclass(frozen=True)
class Phase:
    """The input of a phase, and its expected results."""

    position: Position
    node: Node
    given: tuple[Given, ...] = ()
    expect: Mapping[str, Expectation] = field(default_factory=dict)
    stores: Mapping[str, Expectation] = field(default_factory=dict)
    error: Plain | None = None
    dropped: Plain | None = None

    @property
    def expects_something(self) -> bool:
        """Whether there is anything to compare."""
        return bool(self.expect or self.stores or self.error or self.dropped)


@dataclass(frozen=True)
class Case:
    """One test. settings: config values in place of the topology's; clock: where the wall clock starts, ms."""

    name: str
    position: Position
    phases: tuple[Phase, ...]
    settings: Mapping[str, Json]
    clock: int = 0
    describe: Described | None = None

    @property
    def compares(self) -> bool:
        """Whether there is anything to compare."""
        return self.describe is not None or any(phase.expects_something for phase in self.phases)


@dataclass(frozen=True)
class Simulation:
    """The section `simulate`. partitions: of each topic; threads: of each instance; accept: the steps that may depend on order.

    compare: ALL records of each key, or the LAST.
    faults: of FAULTS; None: all that must not change the output under the topology's `processing.guarantee`.
    """

    partitions: int = 3
    instances: int = 2
    threads: int = 1
    faults: tuple[str, ...] | None = None
    accept: tuple[str, ...] = ()
    compare: str = ALL


@dataclass(frozen=True)
class CaseFile:
    """A test file."""

    path: Path
    source: Source
    topology: Path
    environment: Mapping[str, str]
    settings: Mapping[str, Json]
    cases: tuple[Case, ...]
    simulation: Simulation = Simulation()
    names: tuple[Name, ...] = ()
    """The places that name topics and stores of the topology."""
