"""Moves random parts of a topology into macros, so that tests can compare the result with the topology written out."""

from __future__ import annotations

import ast
from copy import deepcopy
from random import Random
from typing import Any

EXPRESSIONS = frozenset(("if", "do", "key", "value", "values", "records", "add", "subtract", "initial", "merge", "on"))
TYPES = {"name": "name", "key_serde": "serde", "value_serde": "serde", "with": "stream", "to": "topic"}
TYPES |= dict.fromkeys(("within", "before", "after", "grace", "tumbling", "hopping", "advance", "session"), "duration")


class Factoring:
    """Factors one topology; `macros` collects the definitions."""

    def __init__(self, rng: Random):
        self.rng = rng
        self.macros: dict[str, dict] = {}
        self.types: dict[str, str] = {}
        self.parameters = 0

    def topology(self, data: dict) -> dict:
        """Return the topology with macros in place of parts of its steps."""
        data = deepcopy(data)
        for pipeline in data["pipelines"].values():
            if pipeline.get("steps"):
                pipeline["steps"] = self._steps(pipeline["steps"], 0)
        return {**data, "macros": self.macros}

    def _steps(self, steps: list, depth: int) -> list:
        found: list = []
        waiting = [self._inside(step, depth) for step in steps]
        while waiting:
            if self.rng.random() < 0.4:
                found.append(waiting.pop(0))
                continue
            length = self.rng.randint(1, len(waiting))
            taken, waiting = waiting[:length], waiting[length:]
            found.append(self._macro(taken, depth))
        return found

    def _inside(self, step: Any, depth: int) -> Any:
        """Return a step with macros in the steps of its branches."""
        branches = step["branch"].get("when") if isinstance(step, dict) and "branch" in step else None
        for each in branches.values() if isinstance(branches, dict) else branches or ():
            if isinstance(each, dict) and isinstance(each.get("steps"), list):
                each["steps"] = self._steps(each["steps"], depth)
        return step

    def _macro(self, steps: list, depth: int) -> Any:
        name = f"m{len(self.macros)}"
        definition = self.macros[name] = {"params": {}, "steps": []}
        arguments: dict = {}
        steps = [self._parts(step, "", definition["params"], arguments) for step in steps]
        definition["steps"] = self._steps(steps, depth + 1) if depth < 2 else steps
        return {name: arguments} if arguments else name

    def _parts(self, part: Any, option: str, params: dict, arguments: dict) -> Any:
        """Return a part of a step with parameters in place of some of its values."""
        if option == "steps" and self.rng.random() < 0.3:
            return self._hole(part, "steps", params, arguments)
        if option in ("with", "merge") and isinstance(part, list) and self.rng.random() < 0.3:
            return self._hole(part, "streams", params, arguments)
        if isinstance(part, dict):
            return {key: self._parts(value, key, params, arguments) for key, value in part.items()}
        if isinstance(part, list):
            return [self._parts(each, "", params, arguments) for each in part]
        if isinstance(part, str) and "${" in part:  # of the macro around this one
            whole = self.types.get(part[2:-1], "expression")
            return self._hole(part, whole, params, arguments)
        is_name = isinstance(part, str) and not option
        if part is None or is_name or self.rng.random() < 0.5:
            return part
        if option in EXPRESSIONS and isinstance(part, str):
            return self._operand(part, params, arguments)
        return self._hole(part, self._type(part, option), params, arguments)

    def _type(self, value: Any, option: str) -> str:
        if isinstance(value, bool):
            return "boolean"
        if isinstance(value, int | float):
            return "integer" if isinstance(value, int) else "number"
        return TYPES.get(option) or ("expression" if _parsed(value) is not None else "text")

    def _hole(self, value: Any, type_: str, params: dict, arguments: dict) -> str:
        name = f"p{self.parameters}"
        self.parameters += 1
        self.types[name] = type_
        if self.rng.random() < 0.2 and not (isinstance(value, str) and "${" in value) and type_ != "steps":
            params[name] = {"type": type_, "default": value}
        else:
            params[name] = type_
            arguments[name] = value
        return f"${{{name}}}"

    def _operand(self, text: str, params: dict, arguments: dict) -> str:
        """Return an expression with a parameter in place of one of its operands."""
        operands = _operands(text)
        if not operands:
            return text
        piece = self.rng.choice(operands)
        start = text.index(piece)
        before, after = text[:start], text[start + len(piece) :]
        in_brackets = before.endswith("(") and after.startswith(")")
        # Without its brackets, which the macro adds where they are needed.
        for left, right in [*([(before[:-1], after[1:])] if in_brackets else []), (before, after)]:
            whole, hole = _parsed(f"{left}_hole_{right}"), "Name(id='_hole_', ctx=Load())"
            # The first place of the same text may have another meaning.
            if whole and ast.dump(whole).replace(hole, ast.dump(_parsed(piece))) == ast.dump(_parsed(text)):
                return left + self._hole(piece, "expression", params, arguments) + right
        return text


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(f"({text}\n)", mode="eval").body
    except SyntaxError:
        return None


def _operands(text: str) -> list[str]:
    """Return the texts of parts of an expression that bind no names and are in no f-string."""
    tree = _parsed(text)
    found: list[str] = []
    waiting = [tree] if tree is not None else []
    closed = (
        ast.Lambda,
        ast.ListComp,
        ast.SetComp,
        ast.DictComp,
        ast.GeneratorExp,
        ast.JoinedStr,
        ast.Slice,
        ast.Starred,
    )
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.expr) and not isinstance(node, closed):
            piece = ast.get_source_segment(f"({text}\n)", node)
            if piece is not None and piece in text and not isinstance(getattr(node, "ctx", None), ast.Store):
                found.append(piece)
        if not isinstance(node, closed):
            called = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
            waiting += [child for child in ast.iter_child_nodes(node) if child is not called]
    return found
