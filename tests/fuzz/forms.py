"""The forms of expressions, each at the top of one: what an expression means must not depend on where it stands.

`dressed` wraps an expression of a type into one of the same type, so that operators of every level of precedence,
conditionals, comprehensions, lambdas, stars and braces stand at the top in every place that takes an expression.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

LONG, STRING, JSON, LIST, DOUBLE, INTEGER, BOOLEAN, ANY = (
    "long",
    "string",
    "json",
    "list",
    "double",
    "integer",
    "boolean",
    "any",
)
SHORT, FLOAT, UUID, BYTES, VOID = "short", "float", "uuid", "bytes", "void"

# What was drawn by name: the suite's own test asks whether everything was.
drawn: Counter[str] = Counter()

COMMON = {
    "or": "{a} or {b}",
    "and": "{a} and {b}",
    "conditional": "{a} if {c} else {b}",
    "nested conditional": "{a} if {c} else {b} if {d} else {a}",
    "conditional of a conditional": "({a} if {c} else {b}) if {d} else {b}",
    "or and and": "{a} and {b} or {a}",
    "subscript": "[{a}, {b}][-1]",
    "comprehension": "[each for each in [{a}, {b}] if {c}][0] if {c} else {b}",
    "comprehension at the left": "[each for each in [{a}, {b}]][1]",
    "lambda": "sorted([{a}, {b}], key=lambda each: len(str(each)))[0]",
    "starred": "[*[{a}, {b}], {a}][1]",
    "object": '{{"a": {a}, "}}": {b}}}["}}"]',
    "get": '{{"{{": {a}}}.get("{{", {b})',
    "brackets": "(({a}))",
    "or of not": "not {c} and {a} or {b}",
}
NUMBERS = {
    "bits or": "({a}) % 64 | ({b}) % 64",
    "bits xor": "({a}) % 64 ^ ({b}) % 64",
    "bits and": "({a}) & ({b})",
    "shift left": "({a}) % 16 << 1 + 1",
    "shift right": "({a}) >> 1",
    "minus": "({a}) - ({b})",
    "minus at the left": "1 - {a}",
    "power": "(({a}) % 7) ** 2",
    "minus of a power": "-(({a}) % 7) ** 2",
    "invert": "~({a})",
    "negative": "-({a})",
    "positive": "+({a})",
    "remainder": "({a}) % 5 - 2",
    "floor division": "({a}) // 2",
    "sum of a generator": "sum(each % 7 for each in [{a}, {b}])",
    "length": "len([each for each in range(3) if each < {a}])",
    "largest": "max({a}, {b}, 2)",
    "smallest with a lambda": "min([{a}, {b}], key=lambda each: -each % 5)",
    "starred arguments": "max(*[{a}, {b}], 1)",
    "sum of a comprehension": "sum([one * two % 5 for one in [{a}] for two in [{b}, 2] if two])",
}
TEXTS = {
    "concatenation": '("<" + ({a}) + ">")[-8:]',
    "braces": '("{{}}" + {b})[-8:]',
    "percent": '("%s%%{{" % ({a}))[-8:]',
    "joined": '(",".join([{a}, {b}]))[-8:]',
    "repeated": "(({a}) * 2)[-6:]",
    "largest text": "max({a}, {b})",
    "shortest text": "min([{a}, {b}], key=lambda each: len(each))",
    "replaced": '({a}).replace("a", "{{b}}")[-8:]',
    "split": '(({a}) + " x").split()[0]',
    "quotes": "'\"' + ({a})[:5]",
}
OBJECTS = {
    "spread": '{{**({a}), "n": ({b}).n}}',
    "merge": "merge({a}, {b})",
    "dict": "dict({a}, n=({b}).n)",
    "items": "{{name: item for name, item in ({a}).items()}}",
}
LISTS = {
    "spread list": "[*({a}), *({b})][-4:]",
    "list comprehension": "[each for each in {a}]",
    "sorted": "sorted({a}, key=lambda each: str(each))",
    "list concatenation": "(({a}) + ({b}))[-4:]",
    "list of a tuple": "list((*({a}), 7))",
    "pairs": "[[at, each] for at, each in enumerate({a})][-3:]",
}
FRACTIONS = {
    "division": "({a}) / 4",
    "negative fraction": "-({a})",
    "product": "({a}) * 0.5",
    "difference of fractions": "({a}) - ({b})",
    "largest fraction": "max({a}, {b}, 0.5)",
    "float": "float({a})",
}
TRUTHS = {
    "not": "not {c}",
    "not or": "not {c} or {d}",
    "not of brackets": "not ({c} or {d})",
    "both": "{c} and {d}",
    "either": "{c} or {d}",
    "both or not": "{c} and {d} or not {c}",
    "truth conditional": "{c} if {d} else not {c}",
    "any": "any(each for each in [{c}, {d}])",
    "all": "all([{c}, {d}])",
    "bool": "bool({c})",
    "truth in a list": "({c}) in [True, {d}]",
    "truth from a lambda": "max([{c}, {d}], key=lambda each: str(each)) is not None",
}
CHAINED = {
    "chained": "-1 < {n} <= 7",
    "chained equal": "1 != {n} < 9 != 5",
    "not in": "{n} not in [1, 3, *[5]]",
    "in a tuple": "{n} in (0, 2, 4, 6)",
    "is not None": "{n} is not None",
    "chained sums": "{n} - 1 < {n} + 1 < 9",
}
TRUE_OR_NOT = {
    "bits": "{n} & 1",
    "number or": "{n} % 3 or {c}",
    "number and": "{n} % 3 and {c}",
    "list truth": "[each for each in [{n}, 3] if each > 2]",
    "starred truth": "[*[each for each in range(2) if each < {n}]]",
    "text truth": "str({n})[:0] or {c}",
    "object truth": "{{}} or {c}",
    "number": "{n}",
    "lambda truth": "sorted([{n}, 2], key=lambda each: -each)[0] > 2",
    "conditional number": "{n} if {c} else 0",
}
FORMS: dict[str, dict[str, str]] = {
    LONG: {**COMMON, **NUMBERS},
    INTEGER: {**COMMON, **NUMBERS},
    STRING: {**COMMON, **TEXTS},
    JSON: {**COMMON, **OBJECTS},
    LIST: {**COMMON, **LISTS},
    DOUBLE: {**COMMON, **FRACTIONS},
    ANY: COMMON,
    BOOLEAN: TRUTHS,
    SHORT: COMMON,
    FLOAT: {**COMMON, **FRACTIONS},
    UUID: COMMON,
    BYTES: COMMON,
    VOID: {},
}
ITERABLES = {
    "bare tuple": "{a}, {b}",
    "bare starred": "*[{a}, {b}], {a}",
    "generator": "[each for each in ({a}, {b})]",
    "or of lists": "[] or [{a}]",
    "conditional lists": "[{a}] if {c} else ({b}, {a})",
    "and of lists": "{c} and [{a}, {b}] or ()",
    "comprehension of two": "[each for each in [{a}, {b}] for again in range(2) if again or {c}]",
    "list": "[{a}, {b}]",
}


def dressed(
    rng: random.Random, kind: str, operands: Callable[[], str], condition: Callable[[], str], steady: bool = False
) -> str:
    """Return an expression of the kind with a form at its top; `operands` and `condition` draw its parts.

    `steady`: only forms that give one of the operands, for keys that are to meet and for what is added up.
    """
    forms = COMMON if steady and kind != BOOLEAN else FORMS[kind]
    names = list(forms)
    name = rng.choice(names)
    drawn[f"{kind}: {name}"] += 1
    return forms[name].format(a=operands(), b=operands(), c=condition(), d=condition())


def template(rng: random.Random, inner: str) -> str | None:
    """Return an f-string around an expression, or None where Python 3.11 has no way to write one."""
    quote = rng.choice([each for each in "\"'" if each not in inner] or [""])
    if not quote or "\\" in inner or "{" in inner:
        return None
    name = rng.choice(["f-string", "f-string with braces"])
    drawn[name] += 1
    return f"f{quote}{{{inner}}}{'{{}}' if name.endswith('braces') else ''}{quote}"


def truth(rng: random.Random, number: str, condition: Callable[[], str], strict: bool = False) -> str:
    """Return a condition with a form at its top; `strict`: one that gives True or False."""
    forms = {**TRUTHS, **CHAINED} if strict else {**TRUTHS, **CHAINED, **TRUE_OR_NOT}
    name = rng.choice(list(forms))
    drawn[f"condition: {name}"] += 1
    return forms[name].format(n=f"({number})", c=condition(), d=condition())


def iterable(rng: random.Random, item: Callable[[], str], condition: Callable[[], str]) -> str:
    """Return an expression that gives several items, with a form at its top."""
    name = rng.choice(list(ITERABLES))
    drawn[f"iterable: {name}"] += 1
    return ITERABLES[name].format(a=item(), b=item(), c=condition())
