"""Reads job files, which contain the inputs, outputs and options of `submit`; reports all mistakes at once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TypeAlias

from streamkit.errors import Problem, StreamkitError, TopologyError, UsageError
from streamkit.plan.model import Plan, find_topic
from streamkit.runtime.spark.job_options import (
    AUTO,
    DELTA,
    ENGINES,
    FINAL,
    ICEBERG,
    INPUT_SETTINGS,
    OPTION,
    OUTPUT_SETTINGS,
    REST,
    TABLE,
    UPDATES,
    JobOptions,
    Parts,
    Place,
    Range,
    is_missing,
    is_table_name,
    make_place,
)
from streamkit.runtime.spark.rows.log_rows import check_position
from streamkit.runtime.spark.spark_session import Cluster
from streamkit.runtime.spark.stage_plan import has_routes, matching
from streamkit.runtime.spark.submission.incremental import check_options
from streamkit.runtime.spark.submission.request import inputs_of_topic
from streamkit.runtime.spark.submission.submit_job import check, unread, unwritten
from streamkit.spec.topology_file import TOP_LEVEL, ordered, read_text
from streamkit.spec.yaml_nodes import Node, Source, check_keys, compose
from streamkit.spec.yaml_reader import BAD, Bad, Reader

KEYS = (
    "topology", "description", "set", "inputs", "outputs", "checkpoint", "emit", "engine", "from", "until", "on_data_loss", "overwrite",
    "shadow", "compare", "write_state", "parallelism", "master", "spark", "py_files", "archives", "files",
)  # fmt: skip
ON_DATA_LOSS = ("error", "warn")
PlanOf: TypeAlias = Callable[[str, Mapping[str, str]], Plan]
"""Loads the plan of (topology file, settings). Raises TopologyError, UsageError, ConfigError."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True)
class JobFile:
    """A job: its topology, its options, and its cluster."""

    plan: Plan
    options: JobOptions = field(default_factory=JobOptions)
    cluster: Cluster = field(default_factory=Cluster)


def is_job_file(path: str) -> bool:
    """Return whether a file is a job file (is_job_text)."""
    try:
        return is_job_text(read_text(path))
    except StreamkitError:
        return False


def is_job_text(text: str) -> bool:
    """Return whether a text is a job file: by its keys, it names a topology and is neither a topology nor a test.

    If it does not name a topology, for example because the key is misspelt, the majority of keys decides.
    """
    try:
        root = compose(Source(text, ""), [])
    except TopologyError:
        return re.search(r"^topology\s*:", text, re.MULTILINE) is not None
    names = {key.value for key, _ in root.value if key.kind == "scalar"} if root and root.kind == "mapping" else set()
    if names & {"streamkit", "tests"}:
        return False
    others = names - set(TOP_LEVEL)
    of_jobs = {name for name in others if name in KEYS or get_close_matches(name, KEYS, 1)}
    return "topology" in names or len(of_jobs) > len(names) - len(of_jobs)


def load_job(path: str, plan_of: PlanOf, environment: Mapping[str, str], text: str | None = None) -> JobFile:
    """Read the job of a file. environment: variables for `${NAME}`; text: the contents, if it is not a file.

    Raises TopologyError with every problem of the job and its topology, sorted by position; UsageError if it can't be read.
    """
    problems: list[Problem] = []
    source = Source(read_text(path) if text is None else text, path)
    root = compose(source, problems)
    if root is None:
        raise TopologyError([*problems, Problem(source.at(0), "The file is empty; a job file begins with 'topology:'")])
    check_keys(root, problems)
    folder = os.path.dirname(os.path.abspath(path))
    job = _JobReader(Reader(source, folder, {}, environment, problems), plan_of).read(root)
    if problems or job is None:
        raise TopologyError(ordered(problems))
    return job


class _JobReader:
    """Reads one file."""

    def __init__(self, reader: Reader, plan_of: PlanOf):
        self._reader = reader
        self._plan_of = plan_of
        self._plan: Plan | None = None
        self._output_nodes: dict[str, Node] = {}
        """By topic."""

    def read(self, root: Node) -> JobFile | None:
        """Return the job; None if its topology has mistakes."""
        reader = self._reader
        keys = reader.options(root, "A job file", KEYS, ("topology",))
        if "description" in keys:
            reader.text(keys["description"], "'description'")
        self._plan = self._topology(keys, root)
        cluster = Cluster(
            self._text(keys, "master"),
            self._texts(keys, "spark"),
            self._paths(keys, "py_files"),
            self._paths(keys, "archives"),
            files=self._paths(keys, "files"),
        )
        options = self._options(keys)
        if self._plan is None:
            return None
        if not reader.problems:
            self._check(self._plan, options, keys)
        return JobFile(self._plan, options, cluster)

    def _check(self, plan: Plan, options: JobOptions, keys: Mapping[str, Node]) -> None:
        """Report combinations of valid options that the command would refuse whatever files exist."""
        for topic, node in self._output_nodes.items():
            self._checked(node, check, plan, JobOptions(outputs={topic: options.outputs[topic]}, overwrite=True))
        if self._output_nodes and not self._reader.problems:
            self._checked(keys["outputs"], check, plan, replace(options, overwrite=True))
        for name in ("write_state", "compare", "overwrite", "parallelism") if options.checkpoint is not None else ():
            if name in keys:
                self._checked(keys[name], check_options, replace(JobOptions(), **{name: getattr(options, name)}))

    def _checked(self, node: Node, check: Callable[..., None], *arguments: object) -> None:
        try:
            check(*arguments)
        except UsageError as error:
            self._reader.report(node, str(error))

    def _topology(self, keys: Mapping[str, Node], root: Node) -> Plan | None:
        reader = self._reader
        settings = self._texts(keys, "set")
        name = reader.text(keys["topology"], "'topology'") if "topology" in keys else BAD
        if name is BAD:
            return None
        try:
            return self._plan_of(self._resolved(name), settings)
        except TopologyError as error:
            reader.report_all(error)
        except StreamkitError as error:
            text = str(error).removeprefix("--set: ")
            entries = self._entries(keys, "set")
            named = next((key for setting, (key, _) in entries.items() if setting in text), keys.get("set", root))
            reader.report(keys["topology"] if text == str(error) else named, text)
        return None

    def _options(self, keys: Mapping[str, Node]) -> JobOptions:
        reader = self._reader
        checkpoint = self._text(keys, "checkpoint")
        count = reader.integer(keys["parallelism"], "'parallelism'", 1) if "parallelism" in keys else 1
        return JobOptions(
            inputs=self._inputs(keys),
            outputs=self._outputs(keys),
            emit=self._choice(keys, "emit", (UPDATES, FINAL)),
            engine=self._choice(keys, "engine", ENGINES) or AUTO,
            range=Range(
                self._position(keys, "from", Range().start),
                self._position(keys, "until", Range().end),
                self._choice(keys, "on_data_loss", ON_DATA_LOSS) == "warn",
            ),
            overwrite=self._flag(keys, "overwrite"),
            shadow=self._text(keys, "shadow") or "",
            compare=self._compared(keys),
            write_state=self._flag(keys, "write_state"),
            checkpoint=None if checkpoint is None else self._resolved(checkpoint),
            parallelism=count or 1,
        )

    # -- Inputs and outputs --------------------------------------------------------------------------------------------

    def _inputs(self, keys: Mapping[str, Node]) -> dict[str, tuple[Place, ...]]:
        reader = self._reader
        inputs = {}
        for name, (key, body) in self._entries(keys, "inputs").items():
            what = f"The input {name!r}"
            topic = self._topic(name, key, unread)
            items = body.value if body.kind == "list" else [body]
            if not items:
                reader.report(body, f"{what} needs at least one place; leave it empty for the log")
            places = [place for item in items if (place := self._place(item, what, True)) is not BAD]
            if topic is BAD or self._plan is None or len(places) < len(items):
                continue
            try:
                joined = inputs_of_topic(self._plan, topic, places, what)
            except UsageError as error:
                reader.report(key, str(error))
                continue
            if joined:
                inputs[topic] = joined
        return inputs

    def _outputs(self, keys: Mapping[str, Node]) -> dict[str, Place | None]:
        places: dict[str, Place | None] = {}
        for name, (key, body) in self._entries(keys, "outputs").items():
            topic = REST if name == REST else self._topic(name, key, unwritten)
            place = self._place(body, f"The output {name!r}", False)
            if topic is not BAD and place is not BAD:
                places[topic], self._output_nodes[topic] = place, body
        return places

    def _topic(self, name: str, key: Node, mistake: Callable[[Plan, str], str | None]) -> str | Bad:
        """Return the name of a topic on the log, which the topology must read or write."""
        plan, reader = self._plan, self._reader
        if plan is None:
            return BAD
        entries = {topic.entry for topic in plan.external_topics.values()}
        is_chosen = mistake is unwritten and any(map(has_routes, plan.sub_topologies))
        if name not in entries and (matching(plan, name) if mistake is unread else is_chosen):
            return name
        try:
            topic = find_topic(plan, name).name
        except UsageError as error:
            return reader.report(key, str(error))
        reason = mistake(plan, topic)
        return topic if reason is None else reader.report(key, f"{name!r}: {reason}")

    def _place(self, node: Node, what: str, is_input: bool) -> Place | Bad | None:
        """Return a place, or None for an empty node, which means the log."""
        reader = self._reader
        if reader.is_null(node):
            return None
        if node.kind == "scalar":
            name = reader.text(node, what)
            if name is BAD:
                return BAD
            return self._located(node, what, name, {}, {}, is_input)
        settings = INPUT_SETTINGS if is_input else OUTPUT_SETTINGS
        keys = reader.options(node, what, ("path", "table", *settings, *(["options"] if is_input else [])))
        if node.kind != "mapping":
            return BAD
        where = [name for name in ("path", "table") if name in keys]
        if len(where) != 1:
            return reader.report(node, f"{what} needs either 'path' or 'table'")
        path = reader.text(keys[where[0]], f"{where[0]!r}")
        values = {name: self._setting(name, keys[name], is_input) for name in settings if name in keys}
        options = self._texts(keys, "options")
        if path is BAD or BAD in values.values():
            return BAD
        present = {name: value for name, value in values.items() if value is not BAD}
        present |= {f"{OPTION}{name}": value for name, value in options.items()}
        if where == ["table"]:
            return self._checked_place(node, what, path, {"format": TABLE, **present}, keys, is_input)
        return self._located(node, what, path, present, keys, is_input)

    def _located(
        self, node: Node, what: str, path: str, present: Mapping[str, Parts], keys: Mapping[str, Node], is_input: bool
    ) -> Place | Bad:
        """Return a place from its path relative to the job file, or from a table's name, as on the command line."""
        resolved = self._resolved(path)
        form = present.get("format")
        if form is None and is_table_name(path) and not os.path.exists(resolved):
            present, form = {"format": TABLE, **present}, TABLE
        is_name = "/" not in path and (form in (TABLE, ICEBERG) or (form == DELTA and not is_input))
        return self._checked_place(node, what, path if is_name else resolved, present, keys, is_input)

    def _checked_place(
        self, node: Node, what: str, path: str, settings: Mapping[str, Parts], keys: Mapping[str, Node], is_input: bool
    ) -> Place | Bad:
        """Return a place as the command line's options would. Mistakes are reported at the setting that they name."""
        try:
            place = make_place(path, settings, is_input, what)
        except UsageError as error:
            text = str(error).removeprefix(f"{what}: ")
            at = next((node_of_key for name, node_of_key in keys.items() if re.match(rf"{name}\W", text)), node)
            return self._reader.report(at, f"{what}: {text}")
        if is_input and is_missing(place):
            return self._reader.report(keys.get("path", node), f"{what}: {place.path}: no such file or directory")
        return place

    def _setting(self, name: str, node: Node, is_input: bool) -> Parts | Bad:
        """Return a setting of a place: text or, for settings that can have several parts, a list or a mapping."""
        reader = self._reader
        what = f"{name!r}"
        if node.kind == "scalar":
            return self._written(node, what)
        if node.kind == "list" and (name in ("key", "value") if is_input else True):
            items = [self._written(item, f"An item of {what}") for item in node.value]
            parts = tuple(item for item in items if item is not BAD)
            if len(parts) < len(items) or not parts:
                return BAD if parts or items else reader.report(node, f"{what} is empty")
            return parts if is_input else ",".join(parts)
        if node.kind == "mapping" and name in ("key", "value", "headers"):
            entries = {field: self._written(value, what) for field, (_, value) in reader.entries(node, what).items()}
            fields = {field: value for field, value in entries.items() if value is not BAD}
            if len(fields) < len(entries) or not fields:
                return BAD if entries else reader.report(node, f"{what} is empty")
            return fields if is_input else ",".join(f"{field} {kind}" for field, kind in fields.items())
        return reader.report_mismatch(node, what, "text")

    def _written(self, node: Node, what: str) -> str | Bad:
        """Return a column, an expression or a type. A number is an expression too."""
        value = self._reader.value(node) if node.kind == "scalar" else None
        return self._as_written(node) if type(value) in (int, float) else self._reader.text(node, what)

    def _as_written(self, node: Node) -> str:
        """Return a scalar as text: `1.10` is kept, and numbers in other bases become decimal."""
        value = self._reader.value(node)
        if isinstance(value, bool):
            return str(value).lower()
        if self._reader.is_broken(node):
            return ""
        text = self._reader.value.interpolate(node, node.value)
        return str(value) if isinstance(value, int) and text.startswith(("0x", "0o")) else text

    # -- Other keys ----------------------------------------------------------------------------------------------------

    def _entries(self, keys: Mapping[str, Node], name: str) -> dict[str, tuple[Node, Node]]:
        return self._reader.entries(keys[name], f"{name!r}") if name in keys else {}

    def _text(self, keys: Mapping[str, Node], name: str) -> str | None:
        return (self._reader.text(keys[name], f"{name!r}") or None) if name in keys else None

    def _texts(self, keys: Mapping[str, Node], name: str) -> dict[str, str]:
        """Return a mapping of settings as text."""
        texts = {}
        for key, (_, node) in self._entries(keys, name).items():
            value = self._reader.value(node) if node.kind == "scalar" else None
            if value is None:
                self._reader.report_mismatch(node, f"{key!r} of {name!r}", "text, a number, true or false")
            else:
                texts[key] = self._as_written(node)
        return texts

    def _paths(self, keys: Mapping[str, Node], name: str) -> list[str]:
        """Return a list of files, or a single one."""
        if name not in keys:
            return []
        node = keys[name]
        items = node.value if node.kind == "list" else [node]
        texts = [self._reader.text(item, f"An item of {name!r}") for item in items]
        return [self._resolved(text) for text in texts if text is not BAD]

    def _flag(self, keys: Mapping[str, Node], name: str) -> bool:
        return name in keys and self._reader.boolean(keys[name], f"{name!r}") is True

    def _choice(self, keys: Mapping[str, Node], name: str, words: tuple[str, ...]) -> str | None:
        return (self._reader.choice(keys[name], f"{name!r}", words) or None) if name in keys else None

    def _position(self, keys: Mapping[str, Node], name: str, default: str) -> str:
        """Return a position on the log as in the options. The path of an offsets file is relative to the job file."""
        if name not in keys:
            return default
        text = self._written(keys[name], f"{name!r}")
        if text is BAD:
            return default
        path = self._resolved(text)
        if os.path.isfile(path):
            return path
        try:
            check_position(text, f"--{name}")
        except UsageError as error:
            self._reader.report(keys[name], str(error).removeprefix(f"--{name} "))
        return text

    def _compared(self, keys: Mapping[str, Node]) -> tuple[str, ...]:
        reader = self._reader
        if "compare" not in keys:
            return ()
        node = keys["compare"]
        topics = []
        for item in node.value if node.kind == "list" else [node]:
            name = reader.text(item, "An item of 'compare'")
            topic = BAD if name is BAD else self._topic(name, item, unwritten)
            if topic is not BAD:
                topics.append(topic)
        return tuple(topics)

    def _resolved(self, path: str) -> str:
        """Return a path relative to the folder of the job file; a path with a scheme unchanged."""
        return path if _SCHEME.match(path) else os.path.join(self._reader.folder, path)
