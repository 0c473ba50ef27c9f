"""Reads the cases of a test file with the reader of topologies, and reports all mistakes at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from streamkit.durations import TIME_FORMS, instant
from streamkit.errors import Position, Problem, RegistryError, SerdeError, StreamkitError, TopologyError
from streamkit.graph.physical_topology import StepRef
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode
from streamkit.runtime.execution.dead_letters import dead_letter_topics
from streamkit.runtime.records import RecordJson
from streamkit.serdes.plain import Document, Json
from streamkit.serdes.serde import Serde
from streamkit.spec import yaml_reader as spec_names
from streamkit.spec.topology_file import ordered, read_text
from streamkit.spec.yaml_nodes import Node, Source, check_keys, compose
from streamkit.spec.yaml_reader import BAD, Reader, Resolver
from streamkit.suggestions import did_you_mean
from streamkit.testing.cases import (
    ALL,
    COMPARED,
    FAULTS,
    MATCHES,
    ORDERED,
    RECORD_FIELDS,
    UNORDERED,
    Case,
    CaseFile,
    Described,
    Expectation,
    Expected,
    Given,
    Phase,
    Plain,
    Sample,
    Simulation,
)
from streamkit.testing.generated_records import START, chosen, generated

if TYPE_CHECKING:
    from streamkit.runtime.spark.submission.job_file import JobFile

# Reads the phases of a test: records, clock advances, expectations on topics and stores.

PHASE_KEYS = ("given", "expect", "stores", "error", "dropped")
EXPECTATION_KEYS = ("match", "partial", "records", "file")
CONTROLS = ("advance_wall_clock", "restart", "file", "generate", "sample")
GENERATE_KEYS = ("count", "seed", "start", "topics")
SAMPLE_KEYS = ("job", "limit")


class Phases:
    """Reads the phases of one test."""

    def __init__(self, reader: Reader, folder: Path, names: Names, plan: Plan, job_of: Callable[[str], JobFile]):
        self._reader = reader
        self._folder = folder
        self._job_of = job_of
        self._names = names
        self._stores = plan.stores
        self._generators = plan.generators

    def read(self, node: Node, what: str) -> Phase:
        """Return the phase of a mapping."""
        return self.of(node, self._reader.options(node, what, PHASE_KEYS))

    def of(self, node: Node, options: dict[str, Node]) -> Phase:
        """Return the phase of options that were already looked up; `node` is the mapping that contains them."""
        reader = self._reader
        return Phase(
            position=node.position,
            node=node,
            given=tuple(self._given(options["given"])) if "given" in options else (),
            expect=self._expectations(options.get("expect"), "topic"),
            stores=self._expectations(options.get("stores"), "store"),
            error=self._plain(reader.text, options.get("error"), "'error'"),
            dropped=self._plain(lambda at, what: reader.integer(at, what, 0), options.get("dropped"), "'dropped'"),
        )

    def check_errors(self, phases: tuple[Phase, ...]) -> None:
        """Report a step that follows an expected error."""
        for phase in phases[:-1]:
            if phase.error is not None:
                self._reader.report(phase.error.node, "An error ends the application, so no step may follow it")

    def _plain(self, read: Callable[[Node, str], Document], node: Node | None, what: str) -> Plain | None:
        value = read(node, what) if node is not None else BAD
        return None if node is None or value is BAD else Plain(value, node)

    # -- Given -----------------------------------------------------------------------------------------------------

    def _given(self, node: Node) -> Iterator[Given]:
        reader = self._reader
        if node.kind == "mapping":
            for name, (key, records) in reader.entries(node, "'given'").items():
                reader.use("topic", name, key)
                topic = self._input(name, key)
                for item in reader.items(records, f"What is given to {name!r}"):
                    yield from self._record(item, topic)
            return
        for item in reader.items(node, "'given'"):
            entries = reader.entries(item, "An entry of 'given'")
            control = next((name for name in CONTROLS if name in entries), None)
            if control is None:
                topic = entries.get("topic")
                if item.kind == "mapping" and topic is None:
                    reader.report(item, f"A record needs 'topic', unless it has one of {', '.join(CONTROLS)}")
                    continue
                text = reader.text(topic[1], "'topic'") if topic else BAD
                if text is BAD or topic is None:
                    yield from self._record(item, BAD)
                    continue
                reader.use("topic", text, topic[1])
                yield from self._record(item, self._input(text, topic[1]))
            else:
                yield from self._control(control, item)

    def _control(self, name: str, item: Node) -> Iterator[Given]:
        reader = self._reader
        options = reader.options(item, f"{name!r}", (name,))
        node = options.get(name)
        if node is None:
            reader.report(item, f"{name!r} needs a value")
        elif name == "advance_wall_clock":
            by = reader.duration(node, repr(name))
            if by is not BAD:
                yield Given(item.position, advance_ms=by)
        elif name == "restart":
            if reader.boolean(node, repr(name)) is True:
                yield Given(item.position, restart=True)
        elif name == "generate":
            yield from self._generate(node)
        elif name == "sample":
            yield from self._sample(node)
        else:
            yield from self._records_of_file(node)

    def _generate(self, node: Node) -> Iterator[Given]:
        reader = self._reader
        if not self._generators:
            reader.report(node, "The topology has no generators")
            return
        options = reader.options(node, "'generate'", GENERATE_KEYS, ("count",))
        count = reader.integer(options["count"], "'count'", 0) if "count" in options else BAD
        seed = reader.integer(options["seed"], "'seed'", 0, 2**63 - 1) if "seed" in options else 0
        at: dict[str, Document] = {"timestamp": reader.data(options["start"]) if "start" in options else START}
        if count is BAD or seed is BAD or not self._timestamp(at, options.get("start", node)):
            return
        names = (
            [reader.topic(item, "A topic") for item in reader.items(options["topics"], "'topics'")]
            if "topics" in options
            else []
        )
        try:
            specs = chosen(self._generators, [name for name in names if name is not BAD])
            for record in islice(generated(specs, seed, at["timestamp"]), count):
                topic = self._input(record["topic"], node)
                if topic is BAD:
                    return
                self._names.check_record({**record, "topic": topic})
                yield Given(node.position, {**record, "topic": topic})
        except StreamkitError as error:
            reader.report(node, str(error))

    def _sample(self, node: Node) -> Iterator[Given]:
        from streamkit.runtime.spark.submission.lake_sample import LIMIT

        reader = self._reader
        options = reader.options(node, "'sample'", SAMPLE_KEYS, ("job",))
        limit = reader.integer(options["limit"], "'limit'", 1) if "limit" in options else LIMIT
        name = reader.text(options["job"], "'job'") if "job" in options else BAD
        if limit is BAD or name is BAD:
            return
        try:
            job = self._job_of(str(self._folder / name))
        except TopologyError as error:
            reader.report_all(error)
            return
        except StreamkitError as error:
            reader.report(options["job"], str(error))
            return
        if not job.options.inputs:
            reader.report(options["job"], f"{name} has no inputs in files or tables to take a sample from")
        topics = map(self._names.entry, job.options.inputs)
        if BAD not in [self._input(topic, options["job"]) for topic in topics]:
            yield Given(node.position, sample=Sample(job, limit))

    def _input(self, name: str, node: Node) -> Document:
        topic = self._names.input(name)
        if topic is None:
            hint = spec_names.hint(name, self._names.read, "input topics")
            return self._reader.report(node, f"The topology does not read a topic {name!r}{hint}")
        return topic

    def _record(self, item: Node, topic: Document) -> Iterator[Given]:
        fields = self._fields(item, "A record", ("topic", *RECORD_FIELDS))
        if fields is BAD or topic is BAD:
            return
        fields.pop("topic", None)
        record = {"topic": topic, **fields}
        try:
            self._names.check_record(record)
        except SerdeError as error:
            self._reader.report(item, f"The record does not fit: {error}")
            return
        yield Given(item.position, record)

    def _records_of_file(self, node: Node) -> Iterator[Given]:
        for number, position, record in self._file_objects(node):
            if record.keys() == {"advance_wall_clock"}:
                yield Given(position, advance_ms=record["advance_wall_clock"])
                continue
            name = record.get("topic")
            topic = self._input(name, node) if isinstance(name, str) else None
            if topic is None:
                self._reader.report(node, f"Line {number} of {position.file} has no topic")
            if not topic:
                return
            try:
                self._names.check_record({**record, "topic": topic})
            except SerdeError as error:
                self._reader.report(node, f"Line {number} of {position.file} does not fit: {error}")
                return
            yield Given(position, {**record, "topic": topic})

    def _file_objects(self, node: Node) -> Iterator[tuple[int, Position, dict[str, Document]]]:
        """Yield the objects of a JSON Lines file, with their number and place."""
        name = self._reader.text(node, "'file'")
        if name is BAD:
            return
        path = self._folder / name
        try:
            # JSON may contain U+2028 and other characters at which splitlines() ends a line.
            for number, line in enumerate(read_text(path).split("\n"), 1):
                if line.strip():
                    record = json.loads(line)
                    if not isinstance(record, dict):
                        raise ValueError("expected an object")
                    yield number, Position(str(path), number, 1), record
        except StreamkitError as error:
            self._reader.report(node, str(error))
        except ValueError as error:
            self._reader.report(node, f"Line {number} of {path} is not JSON: {error}")

    def _fields(self, item: Node, what: str, keys: tuple[str, ...]) -> Document:
        """Return the fields of a record, or BAD if one is wrong. A field that is null is present."""
        if item.kind != "mapping":
            return self._reader.report_mismatch(item, what, f"a mapping of {', '.join(keys)}")
        fields: dict[str, Json] = {}
        bad = False
        for name, (key, value) in self._reader.entries(item, what).items():
            if name not in keys:
                self._reader.unknown(key, what, keys)
                bad = True
                continue
            fields[name] = self._reader.data(value)
            if name == "timestamp" and fields[name] is not None:
                bad |= not self._timestamp(fields, value)
        return BAD if bad else fields

    def _timestamp(self, fields: dict[str, Json], node: Node) -> bool:
        try:
            fields["timestamp"] = instant(fields["timestamp"])
        except SerdeError as error:
            self._reader.report(node, f"'timestamp' {error}, not {self._reader.kind(node)}")
            return False
        return True

    # -- Expected --------------------------------------------------------------------------------------------------

    def _expectations(self, node: Node | None, kind: str) -> dict[str, Expectation]:
        if node is None:
            return {}
        expectations = {}
        for name, (key, body) in self._reader.entries(node, "'expect'" if kind == "topic" else "'stores'").items():
            if self._exists(name, key, kind):
                expectation = self._expectation(name, key, body, kind)
                if expectation is not None:
                    expectations[name] = expectation
        return expectations

    def _exists(self, name: str, key: Node, kind: str) -> bool:
        self._reader.use(kind, name, key)
        if kind == "store":
            known, what = name in self._stores, f"There is no store {name!r}"
        else:
            known, what = self._names.output(name), f"The topology does not write a topic {name!r}"
        if not known:
            names = self._stores if kind == "store" else self._names.written
            self._reader.report(key, what + spec_names.hint(name, names, f"{kind}s that could be compared"))
        return known

    def _expectation(self, name: str, key: Node, body: Node, kind: str) -> Expectation | None:
        reader = self._reader
        what = f"What is expected of {name!r}"
        match, partial, records_node, file = UNORDERED if kind == "store" else ORDERED, False, body, None
        if body.kind == "mapping" and (kind == "topic" or _is_options(body)):
            options = reader.options(body, what, EXPECTATION_KEYS)
            if "match" in options:
                match = reader.choice(options["match"], "'match'", MATCHES) or match
            partial = bool(reader.boolean(options["partial"], "'partial'")) if "partial" in options else False
            # `records` may be null: --update writes them.
            records_of = {name: value for name, (_, value) in reader.entries(body, what).items() if name == "records"}
            if bool(records_of) == ("file" in options):
                reader.report(body, f"{what} needs either 'records' or 'file'")
                return None
            records_node = records_of.get("records") or options["file"]
            file = options.get("file")
        if file is not None:
            records = tuple(self._expected_of_file(file))
            path = self._folder / str(reader.data(file))
        else:
            records, path = tuple(self._expected(records_node, name, kind, what)), None
        return Expectation(name, kind, match, partial, records, body.position, key, body, records_node, path)

    def _expected(self, node: Node, name: str, kind: str, what: str) -> Iterator[Expected]:
        if kind == "store" and node.kind == "mapping":
            for key_node, value in self._reader.entries(node, what).values():
                fields = {"key": self._reader.value(key_node), "value": self._reader.data(value)}
                yield Expected(fields, key_node.position, value)
            return
        keys = RECORD_FIELDS if kind == "topic" else ("key", "value")
        for item in self._reader.items(node, what):
            fields = self._fields(item, "A record" if kind == "topic" else "A row", keys)
            if fields is not BAD:
                yield Expected(self._window(fields, name, kind), item.position, item)

    def _window(self, fields: dict[str, Json], name: str, kind: str) -> dict[str, Json]:
        """Return fields with the times of a windowed key as milliseconds."""
        key = fields.get("key")
        owner = (None, name) if kind == "store" else (name, None)
        if isinstance(key, dict) and self._names.has_windowed_keys(*owner):
            fields["key"] = {part: _lenient(value) if part != "key" else value for part, value in key.items()}
        return fields

    def _expected_of_file(self, node: Node) -> Iterator[Expected]:
        for _, position, record in self._file_objects(node):
            yield Expected({name: record[name] for name in RECORD_FIELDS if name in record}, position, None)


def _is_options(body: Node) -> bool:
    """Return whether a store's mapping is options, and not rows by key."""
    keys = {key.value for key, _ in body.value}
    return bool(keys & {"records", "file"}) and keys <= set(EXPECTATION_KEYS)


def _lenient(value: Json) -> Json:
    try:
        return instant(value)
    except SerdeError:
        return value


SUFFIXES = (".test.yaml", ".test.yml")
FILE_KEYS = ("topology", "description", "environment", "set", "simulate", "tests")
SIMULATE_KEYS = ("partitions", "instances", "threads", "faults", "compare", "accept")
CASE_KEYS = ("description", "set", "clock", "describe", "steps", *PHASE_KEYS)


class PlanOf(Protocol):
    """Builds the plans of topologies."""

    variables: Mapping[str, str]
    """Variables for `${NAME}`; a test file's variables override them."""

    def __call__(self, topology: Path, environment: Mapping[str, str], settings: Mapping[str, Json]) -> Plan:
        """Return the plan of a topology. Raises TopologyError, UsageError, ConfigError."""


class _Literal(Resolver):
    """Reads scalars literally: a test must not depend on variables of the environment."""

    def interpolate(self, node: Node, text: str) -> str:
        """Return the text unchanged."""
        return text


def load(path: Path, plan_of: PlanOf, text: str | None = None) -> CaseFile:
    """Return the cases of a test file; `text` replaces the contents of the file.

    Raises TopologyError with every problem of the file and of its topology, sorted by position, and UsageError if the file
    can't be read.
    """
    problems: list[Problem] = []
    source = Source(read_text(path) if text is None else text, str(path))
    root = compose(source, problems)
    if root is not None:
        check_keys(root, problems)
    reader = Reader(source, str(path.parent), {}, {}, problems)
    reader.value = _Literal({}, problems)
    case_file = _File(reader, path, plan_of).read(root) if root is not None else None
    if root is None:
        problems.append(Problem(source.at(0), "The file is empty; a test file begins with 'tests:'"))
    if problems or case_file is None:
        raise TopologyError(ordered(problems))
    return case_file


def topology_of(path: Path) -> Path | None:
    """Return the topology beside a test file: the file's name without `.test`, or topology.yaml."""
    stem = next((path.name.removesuffix(suffix) for suffix in SUFFIXES if path.name.endswith(suffix)), path.stem)
    for name in (f"{stem}.yaml", f"{stem}.yml", "topology.yaml"):
        candidate = path.parent / name
        if candidate.is_file() and candidate != path:
            return candidate
    return None


class _File:
    """Reads one file."""

    def __init__(self, reader: Reader, path: Path, plan_of: PlanOf):
        self._reader = reader
        self._path = path
        self._plan_of = plan_of
        self._plan_with: Callable[[Mapping[str, Json], Node], Plan | None] = lambda own, node: None
        """Returns the plan of the topology for the settings of a test; its mistakes are reported at the node."""
        self._job_of: Callable[[str], JobFile]
        """Reads a job file. Raises TopologyError, UsageError."""

    def read(self, root: Node) -> CaseFile | None:
        reader = self._reader
        if root.kind != "mapping":
            return reader.report_mismatch(root, "A test file", "a mapping that has 'tests'") or None
        options = reader.options(root, "A test file", FILE_KEYS, ("tests",))
        if "description" in options:
            reader.text(options["description"], "'description'")
        environment = self._texts(options["environment"], "'environment'") if "environment" in options else {}
        settings = self._settings(options.get("set"))
        topology = self._topology(options, root)
        if topology is None or "tests" not in options:
            return None
        plan = self._plan(topology, environment, settings, options.get("set", options.get("topology", root)))
        if plan is None:
            return None
        self._plan_with = lambda own, node: self._plan(topology, environment, own, node)
        self._job_of = lambda path: self._job(path, environment)
        cases = self._cases(options["tests"], Names(plan), plan, settings)
        simulation = self._simulation(options["simulate"], plan) if "simulate" in options else Simulation()
        names = tuple(reader.names)
        return CaseFile(self._path, reader.source, topology, environment, settings, cases, simulation, names)

    def _simulation(self, node: Node, plan: Plan) -> Simulation:
        reader = self._reader
        options = reader.options(node, "'simulate'", SIMULATE_KEYS)

        def number(name: str, default: int) -> int:
            value = reader.integer(options[name], repr(name), 1, 1000) if name in options else default
            return default if value is BAD else value

        faults, accept = None, []
        if "faults" in options:
            listed = [reader.choice(item, "A fault", FAULTS) for item in reader.items(options["faults"], "'faults'")]
            faults = tuple(fault for fault in listed if fault)
        for item in reader.items(options["accept"], "'accept'") if "accept" in options else ():
            name = reader.text(item, "A step")
            known = [*step_names(plan), *Names(plan).written]
            if name is not BAD and name not in known:
                hint = spec_names.hint(name, known, "steps of the topology")
                reader.report(item, f"There is no step {name!r}, as PIPELINE.STEP{hint}")
            elif name is not BAD:
                reader.use("topic" if name in Names(plan).written else "pipeline", name, item)
                accept.append(name)
        default = Simulation()
        return Simulation(
            number("partitions", default.partitions),
            number("instances", default.instances),
            number("threads", default.threads),
            faults,
            tuple(accept),
            (reader.choice(options["compare"], "'compare'", COMPARED) if "compare" in options else ALL) or ALL,
        )

    def _plan(
        self, topology: Path, environment: Mapping[str, str], settings: Mapping[str, Json], node: Node
    ) -> Plan | None:
        try:
            return self._plan_of(topology, environment, settings)
        except TopologyError as error:
            return self._reader.report_all(error) or None
        except StreamkitError as error:
            return self._reader.report(node, str(error).removeprefix("--set: ")) or None

    def _job(self, path: str, environment: Mapping[str, str]) -> JobFile:
        from streamkit.runtime.spark.submission.job_file import load_job

        def plan_of(topology: str, settings: Mapping[str, str]) -> Plan:
            return self._plan_of(Path(topology), environment, settings)

        return load_job(path, plan_of, {**self._plan_of.variables, **environment})

    def _topology(self, options: dict[str, Node], root: Node) -> Path | None:
        reader = self._reader
        if "topology" not in options:
            beside = topology_of(self._path)
            message = "There is no topology beside this file; name it: 'topology: FILE'"
            return beside if beside is not None else reader.report(root, message) or None
        name = reader.text(options["topology"], "'topology'")
        if name is BAD:
            return None
        path = self._path.parent / name
        if path.is_file():
            return path
        others = sorted({beside.name for beside in path.parent.glob("*.yaml")} - {self._path.name})
        hint = did_you_mean(path.name, others)
        return reader.report(options["topology"], f"There is no file {path}{hint}") or None

    def _texts(self, node: Node, what: str) -> dict[str, str]:
        data = {name: self._reader.data(value) for name, (_, value) in self._reader.entries(node, what).items()}
        return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in data.items()}

    def _settings(self, node: Node | None) -> dict[str, Json]:
        if node is None:
            return {}
        return {name: self._reader.data(value) for name, (_, value) in self._reader.entries(node, "'set'").items()}

    # -- Cases -----------------------------------------------------------------------------------------------------

    def _cases(self, node: Node, names: Names, plan: Plan, settings: Mapping[str, Json]) -> tuple[Case, ...]:
        entries = self._reader.entries(node, "'tests'")
        if node.kind == "mapping" and not entries:
            self._reader.report(node, "'tests' needs at least one test")
        cases = [self._case(key, body, names, plan, settings) for key, body in entries.values()]
        return tuple(case for case in cases if case is not None)

    @staticmethod
    def _has_only_known_keys(body: Node) -> bool:
        return body.kind == "mapping" and all(key.value in CASE_KEYS for key, _ in body.value)

    def _case(self, key: Node, body: Node, names: Names, plan: Plan, inherited: Mapping[str, Json]) -> Case | None:
        reader = self._reader
        what = f"The test {key.value!r}"
        options = reader.options(body, what, CASE_KEYS)
        if not options and (reader.is_null(body) or self._has_only_known_keys(body)):
            return reader.report(key, f"{what} is empty; it needs 'given' and 'expect'") or None
        if body.kind != "mapping":
            return None
        if "description" in options:
            reader.text(options["description"], "'description'")
        phases = Phases(reader, self._path.parent, names, plan, self._job_of)
        own = [name for name in PHASE_KEYS if name in options]
        if "steps" in options and own:
            reader.report(options[own[0]], f"{own[0]!r} can't be combined with 'steps'; put it into one of the steps")
        if "steps" in options:
            items = reader.items(options["steps"], f"'steps' of {what[0].lower()}{what[1:]}")
            read = tuple(phases.read(item, "A step") for item in items)
        else:
            read = (phases.of(body, {name: options[name] for name in own}),)
        phases.check_errors(read)
        settings = {**inherited, **self._settings(options.get("set"))}
        if "set" in options:
            self._plan_with(settings, options["set"])
        return Case(
            name=key.value,
            position=key.position,
            phases=read,
            settings=settings,
            clock=self._clock(options.get("clock")),
            describe=self._describe(options["describe"]) if "describe" in options else None,
        )

    def _clock(self, node: Node | None) -> int:
        if node is None:
            return 0
        try:
            return instant(self._reader.data(node))
        except StreamkitError:
            self._reader.report_mismatch(node, "'clock'", TIME_FORMS)
            return 0

    def _describe(self, node: Node) -> Described | None:
        text = self._reader.text(node, "'describe'")
        if text is BAD:
            return None
        if "\n" in text.strip() or text.lstrip().startswith("Topolog"):
            return Described(text, node, None)
        path = self._path.parent / text
        if not path.is_file():
            self._reader.report(node, f"There is no file {path}; 'describe' is a file's name, or the text itself")
            return None
        return Described(read_text(path), node, path)


# The topics and stores that a test may name, and its records under their serdes.


class Names:
    """The topics of a plan by the names of their entries."""

    def __init__(self, plan: Plan):
        self._plan = plan
        self._json = RecordJson(plan)
        topics = plan.external_topics.values()
        self.read = {topic.entry: topic.name for topic in topics if topic.read}
        nodes = plan.nodes
        self._patterns = [re.compile(node.pattern) for node in nodes if isinstance(node, SourceNode) and node.pattern]
        self.dead_letters = frozenset(dead_letter_topics(plan))
        self._routed = any(isinstance(node, SinkNode) and node.topic is None for node in nodes)
        by_name = {topic.name: topic.entry for topic in topics}
        self.written = {by_name.get(name, name): name for name in _written(nodes) | self.dead_letters}
        self._entries = {topic.entry: topic.name for topic in topics}
        self._by_name = by_name
        self._unreachable = False

    def input(self, name: str) -> str | None:
        """Return the physical name of a topic that the topology reads, or None."""
        if name in self.read:
            return self.read[name]
        physical = self._entries.get(name, name)
        return physical if any(pattern.fullmatch(physical) for pattern in self._patterns) else None

    def output(self, name: str) -> bool:
        """Return whether the topology writes a topic. If a sink has a route, it may write any topic."""
        return name in self.written or self._routed

    def entry(self, topic: str) -> str:
        """Return the name by which a test refers to a topic; `topic` is its name on the log."""
        return self._by_name.get(topic, topic)

    def check_record(self, record: Mapping[str, Json]) -> None:
        """Raise SerdeError for a record that the serdes of its topic can't encode.

        After a schema registry has not answered once, no further record is checked; tests that need it fail when they run.
        """
        if self._unreachable:
            return
        try:
            self._json.encode(record, 0, lambda topic: None)
        except RegistryError:
            self._unreachable = True

    def has_windowed_keys(self, topic: str | None, store: str | None) -> bool:
        """Return whether keys of a topic's entry, or of a store, carry a window."""
        if store is not None:
            definition = self._plan.stores[store]
            return definition.kind.windowed or _is_windowed(definition.key_serde)
        entry = self._plan.external_topics.get(self._entries.get(topic or "", ""))
        return entry is not None and _is_windowed(entry.key_serde)


def step_name(step: StepRef) -> str:
    """Return the name by which a test file refers to a step: `PIPELINE.STEP`."""
    return f"{step.pipeline}.{step.step}"


def step_names(plan: Plan) -> list[str]:
    """Return the names of a topology's steps."""
    nodes = plan.nodes
    return list(dict.fromkeys(step_name(node.origin) for node in nodes if node.origin is not None))


def _is_windowed(serde: Serde) -> bool:
    return isinstance(serde.spec, dict) and bool({"windowed", "session_windowed"} & serde.spec.keys())


def _written(nodes: list[PlanNode]) -> set[str]:
    return {node.topic for node in nodes if isinstance(node, SinkNode) and node.topic and not node.internal}
