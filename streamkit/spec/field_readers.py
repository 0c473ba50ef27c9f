"""Parses the options of steps: one function for each kind of field (operators/core/fields.py), called by `read`."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamkit import expressions
from streamkit.durations import LONGEST
from streamkit.errors import Position, StreamkitError, TopologyError
from streamkit.expressions import Expression
from streamkit.expressions.call_signatures import Usage
from streamkit.operators.core import fields
from streamkit.operators.core.parsed_values import (
    BatchCall,
    BranchSpec,
    CacheOptions,
    CallRef,
    CogroupInput,
    Ref,
    StoreOptions,
)
from streamkit.serdes.serde import Serde
from streamkit.spec import legal_names
from streamkit.spec.call_readers import batch_call, call_ref, is_call
from streamkit.spec.materialized import store_options, topic_config
from streamkit.spec.yaml_nodes.locate import locator
from streamkit.spec.yaml_nodes.nodes import Node, quoted
from streamkit.spec.yaml_nodes.reader import BAD, Bad, Options, Reader, Use, put
from streamkit.suggestions import did_you_mean

if TYPE_CHECKING:
    from streamkit.serdes.formats.called import CalledSerde
    from streamkit.serdes.plain import Json

LONGEST_EXAMPLE = 120


def read(reader: Reader, kind: fields.Kind, node: Node, what: str) -> object:
    """Return the parsed value of a node, or BAD after reporting a problem; `what` names the field."""
    return _READERS[type(kind)](reader, kind, node, what)


# -- Expressions and callables -------------------------------------------------------------------------------------


def expression(
    reader: Reader,
    node: Node,
    what: str,
    allowed: tuple[str, ...],
    arguments: tuple[str, ...] = ("key", "value"),
    takes_all: bool = True,
) -> Expression | Bad:
    """Return the Expression of a node over the names `allowed`; a callable takes `arguments` in order.

    takes_all: whether it takes all of them; else the step decides.
    """
    try:
        if is_call(node):
            ref = call_ref(reader, node, what, Usage(arguments if takes_all else None))
            return ref if ref is BAD else expressions.called(ref, arguments, node.position)
        if node.kind != "scalar":
            return reader.report(node, f"{what} must be an expression, not {reader.kind(node)}; {quoting(node)}")
        value = reader.value(node)
        if reader.is_broken(node):
            return BAD
        if value is None:
            return reader.report(node, f"{what} must be an expression; write 'None' in quotes for nothing")
        if not isinstance(value, str):
            return expressions.constant(value, node.position)
        return expressions.parse(value, allowed, node.position, reader.functions, locator(node))
    except TopologyError as error:
        return reader.report_all(_with_comment(error, node))


_CUT_OFF = ("unterminated", "is never closed", "it ends too early", "invalid syntax")
"""Parts of messages about an expression without its end."""


def _with_comment(error: TopologyError, node: Node) -> TopologyError:
    """Return the error, with a hint where YAML ends the expression: at ` #`, which begins a comment, or at a comma."""
    rest = node.source.text[node.end :].partition("\n")[0]
    cut_off = any(each in problem.message for problem in error.problems for each in _CUT_OFF)
    rest = rest.lstrip(" \t")
    if not (cut_off and node.plain and rest.startswith(("#", ","))):
        return error
    hint = "YAML takes what follows ' #' for a comment: put the expression in quotes if it belongs to it"
    if rest.startswith(","):
        hint = "YAML ends it at the comma: put the expression in quotes"
    return TopologyError([replace(problem, message=f"{problem.message}; {hint}") for problem in error.problems])


def quoting(node: Node) -> str:
    """Return the advice to quote, with the quoted form of a list or mapping that was meant as an expression."""
    text = " ".join(node.source.text[node.start : node.end].split())
    if not _is_python(text) or (node.kind == "mapping" and not all(key.style for key, _ in node.value)):
        text = _source_form(node)
    if len(text) > LONGEST_EXAMPLE:
        return "put it in quotes"
    return f"put it in quotes: {quoted(text)}"


def _is_python(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _source_form(node: Node) -> str:
    if node.kind == "list":
        return "[" + ", ".join(map(_source_form, node.value)) + "]"
    if node.kind == "mapping":
        rows = [f"{json.dumps(str(key.value), ensure_ascii=False)}: {_source_form(value)}" for key, value in node.value]
        return "{" + ", ".join(rows) + "}"
    if node.style in ("'", '"'):
        return json.dumps(node.value, ensure_ascii=False)
    return {"true": "True", "false": "False", "null": "None", "~": "None", "": "None"}.get(node.value, str(node.value))


def _expr(reader: Reader, kind: fields.Expr, node: Node, what: str) -> Expression | BatchCall | Bad:
    if kind.batch and is_call(node) and any(key.value in ("batch", "as") for key, _ in node.value):
        return batch_call(reader, kind, node, what)
    return expression(reader, node, what, kind.names, kind.arguments, kind.takes_all)


def _callable(reader: Reader, kind: fields.Callable_, node: Node, what: str) -> CallRef | Bad:
    return call_ref(reader, node, what, Usage(kind.passed, kind.context, makes=True))


def _arguments(reader: Reader, kind: fields.Arguments, node: Node, what: str) -> Bad:
    return reader.report(node, f"{what} needs 'call': it has the arguments of a callable")


def _headers(
    reader: Reader, kind: fields.HeaderMap, node: Node, what: str
) -> tuple[tuple[str, Expression | None], ...]:
    result = []
    for name, (_, value) in reader.entries(node, what).items():
        parsed = None if reader.is_null(value) else expression(reader, value, f"Header {name!r}", fields.STREAM_NAMES)
        if parsed is not BAD:
            result.append((name, parsed))
    return tuple(result)


# -- Plain values --------------------------------------------------------------------------------------------------


def serde(reader: Reader, node: Node, what: str) -> Serde | Bad:
    """Return the Serde of a name or of a mapping with arguments."""
    from streamkit import serdes

    spec, folder = reader.data(node), reader.folder_of(node)
    try:
        found = serdes.parse(spec, folder)
        reader.called_serdes += [(each, node.position, what) for each in _called_serdes(spec, folder)]
        return found
    except TopologyError as error:
        return reader.report(node, f"{what}: {'; '.join(problem.message for problem in error.problems)}")
    except StreamkitError as error:
        return reader.report(node, f"{what}: {error}")


def _called_serdes(spec: Json, folder: str) -> list[CalledSerde]:
    """Return the serdes written in Python of a serde's specification, which may be within others."""
    if not isinstance(spec, dict):
        return []
    if "call" in spec:
        from streamkit.serdes.formats.called import CalledSerde

        return [CalledSerde(spec["call"], folder, spec.get("with"))]
    return [each for part in spec.values() for each in _called_serdes(part, folder)]


def _serde(reader: Reader, kind: fields.SerdeField, node: Node, what: str) -> Serde | Bad:
    return serde(reader, node, what)


def _text(reader: Reader, kind: fields.Text, node: Node, what: str) -> str | Bad:
    return reader.text(node, what, kind.kafka_name)


def _duration(reader: Reader, kind: fields.Duration, node: Node, what: str) -> int | Bad:
    return reader.duration(node, what, kind.minimum)


def _signed_duration(reader: Reader, kind: fields.SignedDuration, node: Node, what: str) -> int | Bad:
    return reader.duration(node, what, -LONGEST)


def _duration_or(reader: Reader, kind: fields.DurationOr, node: Node, what: str) -> str | int | Bad:
    value = reader.value(node) if node.kind == "scalar" else None
    if value in kind.words:
        return value
    hint = did_you_mean(value, kind.words) if isinstance(value, str) else ""
    if hint:
        return reader.report(node, f"{what} is {value!r}{hint}")
    return reader.duration(node, f"{what} must be {' or '.join(kind.words)}, or", kind.minimum)


def _integer(reader: Reader, kind: fields.Integer, node: Node, what: str) -> int | Bad:
    return reader.integer(node, what, kind.minimum, 2**63 - 1)


def _fraction(reader: Reader, kind: fields.Fraction, node: Node, what: str) -> float | Bad:
    return reader.fraction(node, what)


def _flag(reader: Reader, kind: fields.Flag, node: Node, what: str) -> bool | Bad:
    return reader.boolean(node, what)


def _topic_config(reader: Reader, kind: fields.TopicConfig, node: Node, what: str) -> tuple[tuple[str, str], ...]:
    return tuple(topic_config(reader, node, what).items())


def _choice(reader: Reader, kind: fields.Choice, node: Node, what: str) -> str | Bad:
    return reader.choice(node, what, kind.words)


def _cache(reader: Reader, kind: fields.CacheField, node: Node, what: str) -> CacheOptions | Bad:
    options = reader.options(node, what, ("size", "ttl"), ("size",))
    if "size" not in options:
        return BAD
    size = reader.integer(options["size"], f"'size' of {what}", 1)
    ttl = reader.duration(options["ttl"], f"'ttl' of {what}", 1) if "ttl" in options else None
    return BAD if size is BAD or ttl is BAD else CacheOptions(size, ttl)


# -- Stores --------------------------------------------------------------------------------------------------------


def _store(reader: Reader, kind: fields.StoreField, node: Node, what: str) -> StoreOptions | Bad:
    return store_options(reader, node, what)


def _store_names(reader: Reader, kind: fields.StoreNames, node: Node, what: str) -> tuple[str, ...]:
    found = []
    for item in reader.items(node, what) if node.kind != "scalar" else [node]:
        name = reader.text(item, f"An entry of {what}")
        if name is not BAD:
            reader.uses.append(Use("store", name, item.position, reader.pipeline))
            found.append(name)
    return tuple(found)


def _base_name(reader: Reader, kind: fields.BaseName, node: Node, what: str) -> str | Bad:
    return reader.text(node, what, kafka_name=True)


# -- References ----------------------------------------------------------------------------------------------------


def pipeline_ref(reader: Reader, node: Node, what: str) -> Ref | Bad:
    """Return the Ref of `PIPELINE` or `PIPELINE.BRANCH`."""
    text = reader.text(node, what)
    if text is BAD:
        return BAD
    pipeline, dot, branch = text.partition(".")
    if not legal_names.PIPELINE.fullmatch(pipeline) or (dot and not legal_names.PIPELINE.fullmatch(branch)):
        return reader.report_mismatch(node, what, "a PIPELINE or PIPELINE.BRANCH")
    reader.uses.append(Use("pipeline", text, node.position, reader.pipeline))
    return Ref("pipeline", pipeline, branch or None, position=node.position)


SOURCES = ("stream", "table", "global_table")


def source_ref(reader: Reader, kind: str, options: dict[str, Node], position: Position) -> Ref | Bad:
    """Return the Ref of a source of `kind` with its options `name` and `store`."""
    values: Options = {}
    if "name" in options:
        put(values, "name", reader.text(options["name"], "'name' of a source", kafka_name=True))
    if "store" in options and kind == "stream":
        reader.report(options["store"], "A stream has no store; only 'table' and 'global_table' take 'store'")
    elif "store" in options:
        put(values, "store", store_options(reader, options["store"], f"'store' of the {kind}"))
    topics = _topics(reader, kind, options[kind])
    return topics if topics is BAD else Ref(kind, **topics, **values, position=position)


def _topics(reader: Reader, kind: str, node: Node) -> Options | Bad:
    """Return the fields of a Ref for its topics."""
    if kind == "stream" and node.kind == "mapping":
        return _pattern(reader, node)
    if node.kind == "list" and kind == "stream":
        if not node.value:
            return reader.report(node, "'stream' needs at least one topic")
        topics = [reader.topic(item, "A topic of 'stream'") for item in node.value]
        return BAD if BAD in topics else {"topics": tuple(topics)}
    if node.kind != "scalar":
        forms = "a topic, a list of topics or {pattern: REGEX}" if kind == "stream" else "one topic"
        return reader.report_mismatch(node, repr(kind), forms)
    topic = reader.topic(node, repr(kind))
    return topic if topic is BAD else {"topics": (topic,)}


def _pattern(reader: Reader, node: Node) -> Options | Bad:
    options = reader.options(node, "'stream'", ("pattern",), ("pattern",))
    text = reader.text(options["pattern"], "'pattern'") if "pattern" in options else BAD
    if text is BAD:
        return BAD
    import re2  # patterns of the language are RE2; loaded for files that have one

    quiet = re2.Options()
    quiet.log_errors = False
    try:
        re2.compile(text, options=quiet)
    except re2.error as error:
        return reader.report(options["pattern"], f"'pattern' is no regular expression: {_reason(error)}")
    return {"pattern": text}


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


def _pipeline(reader: Reader, kind: fields.PipelineRef, node: Node, what: str) -> Ref | tuple[Ref, ...] | Bad:
    if not kind.many:
        return _one_ref(reader, node, what)
    nodes = node.value if node.kind == "list" else [node]
    if not nodes:
        return reader.report(node, f"{what} needs at least one pipeline")
    found = [_one_ref(reader, item, what) for item in nodes]
    refs = tuple(ref for ref in found if ref is not BAD)
    return refs if len(refs) == len(found) else BAD


def _one_ref(reader: Reader, node: Node, what: str) -> Ref | Bad:
    if node.kind != "mapping":
        return pipeline_ref(reader, node, what)
    options = reader.options(node, what, (*SOURCES, "store", "name"))
    given = [kind for kind in SOURCES if kind in options]
    if len(given) != 1:
        return reader.report(node, f"{what} must be a pipeline, or have exactly one of {', '.join(SOURCES)}")
    return source_ref(reader, given[0], options, node.position)


def _cogroup(reader: Reader, kind: fields.CogroupInputs, node: Node, what: str) -> tuple[CogroupInput, ...]:
    found = []
    for item in reader.items(node, what):
        options = reader.options(item, "An input of 'cogroup'", ("from", "add"), ("from", "add"))
        source = pipeline_ref(reader, options["from"], "'from' of an input") if "from" in options else BAD
        add = expression(reader, options["add"], "'add'", fields.AGGREGATE_NAMES, ADDING) if "add" in options else BAD
        if source is not BAD and add is not BAD:
            found.append(CogroupInput(source, add))
    return tuple(found)


ADDING = ("key", "value", "aggregate")
"""The arguments of a callable that adds to an aggregate (Aggregator.apply)."""


def _branches(reader: Reader, kind: fields.Branches, node: Node, what: str) -> tuple[BranchSpec, ...]:
    from streamkit.spec.steps import branches  # steps have branches, and branches have steps

    return branches(reader, node, what)


def _default_branch(reader: Reader, kind: fields.DefaultBranch, node: Node, what: str) -> str | Bad:
    if node.kind == "scalar" and reader.value(node) is True:
        return "0"
    return reader.text(node, what)


_READERS: dict[type, Callable[[Reader, Any, Node, str], object]] = {  # each takes its own kind
    fields.Expr: _expr,
    fields.SerdeField: _serde,
    fields.Text: _text,
    fields.Duration: _duration,
    fields.SignedDuration: _signed_duration,
    fields.Integer: _integer,
    fields.Fraction: _fraction,
    fields.Choice: _choice,
    fields.Flag: _flag,
    fields.TopicConfig: _topic_config,
    fields.DurationOr: _duration_or,
    fields.StoreField: _store,
    fields.StoreNames: _store_names,
    fields.BaseName: _base_name,
    fields.PipelineRef: _pipeline,
    fields.CogroupInputs: _cogroup,
    fields.Branches: _branches,
    fields.DefaultBranch: _default_branch,
    fields.HeaderMap: _headers,
    fields.Callable_: _callable,
    fields.Arguments: _arguments,
    fields.CacheField: _cache,
}
