"""Comprehensions: their names, and the number of iterations where it depends on the file alone."""

from __future__ import annotations

import ast
from typing import TypeAlias

from streamkit.code import ATOM, CONDITION, OR
from streamkit.expressions.analysis.value_kinds import is_safe_key
from streamkit.expressions.expression_limits import MAX_LOOPS
from streamkit.expressions.translation.core import Core
from streamkit.expressions.translation.piece import DISPLAY, LAZY, LOOPS, Piece, flags_of, refs_of

_Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class Loops(Core):
    """The translation of comprehensions."""

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

    def _comprehension(
        self, node: _Comprehension, results: list[ast.expr], opening: str, closing: str, kind: str
    ) -> Piece:
        outer_scope, outer_product = self.scope, self.product
        self.scope = dict(outer_scope)
        clauses: list[tuple[str, Piece, list[Piece]]] = []
        bound: set[str] = set()
        try:
            for clause in node.generators:
                if clause.is_async:
                    self.refuse(clause.target, "'async' is not allowed")
                items = self.visit(clause.iter)
                length = self._known_length(clause.iter, items)
                if length is not None:
                    self.product *= max(length, 1)
                    if self.product > MAX_LOOPS and length > 1:
                        items = self.refuse(clause.iter, f"these loops take more than {MAX_LOOPS} steps")
                        self.product = 1
                self.depth += 1
                target = self.bind(clause.target, bound)
                clauses.append((target, items, [self.value(test) for test in clause.ifs]))
            elements = [self.value(result) for result in results]
        finally:
            self.depth -= len(clauses)
            self.scope, self.product = outer_scope, outer_product
        return self.fold(node, self._written(clauses, elements, bound, (opening, closing, kind), results[0]))

    def _written(
        self,
        clauses: list[tuple[str, Piece, list[Piece]]],
        elements: list[Piece],
        bound: set[str],
        form: tuple[str, str, str],
        first: ast.expr,
    ) -> Piece:
        pieces = list(elements)
        loops = ""
        for target, items, tests in clauses:
            loops += f" for {target} in {self.loop(items).at(OR)}" + "".join(f" if {test.at(OR)}" for test in tests)
            pieces += [items, *tests]
        opening, closing, kind = form
        refs, flags = refs_of(pieces) - bound, flags_of(pieces) | LOOPS | DISPLAY
        elements = [self.element(piece) for piece in elements]
        if kind == "dict" and (self.counts or not is_safe_key(first)):
            pair = f"({', '.join(piece.at(CONDITION) for piece in elements)})"
            return Piece(self.helper("_x_dict", f"[{pair}{loops}]"), ATOM, kind, flags, refs)
        source = ": ".join(piece.at(CONDITION) for piece in elements)
        if kind == "set" and (self.counts or not is_safe_key(first)):
            return Piece(self.helper("_x_set", f"[{source}{loops}]"), ATOM, kind, flags, refs)
        return Piece(f"{opening}{source}{loops}{closing}", ATOM, kind, flags, refs)

    def _known_length(self, node: ast.expr, items: Piece) -> int | None:
        """Return the length of an iterable that depends on the file alone; None for one that depends on the record."""
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
