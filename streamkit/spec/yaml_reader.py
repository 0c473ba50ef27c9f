"""Checked values of nodes: every method returns the value, or notes a problem at the node's place and returns BAD."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from streamkit import durations
from streamkit.errors import ConfigError, Position, Problem, TopologyError
from streamkit.expressions import Expression, Library
from streamkit.operators.core.operator import StepDeclaration
from streamkit.serdes.plain import Json
from streamkit.spec.topology_model import CallSite, Macro
from streamkit.spec.yaml_nodes import Argument, Node, Source
from streamkit.suggestions import did_you_mean, is_misspelt, nearest

if TYPE_CHECKING:
    from streamkit.serdes.formats.called import CalledSerde


T = TypeVar("T")


class Bad(Enum):
    """The type of BAD."""

    BAD = "BAD"

    def __bool__(self) -> Literal[False]:
        return False


BAD: Final = Bad.BAD
"""The value of a node with a mistake; a problem has been noted."""

Options: TypeAlias = dict[str, Any]
"""The parsed entries of a mapping, by the names of a dataclass's fields, whose types differ."""


@dataclass(frozen=True)
class Name:
    """A place where a file names one of its parts.

    kind: topic, store, pipeline, branch (`PIPELINE.BRANCH`), function, macro, parameter (`MACRO.PARAMETER`), callable
    (`module:object`) or file; a use of `PIPELINE.BRANCH` is one of a pipeline. node: the scalar that has the name; at: where
    in its file, unless the scalar begins with the name; pipeline: the one that is being read; defines: whether the part is
    made here, instead of being used.
    """

    kind: str
    name: str
    node: Node
    pipeline: str = ""
    defines: bool = False
    at: int | None = None

    @property
    def position(self) -> Position:
        """The place where the scalar begins."""
        return self.node.position


class Route(NamedTuple):
    """A place that chooses a topic by its name on the log: an expression, or the name itself."""

    node: Node
    topic: Expression | str


class Reader:
    """Reads one file. `folder`: the folder of its Python modules and schemas; `operators`: the steps by name."""

    def __init__(
        self,
        source: Source,
        folder: str,
        operators: Mapping[str, StepDeclaration],
        environment: Mapping[str, str],
        problems: list[Problem],
    ):
        self.source = source
        self.folder = folder
        self.operators = operators
        self.problems = problems
        self.value = Resolver(environment, problems)
        self.functions = Library()
        """The file's functions."""
        self.names: list[Name] = []
        self.expressions: list[Node] = []
        """The scalars that are read as expressions."""
        self.routes: list[Route] = []
        self.incomplete: set[str] = set()
        """Pipelines that lack a step or a branch because of a mistake."""
        self.calls: list[CallSite] = []
        self.objects: dict[tuple[str, str], list[object]] = {}
        """The objects that a topology in Python passes, by module and name; lambdas of a module have one name."""
        self.called_serdes: list[tuple[CalledSerde, Position, str]] = []
        self.pipeline = ""
        """The name of the pipeline that is being read."""
        self.macros: Mapping[str, Macro] = {}
        self.used_macros: set[str] = set()
        self.copies: list[Node] = []
        """The nodes that are copied for uses of macros, which keeps their identities: values are cached by these."""
        self.nesting = 0
        """The lists of steps around the step that is being read."""

    def folder_of(self, node: Node) -> str:
        """Return the folder of the file that has a node: an included file has its own modules and schemas beside it."""
        file = node.source.file
        is_beside = file == self.source.file or file.startswith("<")  # code without a file, as in a notebook
        return self.folder if is_beside else os.path.dirname(file)

    # -- Problems --------------------------------------------------------------------------------------------------

    def report(self, place: Node | Position, message: str) -> Bad:
        """Add a problem and return BAD; a problem of a scalar without a value is left out."""
        if isinstance(place, Node) and id(place) in self.value.broken:
            return BAD
        position = place.position if isinstance(place, Node) else place
        self.problems.append(Problem(position, message))
        return BAD

    def is_broken(self, node: Node) -> bool:
        """Return whether a scalar has no value, such as one with a variable that is not set."""
        if node.kind == "scalar" and not has_arguments(node):
            self.value(node)
        return id(node) in self.value.broken

    def report_all(self, error: TopologyError) -> Bad:
        """Add the problems of an error and return BAD."""
        self.problems.extend(error.problems)
        return BAD

    def report_mismatch(self, node: Node, what: str, expected: str) -> Bad:
        """Report that `what` must be `expected`, with the value that came."""
        return self.report(node, f"{what} must be {expected}, not {self.kind(node)}")

    def kind(self, node: Node) -> str:
        """Return a description of a node for a message."""
        if node.kind == "list":
            return "a list"
        if node.kind == "mapping":
            return "a mapping"
        value = self.value(node)
        if value is None:
            return "nothing"
        kind = "the number " if isinstance(value, (int, float)) and not isinstance(value, bool) else ""
        return kind + shown(value)

    # -- Mappings and lists ----------------------------------------------------------------------------------------

    def is_null(self, node: Node) -> bool:
        """Return whether a node is null."""
        # An expression with arguments has no value as a text.
        return node.kind == "scalar" and not has_arguments(node) and self.value(node) is None

    def entries(self, node: Node, what: str) -> dict[str, tuple[Node, Node]]:
        """Return a mapping's key and value nodes by key; null is an empty mapping."""
        if self.is_null(node):
            return {}
        if node.kind != "mapping":
            self.report_mismatch(node, what, "a mapping")
            return {}
        nodes: dict[str, tuple[Node, Node]] = {}
        for key, value in node.value:
            if key.kind == "scalar":  # check_keys has reported other keys and duplicates
                nodes.setdefault(key.value, (key, value))
        return nodes

    def options(
        self,
        node: Node,
        what: str,
        keys: Iterable[str],
        required: Iterable[str] = (),
        hints: Mapping[str, str] | None = None,
    ) -> dict[str, Node]:
        """Return the values of a mapping with these keys; a null value is an absent one.

        hints: by required key, what the message adds.
        """
        entries = self.entries(node, what)
        keys = tuple(keys)
        known = {}
        for name, (key, value) in entries.items():
            if name not in keys:
                self.unknown(key, what, keys)
            elif not self.is_null(value):
                known[name] = value
        if node.kind == "mapping" or self.is_null(node):
            for name in required:
                if name not in known and not is_misspelt(name, entries, keys):
                    place = entries[name][0] if name in entries else node
                    self.report(place, f"{what} needs {name!r}{(hints or {}).get(name, '')}")
        return known

    def unknown(self, key: Node, what: str, keys: Iterable[str]) -> None:
        """Complain about a key that `what` does not have."""
        if key.value != "<<":
            self.report(key, f"{what} has no key {key.value!r}{hint(key.value, keys)}")

    def items(self, node: Node, what: str) -> list[Node]:
        """Return the nodes of a list; null is an empty one."""
        if node.kind == "list":
            return list(node.value)
        if not self.is_null(node):
            self.report_mismatch(node, what, "a list")
        return []

    def data(self, node: Node) -> Json:
        """Return a node as plain Python data."""
        if node.kind == "scalar":
            return self.value(node)
        if node.kind == "list":
            return [self.data(item) for item in node.value]
        return {key.value: self.data(value) for key, value in node.value if key.kind == "scalar"}

    # -- Scalars ---------------------------------------------------------------------------------------------------

    def text(self, node: Node, what: str, kafka_name: bool = False) -> str | Bad:
        """Return a text; with `kafka_name`, one that Kafka allows as a name."""
        value = self.value(node) if node.kind == "scalar" else None
        if self.is_broken(node):
            return BAD
        if not isinstance(value, str):
            quoted = f' (write "{node.value}" for the text)' if node.kind == "scalar" and value is not None else ""
            return self.report(node, f"{what} must be text, not {self.kind(node)}{quoted}")
        mistake = kafka_name_mistake(value) if kafka_name else None
        return self.report(node, f"{what} {shown(value)} {mistake}") if mistake else value

    def boolean(self, node: Node, what: str) -> bool | Bad:
        """Return a boolean."""
        value = self.value(node) if node.kind == "scalar" else None
        return value if isinstance(value, bool) else self.report_mismatch(node, what, "true or false")

    def integer(self, node: Node, what: str, minimum: int, maximum: int = 2**31 - 1) -> int | Bad:
        """Return a whole number between two bounds."""
        value = self.value(node) if node.kind == "scalar" else None
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            bounds = f"at least {minimum}" if not isinstance(value, int) or value < minimum else f"at most {maximum}"
            return self.report_mismatch(node, what, f"a whole number of {bounds}")
        return value

    def fraction(self, node: Node, what: str) -> float | Bad:
        """Return a number from 0 to 1."""
        value = self.value(node) if node.kind == "scalar" else None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            return self.report_mismatch(node, what, "a number from 0 to 1")
        return float(value)

    def choice(self, node: Node, what: str, words: tuple[str, ...]) -> str | Bad:
        """Return one of some words."""
        value = self.value(node) if node.kind == "scalar" else None
        if value in words:
            return value
        hint = did_you_mean(value, words) if isinstance(value, str) else ""
        listed = " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
        return self.report(node, f"{what} must be {listed}, not {self.kind(node)}{hint}")

    def duration(self, node: Node, what: str, minimum: int = 0) -> int | Bad:
        """Return a duration in milliseconds."""
        value = self.value(node) if node.kind == "scalar" else None
        try:
            return durations.parse(value, minimum)
        except ConfigError as error:
            return self.report(node, f"{what} {error}, not {self.kind(node)}")

    # -- References ------------------------------------------------------------------------------------------------

    def topic(self, node: Node, what: str) -> str | Bad:
        """Return the name of an entry of `topics`, which `links.check` looks up after the whole file is read."""
        name = self.text(node, what)
        if name is not BAD:
            self.use("topic", name, node)
        return name

    def use(self, kind: str, name: str, node: Node, at: int | None = None) -> None:
        """Note a use of a part of the file."""
        self.names.append(Name(kind, name, node, self.pipeline, at=at))

    def define(self, kind: str, name: str, node: Node) -> None:
        """Note the place that makes a part of the file."""
        self.names.append(Name(kind, name, node, self.pipeline, defines=True))


def has_arguments(node: Node) -> bool:
    """Return whether a scalar contains parameters of the macro around it."""
    scope = node.source.scope
    return bool(scope) and "${" in node.value and any(match[1] in scope for match in VARIABLE.finditer(node.value))


def put(target: dict[str, T], name: str, value: T | Bad) -> None:
    """Set an entry unless its value is BAD."""
    if value is not BAD:
        target[name] = value


# Resolves the values of scalars: the YAML 1.2 core schema, and `${NAME}` from the environment.

ScalarValue: TypeAlias = bool | int | float | str | None
"""The value of a scalar."""

_WORDS: dict[str, ScalarValue] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_NUMBER_START = frozenset("+-.0123456789")
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{", re.ASCII)
_TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),)}
TEXTS = ("text", "name", "topic", "integer", "number", "boolean", "duration")
"""The types of a macro's parameters that may be a part of a text."""
MAX_DIGITS = 1000
"""Digits of an integer; longer ones are an error, since their conversion takes quadratic time."""


def core(text: str) -> ScalarValue:
    """Return the value of a plain scalar: None, a bool, an int, a float, or the text itself.

    Raises ValueError for an integer of more than MAX_DIGITS digits. Source: YAML 1.2.2, 10.3.2.

    >>> [core(text) for text in ("on", "True", "0x10", "1.5", "~")]
    ['on', True, 16, 1.5, None]
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    if _INTEGER.fullmatch(text):
        if len(text) > MAX_DIGITS:
            raise ValueError(f"a number of more than {MAX_DIGITS} digits")
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


# A plain scalar in every place of YAML, flow mappings included.
_UNQUOTED = re.compile(r"(?!\d)[\w/][\w./@+-]*( [\w./@+-]+)*")


def flow(value: object) -> str:
    """Return JSON data as one line of YAML.

    >>> flow({"user": "ann", "tags": ["a b", "true"], "n": 1, "x": None})
    '{user: ann, tags: [a b, "true"], n: 1, x: null}'
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow_key(name)}: {flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        plain = _UNQUOTED.fullmatch(value) and core(value) == value
        return value if plain else json.dumps(value, ensure_ascii=False)
    return _number_text(value) if isinstance(value, float) else json.dumps(value)


def flow_key(name: str) -> str:
    """Return a key as YAML: keys are text, even if they look like numbers.

    >>> flow_key("a"), flow_key("1"), flow_key("a: b")
    ('a', '1', '"a: b"')
    """
    return name if re.fullmatch(r"[A-Za-z0-9_./-]*[A-Za-z0-9_]", name) else json.dumps(name, ensure_ascii=False)


def _number_text(value: float) -> str:
    if value != value:
        return ".nan"
    if value in (float("inf"), float("-inf")):
        return ".inf" if value > 0 else "-.inf"
    return repr(value)


class Resolver:
    """Resolves the values of scalars; `environment` has the variables of `${NAME}`. Adds mistakes to `problems`."""

    def __init__(self, environment: Mapping[str, str], problems: list[Problem]):
        self.environment = environment
        self.problems = problems
        self.broken: set[int] = set()
        """Scalars without a value, by identity: further checks of them report nothing."""
        self._cache: dict[int, ScalarValue] = {}

    def report(self, node: Node, message: str) -> None:
        """Note that a scalar has no value."""
        self.problems.append(Problem(node.position, message))
        self.broken.add(id(node))

    def __call__(self, node: Node) -> ScalarValue:
        """Return the value of a scalar node; reports a mistake in it once, and then returns its text."""
        key = id(node)
        if key not in self._cache:
            self._cache[key] = self._value(node)
        return self._cache[key]

    def _value(self, node: Node) -> ScalarValue:
        text: str = node.value
        plain = node.plain
        if "${" in text:
            match = VARIABLE.fullmatch(text)
            text = self.interpolate(node, text)
            # Inside {} and [] a variable must be quoted, so that its quotes do not make it text.
            plain = (plain or node.tag is None) if match is not None and match[1] else False
        try:
            if node.tag not in (None, "str"):
                return self._tagged(node, text)
            return core(text) if plain and node.tag is None else text
        except ValueError as error:
            self.report(node, f"Not a usable number: {error}")
            return text

    def _tagged(self, node: Node, text: str) -> ScalarValue:
        value = core(text)
        allowed = _TYPES[str(node.tag)]
        if not isinstance(value, allowed) or (node.tag != "bool" and isinstance(value, bool)):
            self.report(node, f"{shown(text)} is not a !!{node.tag}")
            return text
        return float(value) if node.tag == "float" and isinstance(value, (int, float)) else value

    def interpolate(self, node: Node, text: str) -> str:
        """Return `text` with `${NAME}` and `${NAME:-default}` replaced, `$${` made `${`; reports unset names.

        As in the shell, a default also replaces an empty variable.
        """

        def replace(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            name, default = match[1], match[2]
            if name is None:
                self.report(node, "`${` begins a variable: write ${NAME} or ${NAME:-default}, or $${ for the text `${`")
                return match[0]
            argument = node.source.scope.get(name)
            if argument is not None:
                return self._inserted(node, match, argument)
            value = self.environment.get(name)
            if value is None and default is None:
                parameter = nearest(name, node.source.scope)
                advice = f"set it, or give a default: ${{{name}:-default}}"
                if parameter is not None:
                    advice = f"did you mean the parameter {parameter!r}?"
                self.report(node, f"The variable {name} is not set; {advice}")
                return match[0]
            return (value or default) if default is not None else str(value)

        return VARIABLE.sub(replace, text)

    def _inserted(self, node: Node, match: re.Match[str], argument: Argument) -> str:
        """Return the text of a macro's argument within a longer text."""
        mistake = None
        if match[2] is not None:
            mistake = "the default of a parameter belongs below 'params'"
        elif argument.type not in TEXTS:
            mistake = f"{argument.type} can't be a part of a text"
        value = None if mistake else self(argument.node)
        if mistake or value is None:
            self.report(node, f"{match[0]} has no text here: {mistake or 'the argument is null'}")
            return match[0]
        if isinstance(value, str) or "${" in argument.node.value:
            return shown(value) if isinstance(value, bool) else str(value)
        return str(argument.node.value)


def shown(value: object, limit: int = 60) -> str:
    """Return a value as a message shows it: YAML's words, text in quotes, and no longer than `limit` characters."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


# Legal names, and the ends of messages about names that a file does not define.

LEGAL = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
PIPELINE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
CALLABLE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
MAX_LENGTH = 249


def kafka_name_mistake(name: str) -> str | None:
    """Return the mistake in the name of a topic, a node or a store, or None (Topic.validate, Named.validate).

    >>> kafka_name_mistake("a b")
    "has ' ', which is not among the letters, digits and ._- that Kafka allows"
    """
    if not name:
        return "is empty"
    if name in (".", ".."):
        return "may not be '.' or '..'"
    if len(name) > MAX_LENGTH:
        return f"is {len(name)} characters long, Kafka allows {MAX_LENGTH}"
    if not LEGAL.fullmatch(name):
        bad = next(character for character in name if not LEGAL.fullmatch(character))
        return f"has {bad!r}, which is not among the letters, digits and ._- that Kafka allows"
    return None


def known(names: Collection[str], what: str) -> str:
    """Return the list of defined names for a message about an unknown name, when they are few.

    what: "topics" or the like, for a file that has none; may be empty.
    """
    if not names:
        return f"the file has no {what}" if what else ""
    return f"known are {', '.join(sorted(names))}" if len(names) <= 12 else ""


def hint(name: str, names: Iterable[str], what: str = "") -> str:
    """Return the end of a message about a name that a file does not define."""
    defined = list(names)
    return did_you_mean(name, defined, known(defined, what))
