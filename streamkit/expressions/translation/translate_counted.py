"""Translation to Python with charges to a record's budget: the same results, with a charge for work and for results.

It replaces `Translator` for expressions whose values may be large, or which may take long. Functions of `counting` replace
those of `helpers`.
"""

from __future__ import annotations

import ast

from streamkit.code import ATOM, CONDITION, NOT
from streamkit.expressions.evaluation.counting import COUNTING
from streamkit.expressions.methods import VIEWS
from streamkit.expressions.translation.core import BUDGET
from streamkit.expressions.translation.piece import LAZY, NUMBERS, PRODUCES, SCALARS, WORK, Piece, flags_of, refs_of
from streamkit.expressions.translation.translate import COMPARISONS, Translator

_SHORT = 100
"""Characters of a literal up to which a comparison is not charged."""


class CountedTranslator(Translator):
    """Translates one expression, or one function's body, with charges."""

    counts = True

    # -- Methods of Core that charge --

    def helper(self, name: str, *arguments: str) -> str:
        counting = name.replace("_x_m_", "_x_").replace("_x_", "_x_k_", 1)
        if name == "_x_m_join" or (counting in COUNTING and not name.startswith("_x_m_")):
            self.helpers.add(counting)
            return f"{counting}({', '.join((self.budget(), *arguments))})"
        if name.startswith("_x_m_"):
            self.helpers.add("_x_k_method")
            return f"_x_k_method({', '.join((self.budget(), repr(name[5:]), *arguments))})"
        return super().helper(name, *arguments)

    def budget(self) -> str:
        """Return the name of the budget, which the expression now needs."""
        self.uses_budget = True
        return BUDGET

    def charged(self, piece: Piece) -> Piece:
        if piece.is_literal or piece.flags & LAZY:
            return piece
        return Piece(f"{self.budget()}.item({piece.source})", ATOM, piece.kind, piece.flags, piece.refs)

    def spread(self, piece: Piece) -> str:
        return f"*{self.budget()}.spread({piece.source})"

    def loop(self, piece: Piece) -> Piece:
        return Piece(f"{self.budget()}.loop({piece.source})", ATOM, piece.kind, piece.flags, piece.refs)

    def hashed(self, piece: Piece) -> Piece:
        """Return the piece of a key or a member, with a charge where it may be a tuple."""
        if piece.is_literal or piece.kind in SCALARS:
            return piece
        return Piece(f"{self.budget()}.key({piece.source})", ATOM, piece.kind, piece.flags, piece.refs)

    # -- Constructs with large results or much work --

    def on_JoinedStr(self, node: ast.JoinedStr) -> Piece:
        parts = [self._part(part) for part in node.values]
        source = self.helper("_x_text", *[part.at(CONDITION) for part in parts])
        return self.fold(node, Piece(source, ATOM, "str", flags_of(parts) | WORK | PRODUCES, refs_of(parts)))

    def _part(self, part: ast.expr) -> Piece:
        if isinstance(part, ast.FormattedValue):
            return self._placeholder(part)[0]
        return self.visit(part)

    def combined(self, node: ast.BinOp, made: Piece, left: Piece, right: Piece) -> Piece:
        if isinstance(node.op, ast.FloorDiv):
            return Piece(self.helper("_x_div", left.source, right.source), ATOM, made.kind, made.flags, made.refs)
        if made.kind in NUMBERS or isinstance(node.op, (ast.Div, ast.RShift)):
            return made
        return self.charged(made)

    def comparison(self, node: ast.Compare, pieces: list[Piece]) -> tuple[str, int]:
        if len(pieces) > 2:
            self._chain(node, pieces)
            return super().comparison(node, pieces)
        operator, (left, right) = node.ops[0], pieces
        if isinstance(operator, (ast.In, ast.NotIn)):
            found = self.helper("_x_in", left.at(CONDITION), right.at(CONDITION))
            return (f"not {found}", NOT) if isinstance(operator, ast.NotIn) else (found, ATOM)
        short = any(piece.is_literal and len(str(piece.literal)) < _SHORT for piece in pieces)
        if short or isinstance(operator, (ast.Is, ast.IsNot)) or left.kind in NUMBERS or right.kind in NUMBERS:
            return super().comparison(node, pieces)
        sign = repr(COMPARISONS[type(operator)])
        return self.helper("_x_compare", sign, left.at(CONDITION), right.at(CONDITION)), ATOM

    def _chain(self, node: ast.Compare, pieces: list[Piece]) -> None:
        """Charge for all operands of a chain; it evaluates each of them once, up to the first comparison that is false."""
        for at, piece in enumerate(pieces):
            member = at > 0 and isinstance(node.ops[at - 1], (ast.In, ast.NotIn))
            if piece.flags & LAZY and piece.kind != "view":
                pieces[at] = self.loop(piece)
            elif not (piece.is_literal or piece.kind in NUMBERS or (member and piece.kind == "view")):
                source = f"{self.budget()}.weigh({piece.source})"
                pieces[at] = Piece(source, ATOM, piece.kind, piece.flags, piece.refs)

    def on_List(self, node: ast.List) -> Piece:
        return self._display(node, super().on_List(node))

    def on_Tuple(self, node: ast.Tuple) -> Piece:
        return self._display(node, super().on_Tuple(node))

    def on_Set(self, node: ast.Set) -> Piece:
        return self._display(node, super().on_Set(node))

    def on_Dict(self, node: ast.Dict) -> Piece:
        return self._display(node, super().on_Dict(node))

    def _display(self, node: ast.AST, made: Piece) -> Piece:
        return made if made.constant else self.charged(made)

    def on_Subscript(self, node: ast.Subscript) -> Piece:
        made = super().on_Subscript(node)
        return self.charged(made) if isinstance(node.slice, ast.Slice) and not made.constant else made

    def element(self, piece: Piece) -> Piece:
        return piece if piece.kind in NUMBERS else self.charged(piece)

    def method_call(self, receiver: Piece, name: str, sources: list[str]) -> str:
        if name in VIEWS:
            return super().method_call(receiver, name, sources)
        self.helpers.add("_x_k_method")
        return f"_x_k_method({', '.join((self.budget(), repr(name), receiver.at(CONDITION), *sources))})"
