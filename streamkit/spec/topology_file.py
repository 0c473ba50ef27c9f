"""Loads a TopologyModel from a file or a text, or raises all problems at once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from streamkit.errors import Position, Problem, TopologyError, UsageError
from streamkit.expressions import constant
from streamkit.expressions.calls import FunctionCall, Misfit, misfits_of_call, source_signature
from streamkit.operators.core import fields
from streamkit.operators.core.operator import StepDeclaration
from streamkit.operators.core.parsed_values import BranchSpec
from streamkit.spec import macros, sections, steps, yaml_reader
from streamkit.spec.topology_model import GeneratorSpec, PipelineSpec, TopologyModel
from streamkit.spec.yaml_nodes import MAX_CHARACTERS, Node, Source, check_keys, compose
from streamkit.spec.yaml_reader import (
    BAD,
    Bad,
    Name,
    Options,
    Reader,
    Route,
    kafka_name_mistake,
    put,
    shown,
)
from streamkit.suggestions import did_you_mean

LANGUAGE_VERSION = 1
HEAD = re.compile(rb"""^\s*\{?\s*["']?streamkit["']?\s*:""", re.MULTILINE)
"""Found in the bytes of each topology: other programs keep YAML files in the same folders."""
TOP_LEVEL = (
    "streamkit", "application", "description", "include", "config", "defaults", "topics", "functions", "stores", "macros",
    "pipelines", "generators",
)  # fmt: skip


def load(
    path: str | os.PathLike[str],
    operators: Mapping[str, StepDeclaration] | None = None,
    environment: Mapping[str, str] | None = None,
) -> TopologyModel:
    """Return the model of a file; `operators` default to the registered ones, `environment` to the process's.

    Raises TopologyError with every problem of the file, sorted by place, and UsageError when it can't be read.
    """
    return load_text(read_text(path), os.fspath(path), operators, environment)


_REQUIRED = {
    "streamkit": ": add 'streamkit: 1' as the first line",
    "application": ": add 'application: NAME'; names of its group and internal topics begin with it",
}
"""By required key, how to add it."""


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file. Raises UsageError when it can't be read, TopologyError if it is not UTF-8."""
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            data = file.read(4 * MAX_CHARACTERS + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{name}: {reason}") from error
    return decode(data, name)


def load_text(
    text: str,
    file: str = "<text>",
    operators: Mapping[str, StepDeclaration] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: str | None = None,
) -> TopologyModel:
    """Return the model of a topology's text; `folder` contains its modules and schemas; by default the folder of `file`.

    Raises TopologyError with every problem, sorted by place.
    """
    partial = load_partly(text, file, operators, environment, folder)
    if partial.problems or partial.model is None:
        raise TopologyError(partial.problems)
    return partial.model


@dataclass(frozen=True)
class Partial:
    """What could be read of a file.

    model: without the parts that have problems; root: None for an empty file; names, expressions, routes (Reader.routes): those
    of the file and of all files that belong to it.
    """

    model: TopologyModel | None
    root: Node | None
    problems: list[Problem]
    names: tuple[Name, ...] = ()
    expressions: tuple[Node, ...] = ()
    routes: tuple[Route, ...] = ()


def load_partly(
    text: str,
    file: str,
    operators: Mapping[str, StepDeclaration] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: str | None = None,
    reading: Callable[[str], str] | None = None,
) -> Partial:
    """Return what can be read of a topology's text, as `load_text`, and every problem, sorted by place.

    reading: returns the texts of included files, as `read_text`. Raises TopologyError for malformed YAML.
    """
    problems: list[Problem] = []
    source = Source(text, file)
    root = compose(source, problems)
    return _read_nodes(source, root, problems, operators, environment, folder, reading or read_text)


def load_nodes(
    source: Source,
    root: Node | None,
    problems: list[Problem],
    operators: Mapping[str, StepDeclaration] | None,
    environment: Mapping[str, str] | None,
    folder: str | None,
) -> TopologyModel:
    """Return the model of a tree of nodes that calls in Python make; `problems` has those found before.

    Raises TopologyError with every problem, sorted by place.
    """
    partial = _read_nodes(source, root, problems, operators, environment, folder, read_text)
    if partial.problems or partial.model is None:
        raise TopologyError(partial.problems)
    return partial.model


def _read_nodes(
    source: Source,
    root: Node | None,
    problems: list[Problem],
    operators: Mapping[str, StepDeclaration] | None,
    environment: Mapping[str, str] | None,
    folder: str | None,
    reading: Callable[[str], str],
) -> Partial:
    if operators is None:
        from streamkit.operators import STEPS as operators
    if root is not None:
        check_keys(root, problems)
    folder = str(Path(source.file).parent) if folder is None else folder
    reader = Reader(source, folder, operators or {}, os.environ if environment is None else environment, problems)
    model = _read(reader, root, reading)
    unused = _unused_macros(reader)
    return Partial(
        model,
        root,
        ordered(problems),
        (*reader.names, *unused.names),
        (*reader.expressions, *unused.expressions),
        (*reader.routes, *unused.routes),
    )


def _unused_macros(reader: Reader) -> Reader:
    """Return a reader of the steps of macros that the file does not use: an editor finds and renames the names in them.

    Their mistakes show when they are used, with arguments in place of parameters.
    """
    other = Reader(reader.source, reader.folder, reader.operators, reader.value.environment, [])
    other.functions, other.macros = reader.functions, reader.macros
    for macro in reader.macros.values():
        if macro.name not in reader.used_macros and macro.steps is not None:
            with suppress(TopologyError):  # too many values
                steps.read_steps(other, macro.steps, "'steps'")
    return other


def ordered(problems: list[Problem]) -> list[Problem]:
    """Return problems by place, each once: a node with aliases has its problems several times."""
    unique: dict[tuple[Position, str], Problem] = {}
    for problem in problems:
        # A mistake in a macro is shown with its first use.
        place = replace(problem.position, within=None)
        unique.setdefault((place, problem.message.removesuffix(problem.position.note)), problem)
    files = list(dict.fromkeys(problem.position.file for problem in unique.values()))
    places = [
        (files.index(problem.position.file), problem.position.line, problem.position.column)
        for problem in unique.values()
    ]
    return [problem for _, problem in sorted(zip(places, unique.values(), strict=True), key=lambda pair: pair[0])]


def decode(data: bytes, file: str) -> str:
    """Return the text of a file's bytes. Raises TopologyError at the first byte that is not UTF-8."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TopologyError([Problem(Position(file, 1, 1), "The file is UTF-16; it must be UTF-8")])
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        readable = Source(data[: error.start].decode("utf-8"), file)
        message = f"The byte 0x{data[error.start]:02x} is not UTF-8"
        raise TopologyError([Problem(readable.at(len(readable.text)), message)]) from error


def _read(reader: Reader, root: Node | None, reading: Callable[[str], str]) -> TopologyModel | None:
    if root is None or reader.is_null(root):
        reader.report(reader.source.at(0), "The file is empty; a topology begins with 'streamkit: 1'")
        return None
    if root.kind != "mapping":
        reader.report_mismatch(root, "A topology", "a mapping that begins with 'streamkit: 1'")
        return None
    joined, included = with_includes(reader, root, reading)
    if joined is None:
        return None
    root = joined
    options = reader.options(root, "A topology", TOP_LEVEL, tuple(_REQUIRED), _REQUIRED)
    _check_version(reader, options)
    application = _application(reader, options)
    description = reader.text(options["description"], "'description'") if "description" in options else None
    config = sections.read_config(reader, options["config"]) if "config" in options else {}
    defaults = sections.read_defaults(reader, options.get("defaults"))
    functions = sections.read_functions(reader, options.get("functions"))
    topics = sections.read_topics(reader, options["topics"], defaults) if "topics" in options else {}
    stores = sections.read_stores(reader, options["stores"], defaults) if "stores" in options else {}
    reader.macros = macros.read_macros(reader, options["macros"]) if "macros" in options else {}
    pipelines = sections.read_pipelines(reader, options["pipelines"]) if "pipelines" in options else {}
    store_names = [key.value for key, _ in options["stores"].value] if _is_mapping(options.get("stores")) else []
    generators = read_generators(reader, options["generators"], list(topics)) if "generators" in options else {}
    generators |= _generators_beside(reader, list(topics), generators, reading)
    # A processor may also use the named store of a step (KStream.process with a Materialized's name).
    step_stores = [name.name for name in reader.names if name.kind == "store" and name.defines]
    check(reader, list(topics), list(dict.fromkeys([*store_names, *step_stores])), pipelines)
    return TopologyModel(
        application=application or "",
        description=None if description is BAD else description,
        config=config,
        defaults=defaults,
        topics=topics,
        functions=functions,
        stores=stores,
        pipelines=pipelines,
        file=reader.source.file,
        text=reader.source.text,
        calls=tuple(reader.calls),
        function_calls=_function_calls(reader),
        called_serdes=tuple(reader.called_serdes),
        generators=generators,
        included=included,
        macros=reader.macros,
        used_macros=frozenset(reader.used_macros),
    )


def _generators_beside(
    reader: Reader, topics: list[str], known: Mapping[str, GeneratorSpec], reading: Callable[[str], str]
) -> dict[str, GeneratorSpec]:
    """Return the generators of the file beside the topology, with the functions of the topology."""
    path = file_beside(reader.source.file)
    if path is None:
        return {}
    source = Source(reading(str(path)), str(path))
    root = compose(source, reader.problems)
    if root is None:
        return {}
    check_keys(root, reader.problems)
    beside = Reader(source, reader.folder, reader.operators, reader.value.environment, reader.problems)
    beside.functions = reader.functions
    options = beside.options(root, "A file of generators", ("generators",), ("generators",))
    generators = read_generators(beside, options["generators"], topics) if "generators" in options else {}
    reader.names += beside.names
    reader.expressions += beside.expressions
    for name, spec in generators.items():
        if name in known and spec.position is not None:
            beside.report(spec.position, f"The generator of {name!r} is also in {reader.source.file}")
    return generators


def _function_calls(reader: Reader) -> tuple[FunctionCall, ...]:
    """Return the calls of Python functions in expressions; report those with arguments that a module beside the file does not take."""
    calls = tuple(dict.fromkeys(reader.functions.calls))
    for call in calls:
        with suppress(Misfit):  # of the function itself, which is reported at its own place
            signature = source_signature(call.ref.folder, call.ref.module, call.ref.attribute)
            if signature is not None:
                reader.problems += [Problem(call.position, str(misfit)) for misfit in misfits_of_call(signature, call)]
    return calls


def _is_mapping(node: Node | None) -> bool:
    return node is not None and node.kind == "mapping"


def _check_version(reader: Reader, options: dict[str, Node]) -> None:
    node = options.get("streamkit")
    if node is None:
        return
    value = reader.value(node) if node.kind == "scalar" else None
    if value != LANGUAGE_VERSION or not isinstance(value, int) or isinstance(value, bool):
        reader.report_mismatch(node, "'streamkit', the version of the language,", str(LANGUAGE_VERSION))


def _application(reader: Reader, options: dict[str, Node]) -> str | Bad:
    if "application" not in options:
        return ""
    value = reader.text(options["application"], "'application'")
    if isinstance(value, str):
        mistake = kafka_name_mistake(value)
        if mistake:
            reader.report(options["application"], f"'application' {shown(value)} {mistake}")
    return value


# Parses `generators`: the expressions that make test data for topics, from the topology or the file beside it.

GENERATOR_KEYS = ("key", "value", "every", "count", "late")
LATE_KEYS = ("part", "by")
NAMES = ("random", "sequence", "time")
"""The names in a generator's expressions; that of the value has `key` too."""
SUFFIX = ".generators.yaml"


def file_beside(file: str) -> Path | None:
    """Return the file of generators beside a topology's file, None if there is none.

    >>> file_beside("missing/orders.yaml") is None
    True
    """
    path = Path(file)
    beside = path.with_name(path.stem + SUFFIX)
    return beside if beside != path and beside.is_file() else None


def read_generators(reader: Reader, node: Node, topics: list[str]) -> dict[str, GeneratorSpec]:
    """Return the generators by the topics' entries."""
    generators: dict[str, GeneratorSpec] = {}
    for name, (key, body) in reader.entries(node, "'generators'").items():
        if name in topics:
            reader.use("topic", name, key)
        else:
            reader.report(key, f"There is no topic {name!r} to generate{did_you_mean(name, topics)}")
        put(generators, name, _generator(reader, name, key, body))
    return generators


def _generator(reader: Reader, name: str, key: Node, body: Node) -> GeneratorSpec | Bad:
    what = f"The generator of {name!r}"
    options = reader.options(body, what, GENERATOR_KEYS, ("value",))
    values: Options = {"key": constant(None)}
    if "key" in options:
        put(values, "key", steps.expression(reader, options["key"], f"'key' of the {what[4:]}", NAMES, NAMES))
    if "value" in options:
        names = ("key", *NAMES)
        put(
            values,
            "value",
            steps.expression(reader, options["value"], f"'value' of the {what[4:]}", names, names),
        )
    if "every" in options:
        put(values, "every", reader.duration(options["every"], f"'every' of the {what[4:]}"))
    if "count" in options:
        put(values, "count", reader.integer(options["count"], f"'count' of the {what[4:]}", 0, 2**63 - 1))
    if "late" in options:
        _read_late(reader, options["late"], values)
    if values.get("every") == 0 and "count" not in values:
        reader.report(options["every"], f"{what} never moves in time and never ends; give 'every' or 'count'")
    return GeneratorSpec(name, **values, position=key.position) if "value" in values else BAD


def _read_late(reader: Reader, node: Node, values: Options) -> None:
    options = reader.options(node, "'late'", LATE_KEYS, LATE_KEYS)
    if "part" in options:
        put(values, "late_part", reader.fraction(options["part"], "'part' of 'late'"))
    if "by" in options:
        put(values, "late_by", reader.duration(options["by"], "'by' of 'late'", 1))
    if BAD in values.values():
        values.pop("late_part", None)


# `include`: sections of other files, read as if their entries were in the including file.

SECTIONS = ("config", "topics", "functions", "stores", "macros")
INCLUDED_KEYS = ("include", *SECTIONS)
_MOST = 100
"""Files that one topology includes."""


def with_includes(reader: Reader, root: Node, read_text: Callable[[str], str]) -> tuple[Node | None, dict[str, str]]:
    """Return the root with the sections of the files that it includes, and the texts of these files by name.

    Each file counts once, however many include it. Entries keep their places, so that problems name the right file. The
    root is None if a file can't be read or has no sections: references to names that it may have are not reported as well.
    """
    including = _Including(reader, read_text)
    including.visit(root, reader.folder, [(_identity(reader.source.file), reader.source.file)])
    if including.is_broken:
        return None, {}
    if not including.texts:
        return root, {}
    merged = Node("mapping", [], root.start, root.end, root.source)
    own = {key.value: (key, value) for key, value in root.value if key.kind == "scalar"}
    for name in SECTIONS:
        if name in including.sections:
            own[name] = including.joined(name, own.get(name))
    merged.value = list(own.values())
    merged.size = root.size
    return merged, including.texts


class _Including:
    """Visits files; `sections` has the key node of each section and its entries, `texts` the texts by file."""

    def __init__(self, reader: Reader, read_text: Callable[[str], str]):
        self._reader = reader
        self._read_text = read_text
        self._seen: set[str] = set()
        self.sections: dict[str, list[tuple[Node, Node]]] = {}
        self.texts: dict[str, str] = {}
        self.is_broken = False

    def visit(self, node: Node, folder: str, path: list[tuple[str, str]]) -> None:
        """Add the sections of the files that a mapping includes. path: the files from the topology to this one."""
        if node.kind != "mapping":
            return
        for key, value in node.value:
            if key.kind == "scalar" and key.value == "include" and not self._reader.is_null(value):
                for item in value.value if value.kind == "list" else [value]:
                    self._include(item, folder, path)

    def _include(self, item: Node, folder: str, path: list[tuple[str, str]]) -> None:
        name = self._reader.text(item, "A file of 'include'")
        if name is BAD:
            return
        file = os.path.normpath(os.path.join(folder, name))
        self._reader.use("file", file, item)
        if "\0" in file or (os.path.exists(file) and not os.path.isfile(file)):
            # A pipe would be waited for without an end.
            self._reader.report(item, f"The included file can't be read: {file!r} is no regular file")
            self.is_broken = True
            return
        identity = _identity(file)
        at = next((index for index, (known, _) in enumerate(path) if known == identity), None)
        if at is not None:
            circle = " -> ".join([*(shown for _, shown in path[at:]), file])
            self._reader.report(item, f"Files include each other in a circle: {circle}")
            return
        if identity in self._seen:
            return
        self._seen.add(identity)
        if len(self._seen) > _MOST:
            self._reader.report(item, f"A topology includes at most {_MOST} files")
            self.is_broken = True
            return
        root = self._composed(item, file)
        if root is None:
            return
        self.is_broken = self.is_broken or root.kind != "mapping"
        sections = self._reader.options(root, "An included file", INCLUDED_KEYS)
        self.visit(root, os.path.dirname(file), [*path, (identity, file)])
        for section in SECTIONS:
            if section in sections and sections[section].kind != "mapping":
                self._reader.report_mismatch(sections[section], f"'{section}'", "a mapping")
                self.is_broken = True
            elif section in sections and sections[section].value:
                self.sections.setdefault(section, []).extend(sections[section].value)

    def _composed(self, item: Node, file: str) -> Node | None:
        """Return the root of a file; None after a problem, or if the file is empty."""
        problems: list[Problem] = []
        root = None
        try:
            text = self.texts[file] = self._read_text(file)
            root = compose(Source(text, file), problems)
        except UsageError as error:
            self._reader.report(item, f"The included file can't be read: {error}")
            self.is_broken = True
        except TopologyError as error:
            problems += error.problems
        self.is_broken = self.is_broken or bool(problems)
        if root is not None:
            check_keys(root, problems)
        self._reader.problems.extend(problems)
        return None if root is None or self._reader.is_null(root) else root

    def joined(self, name: str, own: tuple[Node, Node] | None) -> tuple[Node, Node]:
        """Return a section's key and mapping: the entries of included files, then those of the file itself."""
        entries = self.sections[name]
        key, mapping = own if own is not None else (_named(name, entries[0][0]), entries[0][0])
        joined = Node("mapping", [], mapping.start, mapping.end, mapping.source)
        if own is not None and mapping.kind != "mapping" and not self._reader.is_null(mapping):
            return own  # a mistake that the section itself reports
        known: dict[str, Node] = {}
        for entry in [*entries, *(mapping.value if own is not None and mapping.kind == "mapping" else [])]:
            label = entry[0].value
            if entry[0].kind == "scalar" and label in known and known[label].source is not entry[0].source:
                self._reader.report(entry[0], f"{label!r} is also at {known[label].position}, in '{name}'")
                continue
            known.setdefault(label, entry[0]) if entry[0].kind == "scalar" else None
            joined.value.append(entry)
        return key, joined


def _named(name: str, node: Node) -> Node:
    return Node("scalar", name, node.start, node.end, node.source)


def _identity(file: str) -> str:
    return os.path.realpath(file)


# Checks the references of a file: topics, pipelines, branches and stores exist, once each, and without a circle.


def check(reader: Reader, topics: list[str], stores: list[str], pipelines: Mapping[str, PipelineSpec]) -> None:
    """Report every use of a name that the file does not define, stores that are made twice, and circles."""
    branches = {name: _branches(reader, pipeline) for name, pipeline in pipelines.items()}
    for use in _uses(reader):
        if use.kind == "topic" and use.name not in topics:
            hint = yaml_reader.hint(use.name, topics, "topics")
            reader.report(use.position, f"There is no topic {use.name!r} in 'topics'{hint}")
        elif use.kind == "store" and use.name not in stores:
            hint = yaml_reader.hint(use.name, stores, "stores")
            reader.report(use.position, f"There is no store {use.name!r} in 'stores'{hint}")
        elif use.kind == "pipeline":
            _check_pipeline(reader, use, branches, topics)
    _check_stores(reader)
    _check_circles(reader, branches)


def _uses(reader: Reader) -> list[Name]:
    return [name for name in reader.names if not name.defines]


def _branches(reader: Reader, pipeline: PipelineSpec) -> list[str] | None:
    """Return the names of the branches that a pipeline ends with, or None when it ends otherwise."""
    if not pipeline.steps:
        return None
    last = pipeline.steps[-1]
    field = next((f for f in reader.operators[last.operator].fields if isinstance(f.kind, fields.Branches)), None)
    if field is None:
        return None
    names = [branch.name for branch in last.get(field.name, ()) if isinstance(branch, BranchSpec)]
    default = last.get("default")
    return [*names, default] if isinstance(default, str) else names


def _check_pipeline(reader: Reader, use: Name, branches: Mapping[str, list[str] | None], topics: Sequence[str]) -> None:
    pipeline, dot, branch = use.name.partition(".")
    if pipeline not in branches:
        hint = yaml_reader.hint(pipeline, branches, "pipelines")
        if use.name in topics:
            hint = f", but a topic of that name; write 'stream: {use.name}' or 'table: {use.name}'"
        reader.report(use.position, f"There is no pipeline {pipeline!r}{hint}")
        return
    if pipeline in reader.incomplete:
        return
    ends = branches[pipeline]
    if dot and ends is None:
        reader.report(use.position, f"The pipeline {pipeline!r} has no branches; write {pipeline!r} alone")
    elif dot and branch not in (ends or ()):
        hint = yaml_reader.hint(branch, ends or (), "branches")
        reader.report(use.position, f"The pipeline {pipeline!r} has no branch {branch!r}{hint}")
    elif not dot and ends is not None:
        listed = ", ".join(f"{pipeline}.{name}" for name in ends)
        reader.report(use.position, f"The pipeline {pipeline!r} ends with branches; name one of them: {listed}")


def _check_stores(reader: Reader) -> None:
    first: dict[str, Name] = {}
    stores = [name for name in reader.names if name.kind == "store" and name.defines]
    for store in sorted(stores, key=lambda store: store.position.order):
        if store.name in first:
            first_position = first[store.name].position
            message = f"The store {store.name!r} is made twice; the first is in line {first_position.line}{first_position.note}"
            reader.report(store.position, message)
        else:
            first[store.name] = store


def _check_circles(reader: Reader, branches: Mapping[str, object]) -> None:
    """Report each circle of references once, at the reference that closes it; without recursion."""
    edges: dict[str, list[Name]] = {name: [] for name in branches}
    for use in _uses(reader):
        target = use.name.partition(".")[0]
        if use.kind == "pipeline" and target in edges and use.pipeline in edges:
            edges[use.pipeline].append(use)
    done: set[str] = set()
    for start in edges:
        path, pending = [start], [iter(() if start in done else edges[start])]
        on_path = {start}
        while pending:
            reference: Name | None = next(pending[-1], None)
            if reference is None:
                pending.pop()
                done.add(path[-1])
                on_path.discard(path.pop())
                continue
            target = reference.name.partition(".")[0]
            if target in on_path:
                circle = " -> ".join([*path[path.index(target) :], target])
                reader.report(reference.position, f"Pipelines refer to each other in a circle: {circle}")
            elif target not in done:
                path.append(target)
                on_path.add(target)
                pending.append(iter(edges[target]))
