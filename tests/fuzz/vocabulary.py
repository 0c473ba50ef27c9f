"""Types of keys and values, and expressions over them that Python and the Java interpreter evaluate alike.

Every expression bears nulls: `(value or 0)` where a long may be absent. Numbers stay small and texts short.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

LONG, STRING, JSON, LIST = "long", "string", "json", "list"
SCALARS = (STRING, LONG)
VALUES = (STRING, STRING, LONG, LONG, JSON)

EMPTY = {LONG: "0", STRING: '"z"', JSON: '{"n": 1, "s": "j"}', LIST: "[]"}


@dataclass(frozen=True)
class Windowed:
    """The type of a windowed key; `size` is None for sessions."""

    inner: str
    size: int | None


Type = str | Windowed


def serde(kind: Type):
    """The serde of a type as the file writes it."""
    if isinstance(kind, Windowed):
        if kind.size is None:
            return {"session_windowed": kind.inner}
        return {"windowed": kind.inner, "size": f"{kind.size}ms"}
    return JSON if kind == LIST else kind


class Expressions:
    """Draws expressions of a wanted type from names of known types."""

    def __init__(self, rng: random.Random, failing: bool = False, functions: bool = False):
        self.rng = rng
        self.failing = failing  # whether some expressions divide by zero now and then
        self.functions = functions  # whether `letters(text, count)` is a function of the file

    def present(self, name: str, kind: Type) -> tuple[str, str]:
        """The name as something that is never null, and its plain type."""
        if isinstance(kind, Windowed):
            return f"{name}.key", kind.inner
        return f"({name} or {EMPTY[kind]})", kind

    def convert(self, name: str, kind: Type, target: str) -> str:
        """An expression of the target type over one name."""
        text, kind = self.present(name, kind)
        constant = self.rng.randint(1, 7)
        if self.failing and target == LONG == kind and self.rng.random() < 0.3:
            return f"{constant} // ({text} % 4)"
        if self.functions and target == STRING == kind and self.rng.random() < 0.3:
            return f"letters({text}, {constant})"
        if target == LONG:
            return self.rng.choice(
                {
                    LONG: [
                        f"{text} + {constant}",
                        f"{text} * {constant} % 101",
                        f"{text} // {constant} - 1",
                        f"abs({text})",
                    ],
                    STRING: [f"len({text})", f"len({text}) * {constant}"],
                    JSON: [f"{text}.n", f"{text}.n + {constant}"],
                    LIST: [f"len({text})"],
                }[kind]
            )
        if target == STRING:
            return self.rng.choice(
                {
                    LONG: [f"str({text})", f'"s" + str({text} % {constant})'],
                    STRING: [f'({text} + "{constant}")[-8:]', f"{text}.upper()", f"{text}[:2]", f"{text}.lower()"],
                    JSON: [f"{text}.s", f"{text}.s + str({text}.n)"],
                    LIST: [f"str(len({text}))"],
                }[kind]
            )
        if target == LIST:
            return f"[{self.convert(name, kind if kind != LIST else LIST, LONG)}, {constant}]"
        number, letters = self.convert(name, kind, LONG), self.convert(name, kind, STRING)
        return f'{{"n": {number}, "s": {letters}}}'

    def sometimes_null(self, text: str, chance: float, key: Type, value: Type) -> str:
        if self.rng.random() >= chance:
            return text
        return f"None if {self.condition(key, value)} else {text}"

    def of_record(self, target: str, key: Type, value: Type, null: float = 0.0) -> str:
        """An expression over `key` and `value`."""
        name, kind = ("value", value) if self.rng.random() < 0.75 else ("key", key)
        return self.sometimes_null(self.convert(name, kind, target), null, key, value)

    def new_key(self, target: str, key: Type, value: Type, null: float = 0.06) -> str:
        """A key from a small set, so that records meet."""
        name, kind = ("value", value) if self.rng.random() < 0.6 else ("key", key)
        text, kind = self.present(name, kind)
        modulus = self.rng.randint(2, 4)
        number = {LONG: text, STRING: f"len({text})", JSON: f"{text}.n", LIST: f"len({text})"}[kind]
        if target == LONG:
            drawn = f"{number} % {modulus}"
        else:
            letters = {STRING: f"{text}[:1].lower()", JSON: f"{text}.s"}.get(kind)
            drawn = letters if letters and self.rng.random() < 0.7 else f'"abcd"[{number} % {modulus}]'
        return self.sometimes_null(drawn, null, key, value)

    def condition(self, key: Type, value: Type) -> str:
        chance = self.rng.random()
        if chance < 0.1:
            return self.rng.choice(["value is None", "value is not None"])
        name, kind = ("key", key) if chance < 0.25 else ("value", value)
        text, kind = self.present(name, kind)
        constant = self.rng.randint(2, 5)
        number = {LONG: text, STRING: f"len({text})", JSON: f"{text}.n", LIST: f"len({text})"}[kind]
        options = [f"{number} % {constant} != 0", f"{number} > {constant}", f"not {number} % 2 == 0"]
        if kind == STRING:
            options += [f'{text} < "c"', f'"a" in {text}', f'{text} != "b"']
        if isinstance(key, Windowed):
            options.append(f"key.start % {constant} == 0")
        return self.rng.choice(options)

    def combine(self, target: str, left: tuple[str, Type], right: tuple[str, Type]) -> str:
        """An expression of the target type over two names, order mattering."""
        if target == LIST:
            return f"[{left[0]}, {right[0]}]"
        if target == LONG:
            return f"({self.convert(*left, LONG)}) * 3 % 1009 + ({self.convert(*right, LONG)})"
        if target == STRING:
            return f'(({self.convert(*left, STRING)}) + "-" + ({self.convert(*right, STRING)}))[-12:]'
        return f'{{"n": {self.convert(*left, LONG)}, "s": {self.convert(*right, STRING)}}}'

    def constant(self, kind: str):
        """An initial value: a bare number or an expression."""
        if kind == LONG:
            return self.rng.choice([0, 0, 10, "1 + 1"])
        return {STRING: '"0"', JSON: '{"n": 0, "s": ""}', LIST: "[]"}[kind]

    def fold(self, kind: str, value: Type, other: str = "value") -> str:
        """An adder: `aggregate` of the kind and another name."""
        if kind == LIST:
            return f"(aggregate + [{self.convert(other, value, LONG)}])[-4:]"
        if kind == LONG:
            return self.rng.choice([f"aggregate + ({self.convert(other, value, LONG)})", "(aggregate or 0) + 1"])
        if kind == STRING:
            return f"(aggregate + ({self.convert(other, value, STRING)}))[-10:]"
        number, letters = self.convert(other, value, LONG), self.convert(other, value, STRING)
        return f'{{"n": aggregate.n + ({number}), "s": (aggregate.s + ({letters}))[-6:]}}'

    def unfold(self, kind: str, value: Type) -> str:
        """A subtractor; it need not be the exact inverse."""
        if kind == LIST:
            return "aggregate[1:]"
        if kind == LONG:
            return f"aggregate - ({self.convert('value', value, LONG)})"
        if kind == STRING:
            return "aggregate[1:]"
        return f'{{"n": aggregate.n - ({self.convert("value", value, LONG)}), "s": aggregate.s[1:]}}'

    def unite(self, kind: str) -> str:
        """A session merger over `left` and `right`."""
        if kind == LIST:
            return "(left + right)[-4:]"
        if kind == LONG:
            return "left + right"
        if kind == STRING:
            return '(left + "|" + right)[-10:]'
        return '{"n": left.n + right.n, "s": (left.s + right.s)[-6:]}'
