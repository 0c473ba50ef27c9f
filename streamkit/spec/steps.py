"""Steps: a name, a name with its main argument, or a name with its options; and the branches that hold steps."""

from __future__ import annotations

import ast
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from streamkit import expressions, serdes
from streamkit.durations import LONGEST
from streamkit.errors import Position, Problem, StreamkitError, TopologyError, Within
from streamkit.expressions import Expression, Function
from streamkit.expressions.calls import Usage
from streamkit.graph.physical_topology import OnError
from streamkit.operators.core import fields
from streamkit.operators.core.operator import AnyOperator, Operator, StepDeclaration
from streamkit.operators.core.parsed_values import (
    BatchCall,
    BranchSpec,
    CacheOptions,
    CallRef,
    CogroupInput,
    ForEachSpec,
    Ref,
    SinkSpec,
    Step,
)
from streamkit.serdes.plain import Json
from streamkit.serdes.serde import Serde
from streamkit.spec import macros, yaml_reader
from streamkit.spec.call_readers import batch_call, call_ref, called_options, is_call, passed_ref
from streamkit.spec.store_entries import store_options, topic_config
from streamkit.spec.topology_model import CallSite
from streamkit.spec.yaml_nodes import Argument, Node, locator, quoted
from streamkit.spec.yaml_reader import BAD, Bad, Options, Reader, Route, put
from streamkit.suggestions import did_you_mean, is_misspelt, nearest

if TYPE_CHECKING:
    from streamkit.serdes.formats.called import CalledSerde


BRANCH_NAME = "The name of a branch"
BRANCH_KEYS = ("if", "steps", "to", "for_each", "chained")
MOST_LISTS = 25
"""Lists of steps within each other; YAML's own limit allows fewer where no macro is used."""


def read_steps(reader: Reader, node: Node, what: str) -> tuple[Step, ...]:
    """Return the steps of a list, without those with problems."""
    steps = []
    if reader.nesting >= MOST_LISTS:
        reader.report(node, f"Branches are nested over {MOST_LISTS} levels deep")
        return ()
    items = _written_out(reader, reader.items(node, what))
    reader.nesting += 1
    for index, item in enumerate(items):
        step = _step(reader, item, index)
        if step is BAD:
            reader.incomplete.add(reader.pipeline)
            continue
        steps.append(step)
        _check_default(reader, step)
        if _has_branches(reader, step) and index + 1 < len(items):
            message = f"A pipeline ends with its {step.operator!r} step; continue with 'from: PIPELINE.BRANCH', or below 'when'"
            reader.report(items[index + 1], message)
    reader.nesting -= 1
    return tuple(steps)


class SubstitutedStep(StepDeclaration, ABC):
    """A step that is read as other steps, as a macro is."""

    @abstractmethod
    def steps(self, options: Mapping[str, object], parameters: Collection[str], problems: list[Problem]) -> Node | None:
        """Return a list of steps, in which `${NAME}` is the option of that name; adds mistakes to `problems`.

        options: by name, those in `parameters` as the text `${NAME}`. None after a mistake.
        """


def _written_out(reader: Reader, items: list[Node]) -> list[Node]:
    """Return the entries of a list of steps, with the steps of macros and of substituted steps in place of their uses."""
    written: list[Node] = []
    for item in items:
        key, body = item.value[0] if item.kind == "mapping" and len(item.value) == 1 else (item, None)
        name = reader.value(key) if key.kind == "scalar" else None
        macro = reader.macros.get(name) if isinstance(name, str) else None
        step = reader.operators.get(name) if isinstance(name, str) and macro is None else None
        if macro is not None:
            steps = macros.steps_of(reader, macro, key, body)
        elif isinstance(step, SubstitutedStep):
            steps = _substitute(reader, step, key, body)
        else:
            written.append(item)
            continue
        if steps is BAD:
            reader.incomplete.add(reader.pipeline)
        else:
            written += _written_out(reader, steps)
    return written


_PLAIN = (
    fields.Text, fields.Integer, fields.Fraction, fields.Flag, fields.Choice, fields.Duration, fields.SignedDuration,
)  # fmt: skip
"""The kinds of fields whose values a substituted step gets; of the others it gets the place of the argument."""


def _substitute(reader: Reader, step: SubstitutedStep, key: Node, body: Node | None) -> list[Node] | Bad:
    """Return the steps for one use of a step."""
    what = f"The step {step.name!r}"
    if macros.is_too_deep(reader, key, step.name, what):
        return BAD
    before = len(reader.problems)
    nodes = _option_nodes(reader, step, body, ())
    if nodes is None:
        return BAD
    _report_missing(reader, step, key, body, nodes)
    options: Options = {field.name: field.default for field in step.fields}
    scope: dict[str, Argument] = {}
    for field in step.fields:
        node = nodes.get(field.name)
        if node is not None and isinstance(field.kind, _PLAIN):
            put(options, field.name, read(reader, field.kind, node, f"{field.name!r} of {step.name!r}"))
        elif node is not None:
            is_expression = isinstance(field.kind, fields.Expr)
            if is_expression:
                macros.TYPES["expression"].check(reader, node, f"{field.name!r} of {step.name!r}")
            scope[field.name] = Argument(node, "expression" if is_expression else type(field.kind).__name__.lower())
            options[field.name] = f"${{{field.name}}}"
    if len(reader.problems) > before:
        return BAD
    within = Within(f"in the step {step.name!r}, used in", key.position)
    problems: list[Problem] = []
    substitutes = step.steps(options, scope, problems)
    reader.problems += [Problem(replace(problem.position, within=within), problem.message) for problem in problems]
    return BAD if substitutes is None or problems else macros.written_out(reader, substitutes, key, within, scope)


def _check_default(reader: Reader, step: Step) -> None:
    name = step.get("default")
    if _has_branches(reader, step) and isinstance(name, str) and not yaml_reader.PIPELINE.fullmatch(name):
        reader.report(step.at("default"), f"{BRANCH_NAME} {name!r} must be made of letters, digits, _ and -")


def _has_branches(reader: Reader, step: Step) -> bool:
    return _makes_branches(reader.operators[step.operator])


@cache
def _makes_branches(operator: StepDeclaration) -> bool:
    return any(isinstance(option.kind, fields.Branches) for option in operator.fields)


def _step(reader: Reader, node: Node, index: int) -> Step | Bad:
    """Return the Step of one entry of `steps`."""
    key, body = node, None
    if node.kind == "mapping" and len(node.value) == 1 and node.value[0][0].kind == "scalar":
        key, body = node.value[0]
    elif node.kind == "mapping" and node.value:
        name = node.value[0][0].value
        return reader.report(node, f"A step is one name; indent the options of {name!r} below it, or begin a new '- '")
    elif node.kind != "scalar":
        return reader.report_mismatch(node, "A step", "a name, or a name with its options")
    name = key.value if key is not node else reader.text(node, "A step")
    if name is BAD:
        return BAD
    operator = reader.operators.get(name)
    if operator is None:
        return reader.report(key, f"There is no step {name!r}{_nearest_step(reader, name)}")
    assert isinstance(operator, Operator), "substituted steps have been written out"
    return _known_step(reader, operator, key, body, index)


def _nearest_step(reader: Reader, name: str) -> str:
    first = re.match(r"\w+(?=[ :])", name)
    if first and first[0] in reader.operators:
        return f"; write a colon and a blank after the name: '{first[0]}: …'"
    return yaml_reader.hint(name, [*reader.operators, *reader.macros])


def _known_step(reader: Reader, operator: AnyOperator, key: Node, body: Node | None, index: int) -> Step | Bad:
    before = len(reader.problems)
    nodes = _option_nodes(reader, operator, body)
    if nodes is None:
        return BAD
    options: Options = {}
    positions = {}
    on_error = None
    for name, node in nodes.items():
        positions[name] = node.position
        if name == "on_error":
            on_error = _on_error(reader, node)
            continue
        field = next(field for field in operator.fields if field.name == name)
        put(options, name, read(reader, field.kind, node, f"{name!r} of {operator.name!r}"))
    _report_missing(reader, operator, key, body, nodes)
    step = Step(operator.name, key.position, options, positions, on_error or None, reader.pipeline, index)
    if len(reader.problems) == before:  # options are checked together if each is valid by itself
        reader.problems.extend(operator.check(step))
    return step


def _report_missing(
    reader: Reader, operator: StepDeclaration, key: Node, body: Node | None, nodes: Mapping[str, Node]
) -> None:
    """Report required options that a step lacks, unless one is misspelt."""
    written = [key.value for key, _ in body.value if key.kind == "scalar"] if body and body.kind == "mapping" else []
    for field in operator.fields:
        missing = field.required and field.name not in nodes
        if missing and not is_misspelt(field.name, written, [field.name for field in operator.fields]):
            reader.report(key, f"The step {operator.name!r} needs {field.name!r}{_hint(operator, field)}")


def _hint(operator: StepDeclaration, field: fields.Field) -> str:
    if field.name != operator.main:
        return ""
    if isinstance(field.kind, fields.DurationOr):
        return f"; write {operator.name}: {' or '.join(field.kind.words)}, or {operator.name}: 5m"
    return f"; write {operator.name}: …"


def _option_nodes(
    reader: Reader, operator: StepDeclaration, body: Node | None, more: tuple[str, ...] = ("on_error",)
) -> dict[str, Node] | None:
    """Return the nodes of a step's options by name, the main argument by its field's name; None after a problem.

    more: keys beside its fields.
    """
    if body is None or reader.is_null(body):
        return {}
    names_of_fields = [field.name for field in operator.fields]
    is_main = body.kind != "mapping" or (is_call(body) and "call" not in names_of_fields)
    if is_main and operator.main is not None:
        return {operator.main: body}
    if is_main:
        keys = ", ".join(names_of_fields)
        example = (
            f"; write {operator.name}: {{{keys}}} with those that you need" if keys else " but on_error" * len(more)
        )
        reader.report(body, f"The step {operator.name!r} takes options only, not {reader.kind(body)}{example}")
        return None
    allowed = [*names_of_fields, *more]
    if _is_unquoted_expression(operator, body, allowed):
        message = f"The step {operator.name!r} has none of these options"
        reader.report(body, f"{message}; if this is meant as an expression, {quoting(body)}")
        return None
    nodes = reader.options(body, f"The step {operator.name!r}", allowed)
    return _with_one_call(reader, operator, body, nodes) if "call" in nodes else nodes


def _with_one_call(
    reader: Reader, operator: StepDeclaration, body: Node, nodes: dict[str, Node]
) -> dict[str, Node] | None:
    """Return the nodes of a step, with the nodes of its call merged into one: that of the expression it replaces, or `call`."""
    main = next((field for field in operator.fields if field.name == operator.main), None)
    keys = fields.CALL_KEYS if main is not None and isinstance(main.kind, fields.Expr) else ("call", "with")
    target = main.name if main is not None and keys is fields.CALL_KEYS else "call"
    if target != "call" and target in nodes:
        reader.report(nodes["call"], f"The step {operator.name!r} takes either {target!r} or 'call'")
        return None
    pairs = [(key, value) for key, value in body.value if key.kind == "scalar" and nodes.get(key.value) is value]
    call = Node("mapping", [pair for pair in pairs if pair[0].value in keys], body.start, body.end, body.source)
    return {**{name: node for name, node in nodes.items() if name not in keys}, target: call}


def _is_unquoted_expression(operator: StepDeclaration, body: Node, allowed: list[str]) -> bool:
    """Return whether a mapping of unknown keys is in the place of a main argument that is an expression."""
    main = next((field for field in operator.fields if field.name == operator.main), None)
    names = [key for key, _ in body.value if key.kind == "scalar"]
    keys = [key.value for key in names]
    if main is None or not isinstance(main.kind, fields.Expr) or not keys:
        return False
    if any(key in allowed for key in keys):
        return False
    # Option names need no quotes; names of an object's fields do.
    return all(key.style for key in names) or not any(nearest(key, allowed) for key in keys)


def _on_error(reader: Reader, node: Node) -> OnError | Bad:
    if node.kind == "mapping":
        options = reader.options(node, "'on_error'", ("dead_letter",), ("dead_letter",))
        topic = reader.topic(options["dead_letter"], "'dead_letter'") if "dead_letter" in options else BAD
        return topic if topic is BAD else OnError("dead_letter", topic)
    value = reader.value(node) if node.kind == "scalar" else None
    if value in ("fail", "continue"):
        return OnError(value)
    return reader.report_mismatch(node, "'on_error'", "fail, continue or {dead_letter: TOPIC}")


# -- Ends ----------------------------------------------------------------------------------------------------------


def read_sink(reader: Reader, node: Node) -> SinkSpec | Bad:
    """Return the SinkSpec of `to` in any of its forms, or BAD."""
    if node.kind != "mapping":
        topic = reader.topic(node, "'to'")
        return topic if topic is BAD else SinkSpec(topic, position=node.position)
    options = reader.options(node, "'to'", ("topic", "route", "name", "partition"))
    if ("topic" in options) == ("route" in options):
        return reader.report(node, "'to' must be a topic, or have exactly one of topic, route")
    values: Options = {}
    if "topic" in options:
        put(values, "topic", reader.topic(options["topic"], "'topic' of 'to'"))
    else:
        route = expression(reader, options["route"], "'route'", fields.STREAM_NAMES)
        put(values, "route", route)
        reader.routes += [Route(options["route"], route)] if route is not BAD else []
    if "name" in options:
        put(values, "name", reader.text(options["name"], "'name' of 'to'", kafka_name=True))
    if "partition" in options:
        arguments = ("key", "value", "partitions")
        put(
            values,
            "partition",
            expression(reader, options["partition"], "'partition'", fields.PARTITION_NAMES, arguments),
        )
    return SinkSpec(**values, position=node.position)


def read_for_each(reader: Reader, node: Node) -> ForEachSpec | Bad:
    """Return the ForEachSpec of `{call: …, name}`, or BAD."""
    if node.kind != "mapping":
        return reader.report_mismatch(node, "'for_each'", "{call: module:callable}")
    options = reader.options(node, "'for_each'", ("call", "with", "name"), ("call",))
    call = called_options(reader, options, Usage(("key", "value")))
    name = reader.text(options["name"], "'name' of 'for_each'", kafka_name=True) if "name" in options else None
    return BAD if call is BAD or name is BAD else ForEachSpec(call, name, node.position)


def read_ends(reader: Reader, options: dict[str, Node]) -> Options:
    """Return `steps`, `to` and `for_each` of a pipeline or a branch; absent and invalid ones are left out."""
    ends: Options = {}
    if "steps" in options:
        ends["steps"] = read_steps(reader, options["steps"], "'steps'")
    if "to" in options:
        put(ends, "to", read_sink(reader, options["to"]))
    if "for_each" in options:
        put(ends, "for_each", read_for_each(reader, options["for_each"]))
    last = (ends.get("steps") or (None,))[-1]
    if last is not None and _has_branches(reader, last):
        for name in ("to", "for_each"):
            if name in options:
                message = f"{name!r} may not follow a {last.operator!r} step; give each branch its own"
                reader.report(options[name], message)
    return ends


# -- Branches ------------------------------------------------------------------------------------------------------


def branches(reader: Reader, node: Node, what: str) -> tuple[BranchSpec, ...]:
    """Return the BranchSpecs of `when` in file order; an item of a list without a name gets its number as its name."""
    if node.kind == "list":
        specs = [_listed(reader, str(number), body) for number, body in enumerate(node.value, 1)]
    else:
        specs = []
        for name, (key, body) in reader.entries(node, what).items():
            _check_name(reader, key, name)
            specs.append(_branch(reader, name, key, body))
    if BAD in specs:
        reader.incomplete.add(reader.pipeline)
    return tuple(branch for branch in specs if branch is not BAD)


def _check_name(reader: Reader, node: Node, name: str) -> None:
    reader.define("branch", f"{reader.pipeline}.{name}", node)
    if not yaml_reader.PIPELINE.fullmatch(name):
        reader.report(node, f"{BRANCH_NAME} {name!r} must be made of letters, digits, _ and -")


def _listed(reader: Reader, number: str, body: Node) -> BranchSpec | Bad:
    """Return the branch of an entry of a list."""
    name = None
    if body.kind == "mapping" and not is_call(body):
        name_node = next((value for key, value in body.value if key.kind == "scalar" and key.value == "name"), None)
        if name_node is not None and not reader.is_null(name_node):
            name = reader.text(name_node, BRANCH_NAME)
            if name is BAD:
                return BAD
            _check_name(reader, name_node, name)
    return _branch(reader, name or number, body, body, ("name", *BRANCH_KEYS))


def _branch(reader: Reader, name: str, key: Node, body: Node, keys: tuple[str, ...] = BRANCH_KEYS) -> BranchSpec | Bad:
    what = f"The branch {name!r}"
    if body.kind != "mapping" or is_call(body):
        predicate = expression(reader, body, what, fields.STREAM_NAMES)
        return predicate if predicate is BAD else BranchSpec(name, predicate, position=key.position)
    options = reader.options(body, what, keys, ("if",))
    ends = read_ends(reader, options)
    if "chained" in options:
        put(ends, "chained", reader.boolean(options["chained"], f"'chained' of the branch {name!r}"))
    if "if" not in options:
        return BAD
    predicate = expression(reader, options["if"], f"'if' of the branch {name!r}", fields.STREAM_NAMES)
    return predicate if predicate is BAD else BranchSpec(name, predicate, **ends, position=key.position)


# Parses the options of steps: one function for each kind of field (operators/core/fields.py), called by `read`.

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
        if node.ref is not None:
            return _passed(reader, node, node.ref, what, allowed)
        reader.expressions.append(node)
        value = macros.filled(reader, node) if macros.is_filled(node) else reader.value(node)
        if value is BAD or (not macros.is_filled(node) and reader.is_broken(node)):
            return BAD
        if value is None:
            return reader.report(node, f"{what} must be an expression; write 'None' in quotes for nothing")
        if not isinstance(value, str):
            return expressions.constant(value, node.position)
        parsed = expressions.parse(value, allowed, node.position, reader.functions, locator(node))
        _note_installed(reader, parsed, what)
        return parsed
    except TopologyError as error:
        return reader.report_all(_with_comment(error, node))


def _note_installed(reader: Reader, parsed: Expression, what: str) -> None:
    """Note the calls of functions of installed packages, which no part of the file declares."""
    for link in parsed.links:
        if isinstance(link.call, CallRef) and link.call.position is None:
            reader.calls.append(CallSite(replace(link.call, position=parsed.position), Usage(), what))


def _passed(reader: Reader, node: Node, passed: CallRef, what: str, allowed: tuple[str, ...]) -> Expression:
    """Return the expression of a function that a topology in Python passes: the node's text calls it."""
    ref = passed_ref(reader, passed, node.position)
    name = node.value.partition("(")[0]
    parsed = expressions.parse(node.value, allowed, node.position, {name: Function(name, call=ref)}, locator(node))
    reader.calls.append(CallSite(ref, Usage(), what))
    return parsed


_CUT_OFF = ("unterminated", "is never closed", "it ends too early", "invalid syntax")
"""Parts of messages about an expression without its end."""


def _with_comment(error: TopologyError, node: Node) -> TopologyError:
    """Return the error, with a hint if YAML ends the expression: at ` #`, which begins a comment, or at a comma."""
    rest = node.source.text[node.end :].partition("\n")[0]
    cut_off = any(sign in problem.message for problem in error.problems for sign in _CUT_OFF)
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
    spec, folder = reader.data(node), reader.folder_of(node)
    _note_calls(reader, node)
    try:
        parsed = serdes.parse(spec, folder)
        reader.called_serdes += [(called, node.position, what) for called in _called_serdes(spec, folder)]
        return parsed
    except TopologyError as error:
        return reader.report(node, f"{what}: {'; '.join(problem.message for problem in error.problems)}")
    except StreamkitError as error:
        return reader.report(node, f"{what}: {error}")


def _note_calls(reader: Reader, node: Node) -> None:
    """Note the serdes written in Python that a serde's specification names."""
    for key, value in node.value if node.kind == "mapping" else ():
        if key.value == "call" and value.kind == "scalar":
            reader.use("callable", value.value, value)
        _note_calls(reader, value)


def _called_serdes(spec: Json, folder: str) -> list[CalledSerde]:
    """Return the serdes written in Python of a serde's specification, which may be within others."""
    if not isinstance(spec, dict):
        return []
    if "call" in spec:
        from streamkit.serdes.formats.called import CalledSerde

        return [CalledSerde(spec["call"], folder, spec.get("with"))]
    return [called for part in spec.values() for called in _called_serdes(part, folder)]


def _duration_or(reader: Reader, kind: fields.DurationOr, node: Node, what: str) -> str | int | Bad:
    value = reader.value(node) if node.kind == "scalar" else None
    if value in kind.words:
        return value
    hint = did_you_mean(value, kind.words) if isinstance(value, str) else ""
    if hint:
        return reader.report(node, f"{what} is {value!r}{hint}")
    return reader.duration(node, f"{what} must be {' or '.join(kind.words)}, or", kind.minimum)


def _cache(reader: Reader, kind: fields.CacheField, node: Node, what: str) -> CacheOptions | Bad:
    options = reader.options(node, what, ("size", "ttl"), ("size",))
    if "size" not in options:
        return BAD
    size = reader.integer(options["size"], f"'size' of {what}", 1)
    ttl = reader.duration(options["ttl"], f"'ttl' of {what}", 1) if "ttl" in options else None
    return BAD if size is BAD or ttl is BAD else CacheOptions(size, ttl)


# -- Stores --------------------------------------------------------------------------------------------------------


def _store_names(reader: Reader, kind: fields.StoreNames, node: Node, what: str) -> tuple[str, ...]:
    names = []
    for item in reader.items(node, what) if node.kind != "scalar" else [node]:
        name = reader.text(item, f"An entry of {what}")
        if name is not BAD:
            reader.use("store", name, item)
            names.append(name)
    return tuple(names)


# -- References ----------------------------------------------------------------------------------------------------


def pipeline_ref(reader: Reader, node: Node, what: str) -> Ref | Bad:
    """Return the Ref of `PIPELINE` or `PIPELINE.BRANCH`."""
    text = reader.text(node, what)
    if text is BAD:
        return BAD
    pipeline, dot, branch = text.partition(".")
    if not yaml_reader.PIPELINE.fullmatch(pipeline) or (dot and not yaml_reader.PIPELINE.fullmatch(branch)):
        return reader.report_mismatch(node, what, "a PIPELINE or PIPELINE.BRANCH")
    reader.use("pipeline", text, node)
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
    read = [_one_ref(reader, item, what) for item in nodes]
    refs = tuple(ref for ref in read if ref is not BAD)
    return refs if len(refs) == len(read) else BAD


def _one_ref(reader: Reader, node: Node, what: str) -> Ref | Bad:
    if node.kind != "mapping":
        return pipeline_ref(reader, node, what)
    options = reader.options(node, what, (*SOURCES, "store", "name"))
    kinds = [kind for kind in SOURCES if kind in options]
    if len(kinds) != 1:
        return reader.report(node, f"{what} must be a pipeline, or have exactly one of {', '.join(SOURCES)}")
    return source_ref(reader, kinds[0], options, node.position)


def _cogroup(reader: Reader, kind: fields.CogroupInputs, node: Node, what: str) -> tuple[CogroupInput, ...]:
    inputs = []
    for item in reader.items(node, what):
        options = reader.options(item, "An input of 'cogroup'", ("from", "add"), ("from", "add"))
        source = pipeline_ref(reader, options["from"], "'from' of an input") if "from" in options else BAD
        add = expression(reader, options["add"], "'add'", fields.AGGREGATE_NAMES, ADDING) if "add" in options else BAD
        if source is not BAD and add is not BAD:
            inputs.append(CogroupInput(source, add))
    return tuple(inputs)


ADDING = ("key", "value", "aggregate")
"""The arguments of a callable that adds to an aggregate (Aggregator.apply)."""


def _default_branch(reader: Reader, kind: fields.DefaultBranch, node: Node, what: str) -> str | Bad:
    if node.kind == "scalar" and reader.value(node) is True:
        return "0"
    name = reader.text(node, what)
    if name is not BAD:
        reader.define("branch", f"{reader.pipeline}.{name}", node)
    return name


_READERS: dict[type, Callable[[Reader, Any, Node, str], object]] = {  # each takes its own kind
    fields.Expr: _expr,
    fields.SerdeField: lambda reader, kind, node, what: serde(reader, node, what),
    fields.Text: lambda reader, kind, node, what: reader.text(node, what, kind.kafka_name),
    fields.Duration: lambda reader, kind, node, what: reader.duration(node, what, kind.minimum),
    fields.SignedDuration: lambda reader, kind, node, what: reader.duration(node, what, -LONGEST),
    fields.Integer: lambda reader, kind, node, what: reader.integer(node, what, kind.minimum, 2**63 - 1),
    fields.Fraction: lambda reader, kind, node, what: reader.fraction(node, what),
    fields.Choice: lambda reader, kind, node, what: reader.choice(node, what, kind.words),
    fields.Flag: lambda reader, kind, node, what: reader.boolean(node, what),
    fields.TopicConfig: lambda reader, kind, node, what: tuple(topic_config(reader, node, what).items()),
    fields.DurationOr: _duration_or,
    fields.StoreField: lambda reader, kind, node, what: store_options(reader, node, what),
    fields.StoreNames: _store_names,
    fields.BaseName: lambda reader, kind, node, what: reader.text(node, what, kafka_name=True),
    fields.PipelineRef: _pipeline,
    fields.CogroupInputs: _cogroup,
    fields.Branches: lambda reader, kind, node, what: branches(reader, node, what),
    fields.DefaultBranch: _default_branch,
    fields.HeaderMap: _headers,
    fields.Callable_: _callable,
    fields.Arguments: _arguments,
    fields.CacheField: _cache,
}
