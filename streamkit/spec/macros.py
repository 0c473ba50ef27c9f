"""`macros`: steps with parameters, read at each use as if they were written there (our own, not the DSL's).

A use is replaced by copies of the macro's nodes, before its steps are read. An argument is a node, never text that YAML
or an expression reads again: `${NAME}` alone is the argument itself, and in an expression it is one operand.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cache
from symtable import SymbolTable, symtable

from streamkit import durations
from streamkit.durations import LONGEST
from streamkit.errors import ConfigError, Problem, TopologyError, Within
from streamkit.expressions import Function
from streamkit.expressions.calls import Usage
from streamkit.expressions.syntax import Source as ExpressionText
from streamkit.operators.core.parsed_values import CallRef
from streamkit.spec.call_readers import is_call, passed_ref
from streamkit.spec.topology_model import CallSite, Macro, Parameter
from streamkit.spec.yaml_nodes import MAX_DEPTH, MAX_NODES, Argument, Node, Source, locator
from streamkit.spec.yaml_reader import (
    BAD,
    IDENTIFIER,
    TEXTS,
    VARIABLE,
    Bad,
    Reader,
    ScalarValue,
    has_arguments,
    known,
    put,
)
from streamkit.suggestions import did_you_mean, is_misspelt

MACRO_KEYS = ("description", "params", "steps")
PARAMETER_KEYS = ("type", "default", "description")
MOST_MACROS = 20
"""Macros around each other."""


@dataclass(frozen=True)
class ParameterType:
    """A type of parameters. doc: for the language reference; check: reports an argument that does not fit."""

    doc: str
    check: Callable[[Reader, Node, str], object]


def _shape(expected: str, kinds: Collection[str]) -> Callable[[Reader, Node, str], object]:
    def check(reader: Reader, node: Node, what: str) -> object:
        is_text = node.kind == "scalar" and isinstance(reader.value(node), str)
        fits = is_text if node.kind == "scalar" else node.kind in kinds
        return reader.is_broken(node) or fits or reader.report_mismatch(node, what, expected)

    return check


def _check_expression(reader: Reader, node: Node, what: str) -> object:
    """Check the syntax; the place in the macro decides which names an expression may have."""
    if is_call(node):
        return True
    if node.kind != "scalar":
        return reader.report_mismatch(node, what, "an expression; put it in quotes")
    reader.expressions.append(node)
    value = _expression_value(reader, Argument(node, "expression"))
    if isinstance(value, str):
        ExpressionText(value, node.position, locator(node)).parse(reader.problems)
    return value


def _check_number(reader: Reader, node: Node, what: str) -> object:
    value = reader.value(node) if node.kind == "scalar" else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return reader.is_broken(node) or reader.report_mismatch(node, what, "a number")
    return value


TYPES: dict[str, ParameterType] = {
    "expression": ParameterType(
        "An expression, or `{call: module:callable}`. As a part of another expression it stays one operand.",
        _check_expression,
    ),
    "text": ParameterType("Text.", lambda reader, node, what: reader.text(node, what)),
    "integer": ParameterType(
        "A whole number.", lambda reader, node, what: reader.integer(node, what, -(2**63), 2**63 - 1)
    ),
    "number": ParameterType("A number.", _check_number),
    "boolean": ParameterType("`true` or `false`.", lambda reader, node, what: reader.boolean(node, what)),
    "duration": ParameterType(
        "A duration; in an expression, its milliseconds.",
        lambda reader, node, what: reader.duration(node, what, -LONGEST),
    ),
    "name": ParameterType(
        "The name of a store, a node or an internal topic.", lambda reader, node, what: reader.text(node, what, True)
    ),
    "topic": ParameterType("A name in `topics`.", lambda reader, node, what: reader.text(node, what)),
    "stream": ParameterType(
        "A pipeline (`NAME`, `NAME.BRANCH`) or `{stream: TOPIC}`, as in `with`.",
        _shape("a pipeline or {stream: TOPIC}", ("mapping",)),
    ),
    "streams": ParameterType(
        "One of these or a list of them; in a list, `${NAME}` stands for all.",
        _shape("a pipeline, {stream: TOPIC} or a list of them", ("mapping", "list")),
    ),
    "serde": ParameterType("A serde.", _shape("a serde", ("mapping",))),
    "steps": ParameterType(
        "A list of steps; in a list, `${NAME}` stands for all.", _shape("a list of steps", ("list",))
    ),
}
_LISTS = ("streams", "steps")


# -- Definitions ---------------------------------------------------------------------------------------------------


def read_macros(reader: Reader, node: Node) -> dict[str, Macro]:
    """Return the macros of the file by name; their steps are read where they are used."""
    macros: dict[str, Macro] = {}
    for name, (key, body) in reader.entries(node, "'macros'").items():
        if name in reader.operators:
            reader.report(key, f"{name!r} is a step of the language; give the macro another name")
        elif not IDENTIFIER.fullmatch(name):
            reader.report(key, f"The name of a macro {name!r} must be a letter, then letters, digits or _")
        else:
            reader.define("macro", name, key)
            macros[name] = _macro(reader, name, key, body)
    return macros


def _macro(reader: Reader, name: str, key: Node, body: Node) -> Macro:
    what = f"The macro {name!r}"
    options = reader.options(body, what, MACRO_KEYS, ("steps",))
    description = (
        reader.text(options["description"], f"'description' of the {what[4:]}") if "description" in options else ""
    )
    parameters: dict[str, Parameter] = {}
    if "params" in options:
        for parameter, (name_node, definition) in reader.entries(
            options["params"], f"'params' of the {what[4:]}"
        ).items():
            reader.define("parameter", f"{name}.{parameter}", name_node)
            put(parameters, parameter, _parameter(reader, parameter, name_node, definition))
    steps = options.get("steps")
    if steps is not None and steps.kind != "list":
        reader.report_mismatch(steps, f"'steps' of the {what[4:]}", "a list")
        steps = None
    for node, at, hole in _holes(steps) if steps is not None else ():
        if hole in parameters:
            reader.use("parameter", f"{name}.{hole}", node, at)
    return Macro(name, description or "", parameters, steps, key.position)


def _parameter(reader: Reader, name: str, key: Node, body: Node) -> Parameter | Bad:
    """Return the Parameter of `TYPE` or of `{type, default, description}`."""
    what = f"The parameter {name!r}"
    if not IDENTIFIER.fullmatch(name):
        return reader.report(key, f"{what} must be a letter, then letters, digits or _")
    if body.kind != "mapping":
        type_ = reader.choice(body, f"The type of the {what[4:]}", tuple(TYPES))
        return BAD if type_ is BAD else Parameter(name, type_, None, "")
    options = reader.options(body, what, PARAMETER_KEYS, ("type",))
    type_ = reader.choice(options["type"], f"'type' of the {what[4:]}", tuple(TYPES)) if "type" in options else BAD
    text = reader.text(options["description"], f"'description' of the {what[4:]}") if "description" in options else ""
    # `default: null` makes a parameter optional.
    default = next((value for option, value in body.value if option.value == "default"), None)
    if type_ is BAD:
        return BAD
    if default is not None and not reader.is_null(default):
        TYPES[type_].check(reader, default, f"'default' of the {what[4:]}")
    return Parameter(name, type_, default, text or "")


def unused_parameters(macro: Macro) -> list[str]:
    """Return the parameters that no step of a macro has."""
    written = {name for _, _, name in _holes(macro.steps)} if macro.steps is not None else set()
    return [name for name in macro.parameters if name not in written]


def _holes(steps: Node) -> Iterator[tuple[Node, int, str]]:
    """Yield the variables in steps: the scalar, the offset of the name in the file, and the name."""
    waiting = [steps]
    while waiting:
        node = waiting.pop()
        if node.kind == "scalar":
            for match in VARIABLE.finditer(node.source.text, node.start, node.end):
                if match[1]:
                    yield node, match.start(1), match[1]
        else:
            waiting += node.value if node.kind == "list" else [value for _, value in node.value]


# -- Uses ----------------------------------------------------------------------------------------------------------


def steps_of(reader: Reader, macro: Macro, key: Node, body: Node | None) -> list[Node] | Bad:
    """Return the steps of a macro, copied for one use."""
    reader.used_macros.add(macro.name)
    reader.use("macro", macro.name, key)
    if is_too_deep(reader, key, macro.name, f"The macro {macro.name!r} ({macro.position})"):
        return BAD
    scope = _scope(reader, macro, key, body)
    if scope is BAD or macro.steps is None:
        return BAD
    return written_out(reader, macro.steps, key, Within(f"in the macro {macro.name!r}, used in", key.position), scope)


def is_too_deep(reader: Reader, key: Node, name: str, what: str) -> bool:
    """Report a use of a macro or a composed step within itself, or within too many others; return whether it is one."""
    around = key.source.macros
    if name in around:
        circle = " -> ".join([*around[around.index(name) :], name])
        reader.report(key, f"{what} uses itself: {circle}")
    elif len(around) >= MOST_MACROS:
        reader.report(key, f"Macros use each other over {MOST_MACROS} levels deep")
    else:
        return False
    return True


def written_out(reader: Reader, steps: Node, key: Node, within: Within, scope: Mapping[str, Argument]) -> list[Node]:
    """Return copies of a list of steps for the use at `key`, with the arguments of a scope in place of `${NAME}`."""
    around = (*key.source.macros, key.value)

    def source_of(source: Source) -> Source:
        copied_source = source.inside(within)
        copied_source.scope, copied_source.macros = scope, around
        return copied_source

    copies: list[Node] = _Copier(reader, cache(source_of)).copied(steps).value
    return copies


def _scope(reader: Reader, macro: Macro, key: Node, body: Node | None) -> dict[str, Argument] | Bad:
    """Return the checked arguments of a use by name, and the defaults of parameters without one."""
    what = f"The macro {macro.name!r}"
    uses = _given(reader, macro, body)
    if uses is BAD:
        return BAD
    names, is_bad = list(macro.parameters), False
    scope: dict[str, Argument] = {}
    for name, (name_node, node) in uses.items():
        parameter = macro.parameters.get(name)
        if name_node is not node:
            reader.use("parameter", f"{macro.name}.{name}", name_node)
        if parameter is None:
            advice = did_you_mean(name, names, known(names, "") or "it takes none")
            is_bad = reader.report(name_node, f"{what} has no parameter {name!r}{advice}") is BAD
        elif not reader.is_null(node):
            scope[name] = Argument(node, parameter.type)
            before = len(reader.problems)
            checked = TYPES[parameter.type].check(reader, node, f"{name!r} of the macro {macro.name!r}")
            is_bad = is_bad or checked is BAD or reader.is_broken(node) or len(reader.problems) > before
    for name, parameter in macro.parameters.items():
        if name in scope:
            continue
        if parameter.default is not None:
            scope[name] = Argument(parameter.default, parameter.type)
        else:
            is_bad = True
            if not is_misspelt(name, uses, names):
                reader.report(key, f"{what} needs the parameter {name!r} ({parameter.type})")
    return BAD if is_bad else scope


def _given(reader: Reader, macro: Macro, body: Node | None) -> Mapping[str, tuple[Node, Node]] | Bad:
    """Return the keys and nodes of a use by name; a value without names is that of the only parameter that needs one."""
    if body is None or reader.is_null(body):
        return {}
    if body.kind == "mapping" and not (is_call(body) and "call" not in macro.parameters):
        return reader.entries(body, "")
    needed = [parameter.name for parameter in macro.parameters.values() if parameter.default is None] or list(
        macro.parameters
    )
    if len(needed) == 1:
        return {needed[0]: (body, body)}
    form = f"; write {macro.name}: {{{', '.join(macro.parameters)}}}" if macro.parameters else ", since it has none"
    return reader.report(body, f"The macro {macro.name!r} takes parameters by name, not {reader.kind(body)}{form}")


class _Copier:
    """Copies nodes for a use of a macro. source_of: returns the source of a copy from that of the node."""

    def __init__(self, reader: Reader, source_of: Callable[[Source], Source]):
        self.reader = reader
        self.source_of = source_of

    def copied(self, node: Node, depth: int = 0) -> Node:
        """Return the copy of a node, with arguments in place of the nodes `${NAME}`."""
        reader = self.reader
        if len(reader.copies) >= MAX_NODES or depth > MAX_DEPTH:
            most = f"more than {MAX_NODES:,} values" if depth <= MAX_DEPTH else f"more than {MAX_DEPTH} levels"
            message = f"The file stands for {most} once its macros are written out"
            raise TopologyError([*reader.problems, Problem(node.position, message)])
        copied = copy(node)
        reader.copies.append(copied)
        copied.source = self.source_of(node.source)
        argument = _alone(copied)
        if argument is not None:
            return self._argument(copied, argument, depth)
        if node.kind == "list":
            copied.value = []
            for item in node.value:
                part = self.copied(item, depth + 1)
                is_spliced = part.parameter in _LISTS and part.kind == "list" and item.kind == "scalar"
                if not (part.parameter in _LISTS and reader.is_null(part)):
                    copied.value += part.value if is_spliced else [part]
        elif node.kind == "mapping":
            copied.value = [(self._key(key), self.copied(value, depth + 1)) for key, value in node.value]
        return copied

    def _key(self, node: Node) -> Node:
        copied = copy(node)
        self.reader.copies.append(copied)
        copied.source = self.source_of(node.source)
        if node.kind == "scalar" and has_arguments(copied):
            self.reader.report(copied, f"A key takes no parameter, as in {node.value!r}; parameters belong in values")
        return copied

    def _argument(self, hole: Node, argument: Argument, depth: int) -> Node:
        """Return the copy of an argument for its place in the macro."""
        within = Within(f"as {hole.value} in", hole.position)
        copied = _Copier(self.reader, lambda source: source.inside(within)).copied(argument.node, depth)
        if copied.parameter in (None, "expression"):  # the text of an outer macro stays a text in an expression
            copied.parameter = argument.type
        return copied


def _alone(node: Node) -> Argument | None:
    """Return the argument that a scalar consists of."""
    match = VARIABLE.fullmatch(node.value) if node.kind == "scalar" and node.source.scope else None
    return node.source.scope.get(match[1]) if match is not None and match[1] and match[2] is None else None


# -- Expressions ---------------------------------------------------------------------------------------------------


def is_filled(node: Node) -> bool:
    """Return whether a scalar is an argument of a macro or contains some."""
    return node.parameter is not None or has_arguments(node)


def filled(reader: Reader, node: Node) -> ScalarValue | Bad:
    """Return the value of such a scalar in the place of an expression: the text of one, or a constant."""
    return _expression_value(reader, Argument(node, node.parameter or "expression"))


def _expression_value(reader: Reader, argument: Argument) -> ScalarValue | Bad:
    node, type_ = argument
    if node.kind != "scalar" or type_ not in ("expression", *TEXTS):
        what = "a call" if type_ == "expression" else type_
        return reader.report(node, f"An expression can't contain {what}; name a call in 'functions'")
    if node.ref is not None:
        return _passed(reader, node, node.ref)
    if has_arguments(node) and type_ == "expression":
        return _with_arguments(reader, node)
    value = reader.value(node)
    if reader.is_broken(node):
        return BAD
    kind = node.parameter if node.parameter not in (None, "expression") else type_
    if kind == "duration" and value is not None:
        try:
            return durations.parse(value, -LONGEST)
        except ConfigError as error:  # checked at the use, unless it is the text of an outer macro
            return reader.report(node, f"{error}, not {reader.kind(node)}")
    return repr(value) if isinstance(value, str) and kind != "expression" else value


def _passed(reader: Reader, node: Node, passed: CallRef) -> str:
    """Return the call of a function that a topology in Python passes as an argument."""
    ref = passed_ref(reader, passed, node.position)
    reader.calls.append(CallSite(ref, Usage(), "an argument"))
    name, bracket, rest = node.value.partition("(")
    return f"{reader.functions.add(Function(name, call=ref))}{bracket}{rest}"


def _with_arguments(reader: Reader, node: Node) -> str | Bad:
    """Return the text of an expression with its arguments as operands."""
    prefix = "_p"
    while prefix in node.value:
        prefix += "_"
    scope, holes = node.source.scope, dict[str, str]()

    def mark(match: re.Match[str]) -> str:
        if match[1] not in scope or match[2] is not None:
            return match[0]
        name = f"{prefix}{len(holes)}_"
        holes[name] = match[1]
        return name

    text = reader.value.interpolate(node, VARIABLE.sub(mark, node.value))
    if reader.is_broken(node):
        return BAD
    tree = _tree(text, node, reader.problems)
    if tree is None:
        return BAD
    names = {part.id for part in ast.walk(tree) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
    pieces: dict[str, tuple[str, ast.expr]] = {}
    for mark_, name in holes.items():
        if mark_ not in names:
            advice = f"${{{name}}} is a value of its own in an expression: not in quotes, and no part of a name"
            return reader.report(node, advice)
        value = _expression_value(reader, scope[name])
        part = _tree(str(value), scope[name].node, reader.problems) if value is not BAD else None
        if part is None:
            return BAD
        pieces[mark_] = str(value), part
    return _joined(reader, node, text, tree, pieces)


def _joined(
    reader: Reader, node: Node, text: str, tree: ast.expr, pieces: Mapping[str, tuple[str, ast.expr]]
) -> str | Bad:
    bound = {part.arg for part in ast.walk(tree) if isinstance(part, ast.arg)}
    bound |= {part.id for part in ast.walk(tree) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    for piece, _ in pieces.values():
        taken = sorted(bound & _free(symtable(f"({piece}\n)", "", "eval"))) if bound else []
        if taken:
            message = f"The expression binds the name {taken[0]!r}, which an argument has too; rename it in the macro"
            return reader.report(node, message)
    wanted = ast.dump(_Filling({name: part for name, (_, part) in pieces.items()}).visit(tree))
    for is_bare in (True, False):
        written = text
        for name, (piece, part) in pieces.items():
            end = "\n)" if "#" in piece else ")"  # a comment ends with its line
            written = written.replace(name, piece if is_bare and isinstance(part, _ATOMS) else f"({piece}{end}")
        result = _tree(written, node, [])
        if result is not None and ast.dump(result) == wanted:
            return written
    return reader.report(node, "The arguments can't be written into this expression; use its value without an f-string")


def _free(table: SymbolTable) -> set[str]:
    """Return the names that an expression does not bind itself."""
    own = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() or table.get_type() == "module"}
    return own.union(*map(_free, table.get_children()))


_ATOMS = (ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Call, ast.List, ast.Dict)
"""Operands that need no brackets, unless a number precedes a dot."""


class _Filling(ast.NodeTransformer):
    """Replaces names by the trees of arguments."""

    def __init__(self, trees: Mapping[str, ast.expr]):
        self.trees = trees

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.trees.get(node.id, node)


def _tree(text: str, node: Node, problems: list[Problem]) -> ast.expr | None:
    return ExpressionText(text, node.position, lambda line, column: node.position).parse(problems)
