"""Comprehensions: their names, their cost, and which of them draw on the budget."""

from __future__ import annotations

import ast
from typing import Any

from streamkit.code import ATOM, CONDITION, OR
from streamkit.expressions.core import Core
from streamkit.expressions.limits import MAX_STEPS
from streamkit.expressions.piece import DISPLAY, LAZY, LOOPS, NUMBERS, PRODUCES, WORK, Piece, flags_of, refs_of


class Loops(Core):
    """The part of the translator that knows comprehensions."""

    def on_ListComp(self, node: ast.ListComp) -> Piece:
        return self._comprehension(node, [node.elt], "[", "]", "list")

    def on_SetComp(self, node: ast.SetComp) -> Piece:
        return self._comprehension(node, [node.elt], "{", "}", "set")

    def on_DictComp(self, node: ast.DictComp) -> Piece:
        return self._comprehension(node, [node.key, node.value], "{", "}", "dict")

    def on_GeneratorExp(self, node: ast.GeneratorExp) -> Piece:
        piece = self._comprehension(node, [node.elt], "(", ")", "iterator")
        piece.flags |= LAZY
        return piece

    def _comprehension(self, node: Any, results: list[ast.expr], opening: str, closing: str, kind: str) -> Piece:
        outer_scope, outer_product = self.scope, self.product
        self.scope = dict(outer_scope)
        clauses: list[tuple[str, Piece, list[Piece]]] = []
        bound: set[str] = set()
        file_driven = False
        try:
            for clause in node.generators:
                if clause.is_async:
                    self.refuse(clause.target, "'async' is not allowed")
                items = self.visit(clause.iter)
                length = self._known_length(clause.iter, items)
                file_driven |= length is not None
                if length is not None:
                    self.product *= max(length, 1)
                    if self.product > MAX_STEPS and length > 1:
                        items = self.refuse(clause.iter, f"these loops take more than {MAX_STEPS} steps")
                        self.product = 1
                self.depth += 1
                target = self.bind(clause.target, bound)
                clauses.append((target, items, [self.value(test) for test in clause.ifs]))
            elements = [self.value(result) for result in results]
        finally:
            self.depth -= len(clauses)
            self.scope, self.product = outer_scope, outer_product
        tests = [test for _, _, tests in clauses for test in tests]
        costly = flags_of(elements + tests) & (WORK | DISPLAY)
        heavy = self._is_heavy(clauses, elements, tests, bound) or bool(file_driven and costly)
        return self.fold(node, self._written(clauses, elements, bound, heavy, (opening, closing, kind)))

    def _written(
        self,
        clauses: list[tuple[str, Piece, list[Piece]]],
        elements: list[Piece],
        bound: set[str],
        heavy: bool,
        form: tuple[str, str, str],
    ) -> Piece:
        pieces = list(elements)
        loops = ""
        for target, items, tests in clauses:
            source = self.loop(items.source) if heavy else items.at(OR)
            loops += f" for {target} in {source}" + "".join(f" if {test.at(OR)}" for test in tests)
            pieces += [items, *tests]
        if heavy:
            elements = [piece if piece.kind in NUMBERS else self.charged(piece) for piece in elements]
        opening, closing, kind = form
        source = ": ".join(piece.at(CONDITION) for piece in elements)
        refs = refs_of(pieces) - bound
        return Piece(f"{opening}{source}{loops}{closing}", ATOM, kind, flags_of(pieces) | LOOPS | DISPLAY, refs)

    def _known_length(self, node: ast.expr, items: Piece) -> int | None:
        """Return how long an iterable is that the file alone decides; None where the record does."""
        calls = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
        has_range = any(isinstance(function, ast.Name) and function.id == "range" for function in calls)
        if items.constant and not items.is_literal:
            try:
                value = self.evaluate(items)
                return len(value) if hasattr(value, "__len__") else 1
            except Exception:
                return 1
        if items.is_literal:
            return len(items.literal) if isinstance(items.literal, (str, bytes)) else 1
        return 1 if has_range else None

    def _is_heavy(
        self,
        clauses: list[tuple[str, Piece, list[Piece]]],
        elements: list[Piece],
        tests: list[Piece],
        bound: set[str],
    ) -> bool:
        """Say whether a loop may do or make more than its input is long.

        One loop over a record's data can't, whose results come from its own element alone, or are numbers that are
        quickly computed.
        """
        inner = elements + tests
        if self.many or self.depth or self.in_function or len(clauses) > 1 or flags_of(inner) & (PRODUCES | LOOPS):
            return True
        if refs_of(inner) <= bound:
            return any(len(piece.source) > 1000 for piece in inner)
        return bool(flags_of(inner) & WORK) or any(piece.kind not in NUMBERS for piece in elements)
