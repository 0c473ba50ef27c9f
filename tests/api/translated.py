"""Translates a topology file to calls of the Python builder, mechanically: one call for each construct, in the order of Java's calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

import streamkit
from streamkit.expressions import load_object
from streamkit.operators import OPERATORS
from streamkit.operators.core.parsed_values import CallRef
from streamkit.spec.call_places import python_name
from streamkit.spec.recorded_calls import PythonCall, positional_field

TOPIC_STORES = ("global_store", "read_only_store")


class _Core(yaml.SafeLoader):
    """YAML 1.2: only `true` and `false` are booleans."""


_Core.yaml_implicit_resolvers = {
    first: pairs for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items() if first not in "yYnNoO"
}


def translate(file: Path) -> streamkit.Topology:
    """Return the topology of a file, made by calls."""
    data = yaml.load(file.read_text(encoding="utf-8"), _Core)
    return _Translation(data, file).topology


class _Translation:
    def __init__(self, data: dict[str, Any], file: Path):
        head = {name: data.get(name) for name in ("description", "config", "defaults")}
        self.folder = file.parent
        self.topology = streamkit.Topology(data["application"], environment={}, **head)
        for name, options in (data.get("topics") or {}).items():
            self.topology.topic(name, **self.options(options or {}))
        for name, options in (data.get("functions") or {}).items():
            self.topology.function(name, **self.options(options))
        for name, options in (data.get("stores") or {}).items():
            self.topology.store(name, **self.options(options))
        self.data = data["pipelines"]
        self.built: dict[str, Any] = {}
        for name in self.data:
            self.pipeline(name)

    def pipeline(self, name: str) -> Any:
        if name in self.built:
            return self.built[name]
        body = dict(self.data[name])
        kind = next(kind for kind in ("stream", "table", "global_table", *TOPIC_STORES, "from") if kind in body)
        source = body.pop(kind)
        steps, ends = body.pop("steps", None) or [], {end: body.pop(end) for end in ("to", "for_each") if end in body}
        stream = self.reference(source) if kind == "from" else self.source(kind, source, body)
        self.built[name] = self.steps(stream, steps, ends)
        return self.built[name]

    def source(self, kind: str, source: Any, options: dict[str, Any]) -> Any:
        method = getattr(self.topology, kind)
        if isinstance(source, dict):
            return method(pattern=source["pattern"], **self.options(options))
        return method(source, **self.options(options))

    def reference(self, ref: Any) -> Any:
        if isinstance(ref, dict):
            kind = next(kind for kind in ("stream", "table", "global_table") if kind in ref)
            return self.source(kind, ref[kind], {name: value for name, value in ref.items() if name != kind})
        name, _, branch = ref.partition(".")
        found = self.pipeline(name)
        return found[branch] if branch else found

    def steps(self, stream: Any, steps: list[Any], ends: dict[str, Any]) -> Any:
        for step in steps:
            name, body = (step, None) if isinstance(step, str) else next(iter(step.items()))
            stream = self.step(stream, name, body)
        if "to" in ends:
            to = ends["to"] if isinstance(ends["to"], dict) else {"topic": ends["to"]}
            stream.to(**self.options(to))
        if "for_each" in ends:
            stream.for_each(**self.options(ends["for_each"]))
        return stream

    def step(self, stream: Any, name: str, body: Any) -> Any:
        operator = OPERATORS[name]
        names = [field.name for field in operator.fields]
        first = positional_field(operator)
        if not isinstance(body, dict) or ("call" in body and "call" not in names):
            body = {} if body is None else {first.name: body}
        body = {each: value for each, value in body.items() if value is not None}
        if "call" in body and operator.main != "call":
            keys = ("call", "with", "batch", "as")
            body = {
                operator.main: {key: body[key] for key in keys if key in body},
                **{k: v for k, v in body.items() if k not in keys},
            }
        if name == "branch":
            return self.branch(stream, body)
        if name in ("merge", "join", "left_join", "outer_join"):
            refs = body["with"] if isinstance(body["with"], list) else [body["with"]]
            found = [self.reference(ref) for ref in refs]
            body["with"] = found if name == "merge" else found[0]
        if name == "cogroup":
            body["inputs"] = [
                (self.reference(each["from"]), self.value(each["add"])) for each in body.get("inputs") or []
            ]
        options = self.options(body)
        positional = [options.pop(python_name(first.name))] if first is not None and first.name in body else []
        return getattr(stream, python_name(name))(*positional, **options)

    def branch(self, stream: Any, body: dict[str, Any]) -> Any:
        when = body["when"]
        named = list(when.items()) if isinstance(when, dict) else []
        if isinstance(when, list):
            named = [
                (each.get("name", str(at)) if isinstance(each, dict) else str(at), each)
                for at, each in enumerate(when, 1)
            ]
        later: list[tuple[str, dict[str, Any]]] = []
        made: dict[str, Any] = {}
        results: dict[str, Any] = {}
        for name, each in named:
            if not isinstance(each, dict) or "if" not in each:
                made[name] = self.value(each)
            elif each.get("chained"):

                def then(inner: Any, each: dict[str, Any] = each) -> None:
                    self.steps(
                        inner, each.get("steps") or [], {end: each[end] for end in ("to", "for_each") if end in each}
                    )

                made[name] = streamkit.Branch(self.value(each["if"]), then, chained=True)
            else:
                made[name] = self.value(each["if"])
                later.append((name, each))
        given = (
            list(made.values())
            if isinstance(when, list) and list(made) == [str(at) for at in range(1, len(made) + 1)]
            else made
        )
        options = {name: value for name, value in body.items() if name != "when"}
        branches = stream.branch(given, **self.options(options))
        for name, each in later:
            results[name] = self.steps(
                branches[name], each.get("steps") or [], {end: each[end] for end in ("to", "for_each") if end in each}
            )
        return {**{name: branches[name] for name in branches}, **results}

    def options(self, options: dict[str, Any]) -> dict[str, Any]:
        return {
            python_name(name): self.loaded(value) if name in ("call", "process") else self.value(value)
            for name, value in options.items()
        }

    def loaded(self, name: str) -> Any:
        """The object itself: cases have different modules of one name."""
        module, _, attribute = name.partition(":")
        return load_object(CallRef(module, attribute, str(self.folder)))

    def value(self, value: Any) -> Any:
        if isinstance(value, dict) and "call" in value and set(value) <= {"call", "with", "batch", "as"}:
            return PythonCall(self.loaded(value["call"]), value.get("with") or {}, value.get("batch"), value.get("as"))
        return value
