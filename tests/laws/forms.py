"""The forms of expressions, each at the top of one: `{a}` and `{b}` are operands of a place, `{c}` and `{d}` conditions."""

from __future__ import annotations

N, M = "len(str({a}))", "len(str({b}))"

EVERYWHERE = {
    "or": "{a} or {b}",
    "or of three": "{c} and {a} or {d} and {b} or {a}",
    "and": "{a} and {b}",
    "conditional": "{a} if {c} else {b}",
    "conditional at the right": "{a} if {c} else {b} if {d} else {a}",
    "conditional at the left": "({a} if {c} else {b}) if {d} else {b}",
    "conditional with or": "{a} or {b} if {c} or {d} else {b} and {a}",
    "or of a conditional": "{a} or ({b} if {c} else {a})",
    "not in a condition": "{a} if not {c} or {d} else {b}",
    "lambda": "sorted([{a}, {b}], key=lambda each: str(each))[0]",
    "lambda with a conditional": "sorted([{a}, {b}], key=lambda each: 1 if each else 0)[-1]",
    "subscript": "[{a}, {b}][-1]",
    "subscript of an object": '{{"}}": {a}, "{{": {b}}}["}}"]',
    "get": '{{"{{": {a}}}.get("{{", {b})',
    "comprehension": "[each for each in [{a}, {b}] if {c} or {d} or True][0]",
    "set": "{a} if {{1, 2}} == {{2, 1}} and {c} else {b}",
    "bytes": "b'{{or}}' == b'x' or {a}",
    "text with braces": "{a} if str({a}) + '}} or {{' else {b}",
    "function": "same({a}) or {b}",
    "parentheses": "(({a}))",
}
"""Of the type of the operands, so that they fit where only one type does."""

NUMBERS = {
    "bits or": f"{N} | {M}",
    "bits xor": f"{N} ^ {M}",
    "bits and": f"{N} & {M}",
    "shift left": f"{N} << {M} % 3",
    "shift right": f"{N} << 5 >> {M} % 3",
    "sum": f"{N} + {M}",
    "difference": f"9 - {N} - {M}",
    "product": f"{N} * {M}",
    "floor division": f"{N} * 7 // {M}",
    "remainder": f"{N} * 7 % {M}",
    "negative": f"-{N}",
    "positive": f"+{N}",
    "invert": f"~{N}",
    "power": f"{N} ** 2",
    "negative power": f"-{N} ** 2",
    "negative number": "-1",
    "number": "3",
    "mixed": f"{N} - 1 or {M}",
    "sum of a generator": "sum(1 for each in [{a}, {b}] if each or {c})",
}
ANYTHING = {
    "not": "not {a}",
    "not of or": "not ({a} or {b})",
    "not of not": "not not {a}",
    "or of not": "not {a} or {c}",
    "equal": "{a} == {b}",
    "not equal": "{a} != {b}",
    "less": f"{N} < {M}",
    "chained comparison": f"0 < {N} <= {M} < 99",
    "is None": "{a} is None",
    "is not None": "{a} is not None",
    "in": "{a} in [{b}, {a}]",
    "not in": "{a} not in ({b}, None)",
    "division": f"{N} / {M}",
    "tuple": "({a}, {b})",
    "tuple without parentheses": "{a}, {b}",
    "tuple of one": "{a},",
    "list": "[{a}, {b}]",
    "starred": "[*[{a}], {b}, *({a}, {b})]",
    "starred argument": f"max(*[{N}, {M}])",
    "object": '{{"a": {a}, "}}": {b} or {a}, **{{"c": {c}}}}}',
    "set display": "sorted({{str({a}), str({b})}})",
    "list comprehension": "[each or {a} for each in ({a}, {b}) if {c} or {d}]",
    "object comprehension": "{{str(each): each for each in [{a}, {b}]}}",
    "generator": "(each for each in [{a}, {b}])",
    "slice": "[{a}, {b}, {a}][-2:]",
    "f-string": 'f"{{{a}}} or {{{b}}}"',
    "f-string with braces": 'f"{{{{{{{a}}}}}}}"',
    "text": "'a or b'",
    "None": "None",
    "True": "True",
    "False": "False",
    "key function": "max([{a}, {b}], key=str)",
    "sorted": "sorted([{a}, {b}], key=lambda each: not each)",
    "time": "now() or {a}",
}
LISTS = {
    "sum": "{a} + {b}",
    "sum of three": "{a} + {b} + ({a} if {c} else {b})",
    "product": "{a} * 2",
    "starred": "[*{a}, *{b}]",
    "comprehension of one": "[each for each in {a} + {b} if {c} or {d} or True]",
    "generator": "(each for each in {a} or {b})",
    "tuple": "({a}[0], {b}[0])",
    "tuple without parentheses": "{a}[0], {b}[0]",
    "sorted": "sorted({a} + {b}, key=lambda each: str(each))",
    "slice": "({a} + {b})[1:]",
}
TEXTS = {
    "sum": "{a} + {b}",
    "sum of three": "{a} + ({b} if {c} else {a})",
    "f-string": 'f"{{{a}}}-or-{{{b}}}"',
    "percent": "'%s-%s' % ({a}, {b})",
    "join": "'-'.join([{a}, {b}])",
    "method": "({a} or {b}).lower()",
    "slice": "({a} + {b})[:]",
    "text": "{a} + ' or b'",
}

LEVELS = (
    "or",
    "and",
    "not",
    "conditional",
    "conditional at the right",
    "or of a conditional",
    "not in a condition",
    "lambda",
    "subscript of an object",
    "comprehension",
    "text with braces",
    "function",
    "less",
    "chained comparison",
    "is None",
    "not in",
    "bits or",
    "bits and",
    "shift left",
    "sum",
    "remainder",
    "negative number",
    "power",
    "tuple without parentheses",
    "starred",
    "object",
    "generator",
    "f-string",
)
"""One form of each level and kind, for places that take long to run."""

FORMS = {
    "any": {**EVERYWHERE, **NUMBERS, **ANYTHING},
    "number": {**EVERYWHERE, **NUMBERS},
    "list": {**EVERYWHERE, **LISTS},
    "text": {**EVERYWHERE, **TEXTS},
}
"""By what a place takes."""


def twin(expression: str) -> str:
    """Return the same expression in brackets, which mean the same wherever they stand."""
    return f"[({expression})][0]"
