"""Names and operators of other languages, and their spelling in expressions, for messages about mistakes."""

from __future__ import annotations

import re

NAMES = {
    "true": "True",
    "TRUE": "True",
    "false": "False",
    "FALSE": "False",
    "null": "None",
    "NULL": "None",
    "nil": "None",
    "none": "None",
    "undefined": "None",
}
"""Names of constants in other languages, and those of expressions."""

METHODS = {
    "charAt": "text[i]",
    "contains": "part in value",
    "containsKey": "key in object",
    "equals": "a == b",
    "equalsIgnoreCase": "a.lower() == b.lower()",
    "filter": "[each for each in list if CONDITION]",
    "getOrDefault": "object.get(key, default)",
    "has": "key in object",
    "hasOwnProperty": "key in object",
    "includes": "part in value",
    "indexOf": "text.find(part)",
    "isEmpty": "len(value) == 0",
    "length": "len(value)",
    "map": "[EXPR for each in list]",
    "matches": "re_match(pattern, text)",
    "parseInt": "int(text)",
    "size": "len(value)",
    "slice": "value[start:end]",
    "stringify": "str(value)",
    "substr": "text[start:end]",
    "substring": "text[start:end]",
    "toFixed": "round(number, digits)",
    "toLowerCase": "text.lower()",
    "toString": "str(value)",
    "toUpperCase": "text.upper()",
    "trim": "text.strip()",
}
"""Methods of other languages, and what expressions have in their place."""

MODULES = frozenset(
    [
        "base64",
        "collections",
        "datetime",
        "functools",
        "hashlib",
        "itertools",
        "json",
        "logging",
        "math",
        "np",
        "os",
        "pd",
        "re",
        "sys",
        "uuid",
    ]
)
"""Modules of Python that expressions of other tools import."""

_OPERATORS = {
    "&&": "and",
    "||": "or",
    "===": "==",
    "!==": "!=",
    "<>": "!=",
    "??": "A if A is not None else B",
    "?.": "value.get('name')",
    "?": "A if CONDITION else B",
    "!": "not",
    "=": "==",
    "++": "+ 1",
    "=>": "lambda x: …",
    "->": "lambda x: …",
    "AND": "and",
    "OR": "or",
    "NOT": "not",
    "LIKE": "re_match(pattern, text)",
    "$": "value",
    "“": '"',
    "”": '"',
    "‘": "'",
    "’": "'",
}
_TEXT = r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'"
# Longer operators first, so that no part of one matches as another.
_TOKENS = re.compile(
    rf"{_TEXT}|===|!==|=>|->|==|!=|<=|>=|:=|\*\*|//|<>|&&|\|\||\?\?|\?\.|\+\+|[?!=;$“”‘’]|(?<![.\w])(?:AND|OR|NOT|LIKE)(?!\w)"
)


def foreign_operator(text: str) -> tuple[int, str] | None:
    """Return the offset of the first operator of another language in a text, and a sentence about it; None without one.

    Expressions have `=` too, after a parameter's name, so that it counts outside of brackets only.

    >>> foreign_operator("value.a && value.b")
    (8, "write 'and' for '&&'")
    >>> foreign_operator("'a && b' + value") is None
    True
    """
    for match in _TOKENS.finditer(text):
        token = match[0]
        if token == ";":
            return match.start(), "an expression is one value, without ';'"
        written = _OPERATORS.get(token)
        if written is None or (token == "=" and _is_inside_brackets(text[: match.start()])):
            continue
        if token == "=" and "\n" in text:
            return (
                match.start(),
                "an expression is one value, without assignments; write a function of Python and 'call' it",
            )
        return match.start(), f"write {written!r} for {token!r}"
    return None


def _is_inside_brackets(before: str) -> bool:
    bare = re.sub(_TEXT, "", before)
    return sum(bare.count(each) for each in "([{") > sum(bare.count(each) for each in ")]}")
