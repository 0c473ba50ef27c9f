"""Expressions over keys and values that Python and the Java interpreter evaluate alike.

Every expression bears nulls: `(value or 0)` where a long may be absent. Numbers stay small and texts short.
"""

from __future__ import annotations

import random

from tests.fuzz import forms
from tests.fuzz.forms import (
    ANY,
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INTEGER,
    JSON,
    LIST,
    LONG,
    SHORT,
    STRING,
    UUID,
    VOID,
)
from tests.fuzz.kinds import (
    ANYTHING,
    EMPTY,
    FAMILY,
    FRACTIONS,
    IDS,
    Type,
    Windowed,
    windowed,
)


class Expressions:
    """Draws expressions of a wanted type from names of known types."""

    def __init__(self, rng: random.Random, failing: bool = False, functions: bool = False, shaped: float = 0.0):
        self.rng = rng
        self.failing = failing  # whether some expressions divide by zero now and then
        self.functions = functions  # whether `letters(text, count)` and others are functions of the file
        self.shaped = shaped  # how often a form of its own stands at the top of an expression
        self.context = True  # whether topic, offset and headers are those of the record: not where a table is looked up

    def present(self, name: str, kind: Type) -> tuple[str, str]:
        """The name as something that is never null, and its plain type."""
        if isinstance(kind, Windowed):
            text, kind = f"{name}.key", kind.inner
        else:
            text = f"({name} or {EMPTY[kind]})"
        return f"{text}.decode()" if kind == BYTES else text, FAMILY.get(kind, kind)

    def number(self, name: str, kind: Type) -> str:
        """A whole number over one name, not negative only by chance."""
        text, kind = self.present(name, kind)
        return {
            LONG: text,
            INTEGER: text,
            STRING: f"len({text})",
            JSON: f"{text}.n",
            LIST: f"len({text})",
            DOUBLE: f"int({text} * 2)",
            BOOLEAN: f"int({text})",
            ANY: f"len(str({text}))",
        }[kind]

    def convert(self, name: str, kind: Type, target: str) -> str:
        """An expression of the target type over one name."""
        text, plain = self.present(name, kind)
        constant = self.rng.randint(1, 7)
        number = self.number(name, kind)
        if self.failing and target == LONG == plain and self.rng.random() < 0.3:
            return f"{constant} // ({text} % 4)"
        if self.functions and target == STRING == plain and self.rng.random() < 0.3:
            return self.rng.choice([f"letters({text}, {constant})", f"letters(count={constant}, text={text})"])
        if self.functions and target == LONG and self.rng.random() < 0.3:
            return f"either({number}, {constant})"
        if target == LONG:
            return self.whole(text, plain, number, constant)
        if target in (INTEGER, SHORT):
            return f"{number} % 97 - {constant}"
        if target == STRING:
            return self.letters(text, plain, constant)
        if target in CONSTANT:
            return CONSTANT[target](number)
        if target == BYTES:
            return f"({self.letters(text, plain, constant)}).encode()"
        if target in (DOUBLE, FLOAT):
            return self.rng.choice(
                [f"{number} / {constant + 1}", f"{number} * 0.5", f"{number} - 0.5", f"float({number})"]
            )
        if target == BOOLEAN:
            return self.rng.choice([f"{number} % 2 == 0", f"{number} > {constant}", f"not {number}"])
        if target == ANY:
            return self.anything(name, text, number)
        if target == LIST:
            return f"[{self.convert(name, kind, LONG)}, {constant}]"
        return f'{{"n": {self.convert(name, kind, LONG)}, "s": {self.convert(name, kind, STRING)}}}'

    def whole(self, text: str, kind: str, number: str, constant: int) -> str:
        if kind == LONG:
            options = [
                f"{text} + {constant}",
                f"{text} * {constant} % 101",
                f"{text} // {constant} - 1",
                f"abs({text})",
            ]
        elif kind == STRING:
            options = [f"len({text})", f"len({text}) * {constant}", f'{text}.find("b")']
        else:
            options = [number, f"{number} + {constant}"]
        return self.rng.choice(options)

    def letters(self, text: str, kind: str, constant: int) -> str:
        return self.rng.choice(
            {
                LONG: [f"str({text})", f'"s" + str({text} % {constant})'],
                INTEGER: [f"str({text})", f'"%s" % {text}'],
                STRING: [f'({text} + "{constant}")[-8:]', f"{text}.upper()", f"{text}[:2]", f"{text}.lower()"],
                JSON: [f"{text}.s", f"{text}.s + str({text}.n)"],
                LIST: [f"str(len({text}))"],
                DOUBLE: [f"str({text})"],
                BOOLEAN: [f"str({text})[:1]"],
                ANY: [f"str({text})[:6]", f'({text} if {text} == "1" else "y")'],
            }[kind]
        )

    def anything(self, name: str, text: str, number: str) -> str:
        if self.rng.random() < 0.3:
            return self.rng.choice([f'{{"v": {number}}}', f"[{number}]", f"{number} % 3 / 2", number, f"{number} > 2"])
        return f"[{', '.join(self.rng.sample(ANYTHING, 3))}][{number} % 3]"

    def shape(self, kind: str, draw, condition, steady: bool = False) -> str:
        """What `draw` gives, now and then with a form at its top, or with one inside another."""

        def operand(depth: int) -> str:
            if depth and self.rng.random() < 0.25:
                return f"({whole(depth - 1)})"
            return draw()

        def whole(depth: int) -> str:
            if kind == STRING and not steady and self.rng.random() < 0.2:
                made = forms.template(self.rng, draw())
                if made:
                    return made
            return forms.dressed(self.rng, kind, lambda: operand(depth), condition, steady)

        return whole(1) if self.rng.random() < self.shaped and forms.FORMS[kind] else draw()

    def sometimes_null(self, text: str, chance: float, key: Type, value: Type) -> str:
        if self.rng.random() >= chance:
            return text
        return f"None if {self.plain_condition(key, value)} else {text}"

    def of_record(self, target: str, key: Type, value: Type, null: float = 0.0) -> str:
        """An expression over `key` and `value`."""

        def draw() -> str:
            if self.context and target in CONTEXT and self.rng.random() < 0.04:
                return self.rng.choice(CONTEXT[target])
            name, kind = ("value", value) if self.rng.random() < 0.75 else ("key", key)
            return self.convert(name, kind, target)

        text = self.shape(target, draw, lambda: self.plain_condition(key, value))
        return self.sometimes_null(text, null, key, value)

    def new_key(self, target: str, key: Type, value: Type, null: float = 0.06, context: bool = True) -> str:
        """A key from a small set, so that records meet; without `context` of `key` and `value` only."""

        def condition() -> str:
            return self.plain_condition(key, value, context)

        def draw() -> str:
            name, kind = ("value", value) if self.rng.random() < 0.6 else ("key", key)
            return self.small(target, name, kind)

        text = self.shape(target, draw, condition, steady=True)
        return text if self.rng.random() >= null else f"None if {condition()} else {text}"

    def small(self, target: str, name: str, kind: Type) -> str:
        text, plain = self.present(name, kind)
        modulus = self.rng.randint(2, 4)
        number = self.number(name, kind)
        if target in (LONG, INTEGER, SHORT):
            return f"{number} % {modulus}"
        if target in CONSTANT:
            return CONSTANT[target](number)
        if target == BOOLEAN:
            return f"{number} % {modulus} == 0"
        if target in (DOUBLE, FLOAT):
            return f"[{', '.join(self.rng.sample(FRACTIONS, modulus))}][{number} % {modulus}]"
        if target == ANY:
            return f"[{', '.join(self.rng.sample(ANYTHING, modulus))}][{number} % {modulus}]"
        letters = {STRING: f"{text}[:1].lower()", JSON: f"{text}.s"}.get(plain)
        text = letters if letters and self.rng.random() < 0.7 else f'"abcd"[{number} % {modulus}]'
        return f"({text}).encode()" if target == BYTES else text

    def plain_condition(self, key: Type, value: Type, context: bool = True) -> str:
        """A condition without a form of its own."""
        chance = self.rng.random()
        if chance < 0.1:
            return self.rng.choice(["value is None", "value is not None"])
        if context and self.context and chance < 0.13:
            return self.rng.choice(["timestamp % 2 == 0", "offset % 2 == 0", 'header("h") is None', "partition == 0"])
        name, kind = ("key", key) if chance < 0.25 else ("value", value)
        text, plain = self.present(name, kind)
        constant = self.rng.randint(2, 5)
        number = self.number(name, kind)
        options = [f"{number} % {constant} != 0", f"{number} > {constant}", f"not {number} % 2 == 0"]
        if plain == STRING:
            options += [f'{text} < "c"', f'"a" in {text}', f'{text} != "b"', f'{text}.startswith("a")']
        if plain == STRING and self.rng.random() < 0.2:
            options += [f're_match("[a-c]+", {text})']
        if plain in (DOUBLE, ANY):
            options += [f"{text} == 1", f"{text} in [0, 1, 1.5]", text]
        if isinstance(key, Windowed):
            options.append(f"key.start % {constant} == 0")
        return self.rng.choice(options)

    def condition(self, key: Type, value: Type) -> str:
        if self.rng.random() >= self.shaped:
            return self.plain_condition(key, value)
        name, kind = ("key", key) if self.rng.random() < 0.25 else ("value", value)
        return forms.truth(self.rng, self.number(name, kind), lambda: self.inner_condition(key, value))

    def inner_condition(self, key: Type, value: Type) -> str:
        """What stands inside another condition: now and then one with a form, in brackets."""
        if self.rng.random() < 0.8:
            return self.plain_condition(key, value)
        return f"({forms.truth(self.rng, self.number('value', value), lambda: self.plain_condition(key, value))})"

    def items(self, item, key: Type, value: Type) -> str:
        """An expression that gives several items."""
        if self.rng.random() < self.shaped:
            return forms.iterable(self.rng, item, lambda: self.plain_condition(key, value))
        return f"[{', '.join(item() for _ in range(self.rng.choice([1, 2, 2, 3])))}]"

    def combine(self, target: str, left: tuple[str, Type], right: tuple[str, Type]) -> str:
        """An expression of the target type over two names, order mattering."""

        def condition() -> str:
            name, kind = self.rng.choice([left, right])
            return self.rng.choice([f"{name} is None", f"{self.number(name, kind)} % 2 == 0"])

        return self.shape(target, lambda: self.combined(target, left, right), condition)

    def combined(self, target: str, left: tuple[str, Type], right: tuple[str, Type]) -> str:
        if target == LIST:
            sides = [
                self.convert(*side, LONG) if windowed(side[1]) or side[1] == BYTES else side[0]
                for side in (left, right)
            ]
            return f"[{', '.join(sides)}]"
        if target == LONG:
            return f"({self.convert(*left, LONG)}) * 3 % 1009 + ({self.convert(*right, LONG)})"
        if target == STRING:
            return f'(({self.convert(*left, STRING)}) + "-" + ({self.convert(*right, STRING)}))[-12:]'
        if target == JSON:
            return f'{{"n": {self.convert(*left, LONG)}, "s": {self.convert(*right, STRING)}}}'
        name, kind = self.rng.choice([left, right])
        return self.convert(name, kind, target)

    def constant(self, kind: str):
        """An initial value: a bare number or an expression."""
        if kind == LONG and self.rng.random() < 0.5:
            return self.rng.choice([0, 0, 10])
        plain = {
            LONG: "1 + 1",
            INTEGER: "3",
            STRING: '"0"',
            JSON: '{"n": 0, "s": ""}',
            LIST: "[]",
            DOUBLE: "0.0",
            BOOLEAN: "False",
            ANY: self.rng.choice(ANYTHING),
            SHORT: "3",
            FLOAT: "0.0",
            UUID: f'"{IDS[0]}"',
            BYTES: '"0".encode()',
        }[kind]
        return self.shape(kind, lambda: plain, lambda: self.rng.choice(["1 < 2", "not 1", '"a" in "b"']), steady=True)

    def fold(self, kind: str, value: Type, other: str = "value") -> str:
        """An adder: `aggregate` of the kind and another name; now and then it gives null."""
        text = self.shape(
            kind,
            lambda: self.folded(kind, value, other),
            lambda: self.rng.choice(self.folding(value, other)),
            steady=True,
        )
        return f"None if {self.number(other, value)} % 7 == 3 else {text}" if self.rng.random() < 0.07 else text

    def folding(self, value: Type, other: str) -> list[str]:
        number = self.number(other, value)
        return [f"{number} % 2 == 0", f"{number} > 3", "aggregate is None", f"not {number} % 3"]

    def folded(self, kind: str, value: Type, other: str) -> str:
        if kind == LIST:
            return f"((aggregate or []) + [{self.convert(other, value, LONG)}])[-4:]"
        if kind == LONG:
            return self.rng.choice([f"(aggregate or 0) + ({self.convert(other, value, LONG)})", "(aggregate or 0) + 1"])
        if kind == STRING:
            return f'((aggregate or "") + ({self.convert(other, value, STRING)}))[-10:]'
        if kind == JSON:
            number, letters = self.convert(other, value, LONG), self.convert(other, value, STRING)
            before = f"(aggregate or {EMPTY[JSON]})"
            return f'{{"n": {before}.n + ({number}), "s": ({before}.s + ({letters}))[-6:]}}'
        if kind in (DOUBLE, FLOAT):
            return f"(aggregate or 0.0) / 2 + ({self.convert(other, value, DOUBLE)})"
        if kind in (INTEGER, SHORT):
            return f"(aggregate or 0) % 50 + ({self.convert(other, value, kind)})"
        return self.rng.choice([self.convert(other, value, kind), "aggregate"])

    def unfold(self, kind: str, value: Type) -> str:
        """A subtractor; it need not be the exact inverse."""
        return self.shape(
            kind,
            lambda: self.unfolded(kind, value),
            lambda: self.rng.choice(self.folding(value, "value")),
            steady=True,
        )

    def unfolded(self, kind: str, value: Type) -> str:
        if kind == LIST:
            return "(aggregate or [])[1:]"
        if kind == LONG:
            return f"(aggregate or 0) - ({self.convert('value', value, LONG)})"
        if kind == STRING:
            return '(aggregate or "")[1:]'
        if kind == JSON:
            before = f"(aggregate or {EMPTY[JSON]})"
            return f'{{"n": {before}.n - ({self.convert("value", value, LONG)}), "s": {before}.s[1:]}}'
        return self.rng.choice([self.convert("value", value, kind), "aggregate"])

    def unite(self, kind: str) -> str:
        """A session merger over `left` and `right`."""
        return self.shape(
            kind,
            lambda: self.united(kind),
            lambda: self.rng.choice(["left is None", "left == right", "not right"]),
            steady=True,
        )

    def united(self, kind: str) -> str:
        if kind == LIST:
            return "((left or []) + (right or []))[-4:]"
        if kind == LONG:
            return "(left or 0) + (right or 0)"
        if kind == STRING:
            return '((left or "") + "|" + (right or ""))[-10:]'
        if kind == JSON:
            left, right = f"(left or {EMPTY[JSON]})", f"(right or {EMPTY[JSON]})"
            return f'{{"n": {left}.n + {right}.n, "s": ({left}.s + {right}.s)[-6:]}}'
        return self.rng.choice(["left", "right", "left or right", "right if left else left"])


CONSTANT = {
    UUID: lambda number: f"[{', '.join(map(repr, IDS))}][{number} % 4]",
    VOID: lambda number: "None",
}
CONTEXT = {
    LONG: [
        "timestamp % 7",
        "offset % 5",
        "partition",
        "len(headers)",
        'len(header("h") or "")',
        "now() % 11",
    ],
    STRING: ['(topic or "none")[-3:]', 'header("h") or "-"', "str(offset)", "str([name for name, each in headers])"],
}
