"""Checks the references of a file: topics, pipelines, branches and stores exist, once each, and without a circle."""

from __future__ import annotations

from collections.abc import Mapping

from streamkit.operators.core import fields
from streamkit.operators.core.parsed_values import BranchSpec
from streamkit.spec import legal_names
from streamkit.spec.topology_model import PipelineSpec
from streamkit.spec.yaml_nodes.reader import Reader, StoreDefinition, Use


def check(reader: Reader, topics: list[str], stores: list[str], pipelines: Mapping[str, PipelineSpec]) -> None:
    """Report every use of a name that the file does not define, stores that are made twice, and circles."""
    branches = {name: _branches(reader, pipeline) for name, pipeline in pipelines.items()}
    for use in reader.uses:
        if use.kind == "topic" and use.name not in topics:
            hint = legal_names.hint(use.name, topics, "topics")
            reader.report(use.position, f"There is no topic {use.name!r} in 'topics'{hint}")
        elif use.kind == "store" and use.name not in stores:
            hint = legal_names.hint(use.name, stores, "stores")
            reader.report(use.position, f"There is no store {use.name!r} in 'stores'{hint}")
        elif use.kind == "pipeline":
            _check_pipeline(reader, use, branches)
    _check_stores(reader)
    _check_circles(reader, branches)


def _branches(reader: Reader, pipeline: PipelineSpec) -> list[str] | None:
    """Return the names of the branches that a pipeline ends with, or None when it ends otherwise."""
    if not pipeline.steps:
        return None
    last = pipeline.steps[-1]
    field = next((f for f in reader.operators[last.operator].fields if isinstance(f.kind, fields.Branches)), None)
    if field is None:
        return None
    found = [branch.name for branch in last.get(field.name, ()) if isinstance(branch, BranchSpec)]
    default = last.get("default")
    return [*found, default] if isinstance(default, str) else found


def _check_pipeline(reader: Reader, use: Use, branches: Mapping[str, list[str] | None]) -> None:
    pipeline, dot, branch = use.name.partition(".")
    if pipeline not in branches:
        hint = legal_names.hint(pipeline, branches, "pipelines")
        reader.report(use.position, f"There is no pipeline {pipeline!r}{hint}")
        return
    if pipeline in reader.incomplete:
        return
    ends = branches[pipeline]
    if dot and ends is None:
        reader.report(use.position, f"The pipeline {pipeline!r} has no branches; write {pipeline!r} alone")
    elif dot and branch not in (ends or ()):
        hint = legal_names.hint(branch, ends or (), "branches")
        reader.report(use.position, f"The pipeline {pipeline!r} has no branch {branch!r}{hint}")
    elif not dot and ends is not None:
        listed = ", ".join(f"{pipeline}.{name}" for name in ends)
        reader.report(use.position, f"The pipeline {pipeline!r} ends with branches; name one of them: {listed}")


def _check_stores(reader: Reader) -> None:
    first: dict[str, StoreDefinition] = {}
    for store in sorted(reader.stores, key=lambda store: (store.position.line, store.position.column)):
        if store.name in first:
            line = first[store.name].position.line
            reader.report(store.position, f"The store {store.name!r} is made twice; the first is in line {line}")
        else:
            first[store.name] = store


def _check_circles(reader: Reader, branches: Mapping[str, object]) -> None:
    """Report each circle of references once, at the reference that closes it; without recursion."""
    edges: dict[str, list[Use]] = {name: [] for name in branches}
    for use in reader.uses:
        target = use.name.partition(".")[0]
        if use.kind == "pipeline" and target in edges and use.pipeline in edges:
            edges[use.pipeline].append(use)
    done: set[str] = set()
    for start in edges:
        path, pending = [start], [iter(() if start in done else edges[start])]
        on_path = {start}
        while pending:
            reference: Use | None = next(pending[-1], None)
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
