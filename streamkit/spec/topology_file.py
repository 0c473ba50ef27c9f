"""Loads a TopologyModel from a file or a text, or raises all problems at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from streamkit.errors import Position, Problem, TopologyError, UsageError
from streamkit.operators.core.operator import AnyOperator
from streamkit.spec import links, sections
from streamkit.spec.generator_section import file_beside, read_generators
from streamkit.spec.includes import with_includes
from streamkit.spec.legal_names import kafka_name_mistake
from streamkit.spec.topology_model import GeneratorSpec, TopologyModel
from streamkit.spec.yaml_nodes.nodes import MAX_CHARACTERS, Node, Source, check_keys, compose
from streamkit.spec.yaml_nodes.reader import BAD, Bad, Reader
from streamkit.spec.yaml_nodes.resolve import shown

LANGUAGE_VERSION = 1
TOP_LEVEL = (
    "streamkit", "application", "description", "include", "config", "defaults", "topics", "functions", "stores", "pipelines",
    "generators",
)  # fmt: skip


def load(
    path: str | os.PathLike[str],
    operators: Mapping[str, AnyOperator] | None = None,
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
    """Return the text of a file. Raises UsageError when it can't be read, TopologyError where it is not UTF-8."""
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
    operators: Mapping[str, AnyOperator] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: str | None = None,
) -> TopologyModel:
    """Return the model of a topology's text; `folder` has its modules and schemas: that of `file` by default.

    Raises TopologyError with every problem, sorted by place.
    """
    if operators is None:
        from streamkit.operators import STEPS as operators
    problems: list[Problem] = []
    source = Source(text, file)
    root = compose(source, problems)
    if root is not None:
        check_keys(root, problems)
    folder = str(Path(file).parent) if folder is None else folder
    reader = Reader(source, folder, operators or {}, os.environ if environment is None else environment, problems)
    model = _read(reader, root)
    if problems or model is None:
        raise TopologyError(ordered(problems))
    return model


def ordered(problems: list[Problem]) -> list[Problem]:
    """Return problems by place, each once: a node with aliases has its problems several times."""
    unique = dict.fromkeys(problems)
    files = list(dict.fromkeys(problem.position.file for problem in unique))
    places = [(files.index(each.position.file), each.position.line, each.position.column) for each in unique]
    return [each for _, each in sorted(zip(places, unique, strict=True), key=lambda pair: pair[0])]


def decode(data: bytes, file: str) -> str:
    """Return the text of a file's bytes. Raises TopologyError at the first byte that is not UTF-8."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TopologyError([Problem(Position(file, 1, 1), "The file is UTF-16; it must be UTF-8")])
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        place = Source(data[: error.start].decode("utf-8"), file)
        message = f"The byte 0x{data[error.start]:02x} is not UTF-8"
        raise TopologyError([Problem(place.at(len(place.text)), message)]) from error


def _read(reader: Reader, root: Node | None) -> TopologyModel | None:
    if root is None or reader.is_null(root):
        reader.report(reader.source.at(0), "The file is empty; a topology begins with 'streamkit: 1'")
        return None
    if root.kind != "mapping":
        reader.report_mismatch(root, "A topology", "a mapping that begins with 'streamkit: 1'")
        return None
    joined, included = with_includes(reader, root, read_text)
    if joined is None:
        return None
    root = joined
    options = reader.options(root, "A topology", TOP_LEVEL, tuple(_REQUIRED), _REQUIRED)
    _check_version(reader, options)
    application = _application(reader, options)
    description = reader.text(options["description"], "'description'") if "description" in options else None
    config = sections.read_config(reader, options["config"]) if "config" in options else {}
    defaults = sections.read_defaults(reader, options.get("defaults"))
    functions = sections.read_functions(reader, options["functions"]) if "functions" in options else {}
    topics = sections.read_topics(reader, options["topics"], defaults) if "topics" in options else {}
    stores = sections.read_stores(reader, options["stores"], defaults) if "stores" in options else {}
    pipelines = sections.read_pipelines(reader, options["pipelines"]) if "pipelines" in options else {}
    store_names = [key.value for key, _ in options["stores"].value] if _is_mapping(options.get("stores")) else []
    generators = read_generators(reader, options["generators"], list(topics)) if "generators" in options else {}
    generators |= _generators_beside(reader, list(topics), generators)
    # A processor may also use the named store of a step (KStream.process with a Materialized's name).
    made = [store.name for store in reader.stores]
    links.check(reader, list(topics), list(dict.fromkeys([*store_names, *made])), pipelines)
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
        called_serdes=tuple(reader.called_serdes),
        generators=generators,
        included=included,
    )


def _generators_beside(
    reader: Reader, topics: list[str], known: Mapping[str, GeneratorSpec]
) -> dict[str, GeneratorSpec]:
    """Return the generators of the file beside the topology, with the functions of the topology."""
    path = file_beside(reader.source.file)
    if path is None:
        return {}
    source = Source(read_text(path), str(path))
    root = compose(source, reader.problems)
    if root is None:
        return {}
    check_keys(root, reader.problems)
    beside = Reader(source, reader.folder, reader.operators, reader.value.environment, reader.problems)
    beside.functions = reader.functions
    options = beside.options(root, "A file of generators", ("generators",), ("generators",))
    found = read_generators(beside, options["generators"], topics) if "generators" in options else {}
    for name, spec in found.items():
        if name in known and spec.position is not None:
            beside.report(spec.position, f"The generator of {name!r} stands in {reader.source.file} too")
    return found


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
