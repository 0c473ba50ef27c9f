"""Steps: a name, a name with its main argument, or a name with its options; and the branches that hold steps."""

from __future__ import annotations

import re

from streamkit.expressions.call_signatures import Usage
from streamkit.graph.node import OnError
from streamkit.operators.core import fields
from streamkit.operators.core.operator import AnyOperator
from streamkit.operators.core.parsed_values import BranchSpec, ForEachSpec, SinkSpec, Step
from streamkit.spec import field_readers, legal_names
from streamkit.spec.call_readers import called_options, is_call
from streamkit.spec.yaml_nodes.nodes import Node
from streamkit.spec.yaml_nodes.reader import BAD, Bad, Options, Reader, put
from streamkit.suggestions import is_misspelt, nearest

BRANCH_NAME = "The name of a branch"
BRANCH_KEYS = ("if", "steps", "to", "for_each", "chained")


def read_steps(reader: Reader, node: Node, what: str) -> tuple[Step, ...]:
    """Return the steps of a list, without those with problems."""
    found = []
    items = reader.items(node, what)
    for index, item in enumerate(items):
        step = _step(reader, item, index)
        if step is BAD:
            reader.incomplete.add(reader.pipeline)
            continue
        found.append(step)
        _check_default(reader, step)
        if _has_branches(reader, step) and index + 1 < len(items):
            message = (
                f"A pipeline ends with its {step.operator!r} step; go on with 'from: PIPELINE.BRANCH', or below 'when'"
            )
            reader.report(items[index + 1], message)
    return tuple(found)


def _check_default(reader: Reader, step: Step) -> None:
    name = step.get("default")
    if _has_branches(reader, step) and isinstance(name, str) and not legal_names.PIPELINE.fullmatch(name):
        reader.report(step.at("default"), f"{BRANCH_NAME} {name!r} must be made of letters, digits, _ and -")


def _has_branches(reader: Reader, step: Step) -> bool:
    return any(isinstance(option.kind, fields.Branches) for option in reader.operators[step.operator].fields)


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
    return _known_step(reader, operator, key, body, index)


def _nearest_step(reader: Reader, name: str) -> str:
    first = re.match(r"\w+(?=[ :])", name)
    if first and first[0] in reader.operators:
        return f"; write a colon and a blank after the name: '{first[0]}: …'"
    return legal_names.hint(name, reader.operators)


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
        put(options, name, field_readers.read(reader, field.kind, node, f"{name!r} of {operator.name!r}"))
    given = [key.value for key, _ in body.value if key.kind == "scalar"] if body and body.kind == "mapping" else []
    for field in operator.fields:
        missing = field.required and field.name not in nodes
        if missing and not is_misspelt(field.name, given, [each.name for each in operator.fields]):
            reader.report(key, f"The step {operator.name!r} needs {field.name!r}{_hint(operator, field)}")
    step = Step(operator.name, key.position, options, positions, on_error or None, reader.pipeline, index)
    if len(reader.problems) == before:  # options are checked together where each is valid by itself
        reader.problems.extend(operator.check(step))
    return step


def _hint(operator: AnyOperator, field: fields.Field) -> str:
    return f"; write {operator.name}: …" if field.name == operator.main else ""


def _option_nodes(reader: Reader, operator: AnyOperator, body: Node | None) -> dict[str, Node] | None:
    """Return the nodes of a step's options by name, the main argument by its field's name; None after a problem."""
    if body is None or reader.is_null(body):
        return {}
    names_of_fields = [field.name for field in operator.fields]
    is_main = body.kind != "mapping" or (is_call(body) and "call" not in names_of_fields)
    if is_main and operator.main is not None:
        return {operator.main: body}
    if is_main:
        keys = ", ".join(names_of_fields)
        example = f"; write {operator.name}: {{{keys}}} with those that you need" if keys else " but on_error"
        reader.report(body, f"The step {operator.name!r} takes options only, not {reader.kind(body)}{example}")
        return None
    allowed = [*names_of_fields, "on_error"]
    if _is_unquoted_expression(operator, body, allowed):
        message = f"The step {operator.name!r} has none of these options"
        reader.report(body, f"{message}; if this is meant as an expression, {field_readers.quoting(body)}")
        return None
    nodes = reader.options(body, f"The step {operator.name!r}", allowed)
    return _with_one_call(reader, operator, body, nodes) if "call" in nodes else nodes


def _with_one_call(reader: Reader, operator: AnyOperator, body: Node, nodes: dict[str, Node]) -> dict[str, Node] | None:
    """Return the nodes of a step with those of its call as one: that of the expression for which it stands, or `call`."""
    main = next((field for field in operator.fields if field.name == operator.main), None)
    keys = fields.CALL_KEYS if main is not None and isinstance(main.kind, fields.Expr) else ("call", "with")
    target = main.name if main is not None and keys is fields.CALL_KEYS else "call"
    if target != "call" and target in nodes:
        reader.report(nodes["call"], f"The step {operator.name!r} takes either {target!r} or 'call'")
        return None
    pairs = [(key, value) for key, value in body.value if key.kind == "scalar" and nodes.get(key.value) is value]
    call = Node("mapping", [pair for pair in pairs if pair[0].value in keys], body.start, body.end, body.source)
    return {**{name: node for name, node in nodes.items() if name not in keys}, target: call}


def _is_unquoted_expression(operator: AnyOperator, body: Node, allowed: list[str]) -> bool:
    """Return whether a mapping of unknown keys is in the place of a main argument that is an expression."""
    main = next((field for field in operator.fields if field.name == operator.main), None)
    names = [key for key, _ in body.value if key.kind == "scalar"]
    keys = [key.value for key in names]
    if main is None or not isinstance(main.kind, fields.Expr) or not keys:
        return False
    if any(key in allowed for key in keys):
        return False
    # Names of options need no quotes, those of an object's fields do.
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
        put(values, "route", field_readers.expression(reader, options["route"], "'route'", fields.STREAM_NAMES))
    if "name" in options:
        put(values, "name", reader.text(options["name"], "'name' of 'to'", kafka_name=True))
    if "partition" in options:
        arguments = ("key", "value", "partitions")
        put(
            values,
            "partition",
            field_readers.expression(reader, options["partition"], "'partition'", fields.PARTITION_NAMES, arguments),
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
    """Return `steps`, `to` and `for_each` of a pipeline or a branch, as far as they are given and valid."""
    found: Options = {}
    if "steps" in options:
        found["steps"] = read_steps(reader, options["steps"], "'steps'")
    if "to" in options:
        put(found, "to", read_sink(reader, options["to"]))
    if "for_each" in options:
        put(found, "for_each", read_for_each(reader, options["for_each"]))
    last = (found.get("steps") or (None,))[-1]
    if last is not None and _has_branches(reader, last):
        for name in ("to", "for_each"):
            if name in options:
                message = f"{name!r} may not follow a {last.operator!r} step; give each branch its own"
                reader.report(options[name], message)
    return found


# -- Branches ------------------------------------------------------------------------------------------------------


def branches(reader: Reader, node: Node, what: str) -> tuple[BranchSpec, ...]:
    """Return the BranchSpecs of `when` in file order; those of a list without a name have their number as their name."""
    if node.kind == "list":
        found = [_listed(reader, str(place), body) for place, body in enumerate(node.value, 1)]
    else:
        found = []
        for name, (key, body) in reader.entries(node, what).items():
            _check_name(reader, key, name)
            found.append(_branch(reader, name, key, body))
    if BAD in found:
        reader.incomplete.add(reader.pipeline)
    return tuple(branch for branch in found if branch is not BAD)


def _check_name(reader: Reader, node: Node, name: str) -> None:
    if not legal_names.PIPELINE.fullmatch(name):
        reader.report(node, f"{BRANCH_NAME} {name!r} must be made of letters, digits, _ and -")


def _listed(reader: Reader, place: str, body: Node) -> BranchSpec | Bad:
    """Return the branch of an entry of a list."""
    name = None
    if body.kind == "mapping" and not is_call(body):
        given = next((value for key, value in body.value if key.kind == "scalar" and key.value == "name"), None)
        if given is not None and not reader.is_null(given):
            name = reader.text(given, BRANCH_NAME)
            if name is BAD:
                return BAD
            _check_name(reader, given, name)
    return _branch(reader, name or place, body, body, ("name", *BRANCH_KEYS))


def _branch(reader: Reader, name: str, key: Node, body: Node, keys: tuple[str, ...] = BRANCH_KEYS) -> BranchSpec | Bad:
    what = f"The branch {name!r}"
    if body.kind != "mapping" or is_call(body):
        predicate = field_readers.expression(reader, body, what, fields.STREAM_NAMES)
        return predicate if predicate is BAD else BranchSpec(name, predicate, position=key.position)
    options = reader.options(body, what, keys, ("if",))
    ends = read_ends(reader, options)
    if "chained" in options:
        put(ends, "chained", reader.boolean(options["chained"], f"'chained' of the branch {name!r}"))
    if "if" not in options:
        return BAD
    predicate = field_readers.expression(reader, options["if"], f"'if' of the branch {name!r}", fields.STREAM_NAMES)
    return predicate if predicate is BAD else BranchSpec(name, predicate, **ends, position=key.position)
