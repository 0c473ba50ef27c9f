"""Resolves the values of scalars: the YAML 1.2 core schema, and `${NAME}` from the environment."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from streamkit.spec.yaml_nodes.nodes import Node

Report = Callable[[Node, str], None]

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
_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{", re.ASCII)
_TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),)}
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


class Resolver:
    """Resolves the values of scalars; `environment` has the variables of `${NAME}`."""

    def __init__(self, environment: Mapping[str, str], report: Report):
        self.environment = environment
        self.report = report
        self._cache: dict[int, ScalarValue] = {}

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
            match = _VARIABLE.fullmatch(text)
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
            value = self.environment.get(name)
            if value is None and default is None:
                self.report(node, f"The variable {name} is not set; set it, or give a default: ${{{name}:-default}}")
                return match[0]
            return (value or default) if default is not None else str(value)

        return _VARIABLE.sub(replace, text)


def shown(value: object, limit: int = 60) -> str:
    """Return a value as a message shows it: YAML's words, text in quotes, and no longer than `limit` characters."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
