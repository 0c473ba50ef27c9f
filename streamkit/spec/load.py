"""From a file or a text to a TopologyModel, or to every problem at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamkit.errors import Position, Problem, TopologyError, UsageError
from streamkit.spec import links, sections
from streamkit.spec.model import TopologyModel
from streamkit.spec.names import kafka_name_mistake
from streamkit.spec.nodes import MAX_CHARACTERS, Node, Source, check_keys, compose
from streamkit.spec.reader import Reader
from streamkit.spec.resolve import shown

LANGUAGE_VERSION = 1
TOP_LEVEL = (
    "streamkit", "application", "description", "config", "defaults", "topics", "functions", "stores", "pipelines",
)  # fmt: skip


def load(
    path: str | os.PathLike[str],
    operators: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> TopologyModel:
    """Return the model of a file; `operators` default to the registered ones, `environment` to the process's.

    Raises TopologyError with every problem of the file, sorted by place, and UsageError when it can't be read.
    """
    return load_text(read_text(path), os.fspath(path), operators, environment)


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
    operators: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: str | None = None,
) -> TopologyModel:
    """Return the model of a topology's text; `folder` is where its modules and schemas lie: beside `file` by default.

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
    """Return problems by place, each once (an alias leads to the same mistake again)."""
    unique = dict.fromkeys(problems)
    return sorted(unique, key=lambda problem: (problem.position.line, problem.position.column))


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
        reader.complain(reader.source.at(0), "The file is empty; a topology begins with 'streamkit: 1'")
        return None
    if root.kind != "mapping":
        reader.wrong(root, "A topology", "a mapping that begins with 'streamkit: 1'")
        return None
    options = reader.options(root, "A topology", TOP_LEVEL, ("streamkit", "application"))
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
    # A processor may also use the store that a step makes under a name (KStream.process with a Materialized's name).
    made = [store.name for store in reader.stores]
    links.check(reader, list(topics), list(dict.fromkeys([*store_names, *made])), pipelines)
    return TopologyModel(
        application=application,
        description=description,
        config=config,
        defaults=defaults,
        topics=topics,
        functions=functions,
        stores=stores,
        pipelines=pipelines,
        file=reader.source.file,
        text=reader.source.text,
    )


def _is_mapping(node: Node | None) -> bool:
    return node is not None and node.kind == "mapping"


def _check_version(reader: Reader, options: dict[str, Node]) -> None:
    node = options.get("streamkit")
    if node is None:
        return
    value = reader.value(node) if node.kind == "scalar" else None
    if value != LANGUAGE_VERSION or not isinstance(value, int) or isinstance(value, bool):
        reader.wrong(node, "'streamkit', the version of the language,", str(LANGUAGE_VERSION))


def _application(reader: Reader, options: dict[str, Node]) -> Any:
    if "application" not in options:
        return ""
    value = reader.text(options["application"], "'application'")
    if isinstance(value, str):
        mistake = kafka_name_mistake(value)
        if mistake:
            reader.complain(options["application"], f"'application' {shown(value)} {mistake}")
    return value
