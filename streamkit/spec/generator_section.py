"""Parses `generators`: the expressions that make test data for topics, from the topology or the file beside it."""

from __future__ import annotations

from pathlib import Path

from streamkit.expressions import constant
from streamkit.spec import field_readers
from streamkit.spec.topology_model import GeneratorSpec
from streamkit.spec.yaml_nodes.nodes import Node
from streamkit.spec.yaml_nodes.reader import BAD, Bad, Options, Reader, put
from streamkit.suggestions import did_you_mean

KEYS = ("key", "value", "every", "count", "late")
LATE_KEYS = ("part", "by")
NAMES = ("random", "sequence", "time")
"""The names in a generator's expressions; that of the value has `key` too."""
SUFFIX = ".generators.yaml"


def file_beside(file: str) -> Path | None:
    """Return the file of generators beside a topology's file, None where there is none.

    >>> file_beside("missing/orders.yaml") is None
    True
    """
    path = Path(file)
    found = path.with_name(path.stem + SUFFIX)
    return found if found != path and found.is_file() else None


def read_generators(reader: Reader, node: Node, topics: list[str]) -> dict[str, GeneratorSpec]:
    """Return the generators by the topics' entries."""
    found: dict[str, GeneratorSpec] = {}
    for name, (key, body) in reader.entries(node, "'generators'").items():
        if name not in topics:
            reader.report(key, f"There is no topic {name!r} to generate{did_you_mean(name, topics)}")
        put(found, name, _generator(reader, name, key, body))
    return found


def _generator(reader: Reader, name: str, key: Node, body: Node) -> GeneratorSpec | Bad:
    what = f"The generator of {name!r}"
    options = reader.options(body, what, KEYS, ("value",))
    found: Options = {"key": constant(None)}
    if "key" in options:
        put(found, "key", field_readers.expression(reader, options["key"], f"'key' of the {what[4:]}", NAMES, NAMES))
    if "value" in options:
        names = ("key", *NAMES)
        put(
            found,
            "value",
            field_readers.expression(reader, options["value"], f"'value' of the {what[4:]}", names, names),
        )
    if "every" in options:
        put(found, "every", reader.duration(options["every"], f"'every' of the {what[4:]}"))
    if "count" in options:
        put(found, "count", reader.integer(options["count"], f"'count' of the {what[4:]}", 0, 2**63 - 1))
    if "late" in options:
        _read_late(reader, options["late"], found)
    if found.get("every") == 0 and "count" not in found:
        reader.report(options["every"], f"{what} never moves in time and never ends; give 'every' or 'count'")
    return GeneratorSpec(name, **found, position=key.position) if "value" in found else BAD


def _read_late(reader: Reader, node: Node, found: Options) -> None:
    options = reader.options(node, "'late'", LATE_KEYS, LATE_KEYS)
    if "part" in options:
        put(found, "late_part", reader.fraction(options["part"], "'part' of 'late'"))
    if "by" in options:
        put(found, "late_by", reader.duration(options["by"], "'by' of 'late'", 1))
    if BAD in found.values():
        found.pop("late_part", None)
