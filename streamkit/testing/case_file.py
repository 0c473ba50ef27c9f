"""Reads the cases of a test file, or every mistake in it at once, with the reader of topologies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from streamkit.durations import TIME_FORMS, instant
from streamkit.errors import Problem, StreamkitError, TopologyError
from streamkit.plan.model import Plan
from streamkit.serdes.plain import Json
from streamkit.spec.topology_file import ordered, read_text
from streamkit.spec.yaml_nodes.nodes import Node, Source, check_keys, compose
from streamkit.spec.yaml_nodes.reader import BAD, Reader
from streamkit.spec.yaml_nodes.resolve import Resolver
from streamkit.testing.cases import Case, CaseFile, Described
from streamkit.testing.phases import PHASE_KEYS, Phases
from streamkit.testing.scope import Names

SUFFIXES = (".test.yaml", ".test.yml")
FILE_KEYS = ("topology", "description", "environment", "set", "tests")
CASE_KEYS = ("description", "set", "clock", "describe", "steps", *PHASE_KEYS)
PlanOf = Callable[[Path, Mapping[str, str], Mapping[str, Json]], Plan]
"""(topology file, variables, settings) -> its plan. Raises TopologyError, UsageError, ConfigError."""


class _Literal(Resolver):
    """Scalars without variables: a test is the same everywhere."""

    def interpolate(self, node: Node, text: str) -> str:
        """Return the text as it stands."""
        return text


def load(path: Path, plan_of: PlanOf, text: str | None = None) -> CaseFile:
    """Return the cases of a test file; `text` stands for its contents where they are not the file's.

    Raises TopologyError with every problem, sorted by place, those of its topology among them; UsageError when it can't
    be read.
    """
    problems: list[Problem] = []
    source = Source(read_text(path) if text is None else text, str(path))
    root = compose(source, problems)
    if root is not None:
        check_keys(root, problems)
    reader = Reader(source, str(path.parent), {}, {}, problems)
    reader.value = _Literal({}, reader._unreadable)
    found = _File(reader, path, plan_of).read(root) if root is not None else None
    if root is None:
        problems.append(Problem(source.at(0), "The file is empty; a test file begins with 'tests:'"))
    if problems or found is None:
        raise TopologyError(ordered(problems))
    return found


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
        self._plan_with: Callable[[Mapping[str, Json], Node], Plan | None] = lambda own, place: None
        """Returns the plan of the topology for the settings of a test; its mistakes are reported at the node."""

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
        self._plan_with = lambda own, place: self._plan(topology, environment, own, place)
        cases = self._cases(options["tests"], Names(plan), plan, settings)
        return CaseFile(self._path, reader.source, topology, environment, settings, cases)

    def _plan(
        self, topology: Path, environment: Mapping[str, str], settings: Mapping[str, Json], place: Node
    ) -> Plan | None:
        try:
            return self._plan_of(topology, environment, settings)
        except TopologyError as error:
            return self._reader.report_all(error) or None
        except StreamkitError as error:
            return self._reader.report(place, str(error).removeprefix("--set: ")) or None

    def _topology(self, options: dict[str, Node], root: Node) -> Path | None:
        reader = self._reader
        if "topology" not in options:
            found = topology_of(self._path)
            message = "There is no topology beside this file; name it: 'topology: FILE'"
            return found if found is not None else reader.report(root, message) or None
        name = reader.text(options["topology"], "'topology'")
        if name is BAD:
            return None
        path = self._path.parent / name
        return path if path.is_file() else reader.report(options["topology"], f"There is no file {path}") or None

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
        found = [self._case(key, body, names, plan, settings) for key, body in entries.values()]
        return tuple(case for case in found if case is not None)

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
        phases = Phases(reader, self._path.parent, names, plan)
        own = [name for name in PHASE_KEYS if name in options]
        if "steps" in options and own:
            reader.report(options[own[0]], f"{own[0]!r} stands beside 'steps'; put it into one of them")
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
