"""Translates syntax trees to Python source: names, literals, operators. Calls and loops have modules of their own.

A construct without a method is a problem: the translator lists what is allowed, not what is forbidden.
"""

from __future__ import annotations

import ast

from streamkit.code import ADD, AND, ATOM, BIT_AND, BIT_OR, BIT_XOR, COMPARE, CONDITION, MULTIPLY, NOT, OR, SHIFT, UNARY
from streamkit.errors import LimitError
from streamkit.expressions.expression_limits import check_bits
from streamkit.expressions.translation.core import BUDGET, HELPERS
from streamkit.expressions.translation.piece import (
    DISPLAY,
    LAZY,
    NUMBERS,
    PRODUCES,
    SCALARS,
    WORK,
    Piece,
    flags_of,
    literal,
    refs_of,
)
from streamkit.expressions.translation.translate_calls import Calls
from streamkit.expressions.translation.translate_loops import Loops

_INLINE: dict[type[ast.AST], tuple[str, int]] = {
    ast.Add: ("+", ADD),
    ast.Sub: ("-", ADD),
    ast.Div: ("/", MULTIPLY),
    ast.FloorDiv: ("//", MULTIPLY),
    ast.RShift: (">>", SHIFT),
    ast.BitAnd: ("&", BIT_AND),
    ast.BitOr: ("|", BIT_OR),
    ast.BitXor: ("^", BIT_XOR),
}
_HELPED = {ast.Mult: "_x_mul", ast.Pow: "_x_pow", ast.LShift: "_x_shift", ast.Mod: "_x_mod"}
COMPARISONS = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}


class Translator(Calls, Loops):
    """Translates one expression, or one function's body: `translate`."""

    # -- leaves --

    def on_Constant(self, node: ast.Constant) -> Piece:
        if node.value is None or isinstance(node.value, (bool, float, str, bytes)):
            return literal(node.value)
        if isinstance(node.value, int):
            try:
                return literal(check_bits(node.value))
            except LimitError as error:
                return self.refuse(node, str(error))
        return self.refuse(node, f"a literal of type {type(node.value).__name__} is not allowed")

    def on_Name(self, node: ast.Name) -> Piece:
        local = self.scope.get(node.id)
        if local is not None:
            return Piece(local, refs=frozenset((local,)))
        if node.id in self.names and not node.id.startswith("_"):
            return self.record_name(node.id)
        return self.unknown_name(node)

    def on_JoinedStr(self, node: ast.JoinedStr) -> Piece:
        parts: list[Piece] = []
        inline: list[str] | None = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(literal(part.value))
                if inline is not None:
                    inline.append(repr(part.value))
                continue
            assert isinstance(part, ast.FormattedValue)
            piece, text = self._placeholder(part)
            parts.append(piece)
            inline = None if text is None or inline is None else [*inline, text]
        flags = flags_of(parts) | WORK
        if inline is not None:
            made = Piece(" ".join(inline) or "''", ATOM, "str", flags, refs_of(parts))
        else:
            call = self.helper("_x_text", *[part.at(CONDITION) for part in parts])
            made = Piece(call, ATOM, "str", flags | PRODUCES, refs_of(parts))
        return self.fold(node, made)

    def _placeholder(self, part: ast.FormattedValue) -> tuple[Piece, str | None]:
        piece = self.value(part.value)
        if part.format_spec is not None:
            return self.refuse(
                part.value,
                "a format specification (':…' in an f-string) is not allowed; round(number, 2) and the methods of text are",
            ), None
        if part.conversion in (ord("r"), ord("a")):
            name = "_x_repr" if part.conversion == ord("r") else "_x_ascii"
            return Piece(self.helper(name, piece.source), ATOM, "str", piece.flags | PRODUCES, piece.refs), None
        # Python 3.11 allows no quotes or backslashes inside; and large parts are limited by the helper.
        quiet = not any(mark in piece.source for mark in '"\\{}#') and not piece.refs & {"headers", "now"}
        if quiet and not piece.flags & (DISPLAY | PRODUCES):
            return piece, f'f"{{{piece.at(ATOM)}}}"'
        return piece, None

    # -- operators --

    def on_BinOp(self, node: ast.BinOp) -> Piece:
        if id(node) in self.numeric or isinstance(node.op, (ast.Sub, ast.Div, ast.FloorDiv)):
            self.expect_number(node.left, node.right)
        left, right = self.value_or_view(node.left), self.value_or_view(node.right)
        kind = _binary_kind(node.op, left, right)
        pieces = [left, right]
        flags, refs = flags_of(pieces), refs_of(pieces)
        inline = _INLINE.get(type(node.op))
        if inline is not None:
            sign, precedence = inline
            source = f"{left.at(precedence)} {sign} {right.at(precedence + 1)}"
            flags |= 0 if kind in NUMBERS else WORK
            made = Piece(source, precedence, kind, flags, refs)
            return self.fold(node, self.combined(node, made, left, right))
        helper = _HELPED.get(type(node.op))
        if helper is None:
            return self.refuse(node, "operator '@' is not allowed")
        if isinstance(node.op, (ast.Mult, ast.Mod)) and self._only_float(left, right, node.op):
            sign = "*" if isinstance(node.op, ast.Mult) else "%"
            source = f"{left.at(MULTIPLY)} {sign} {right.at(UNARY)}"
            return self.fold(node, Piece(source, MULTIPLY, kind, flags, refs))
        if helper == "_x_mul" and id(node) in self.numeric:
            made = Piece(self.helper("_x_times", left.source, right.source), ATOM, "number", flags, refs)
            return self.fold(node, made)
        call = self.helper(helper, left.source, right.source)
        if isinstance(node.op, ast.Mod) and _is_variable(left.source) and right.kind == "int":
            # The remainder of an integer is frequent, and faster without the call.
            sign = f"{left.source} % {right.at(UNARY)}"
            self.helpers.add("_x_Int")
            made = Piece(
                f"{sign} if {left.source}.__class__ is _x_Int else {call}", CONDITION, kind, flags | WORK, refs
            )
            return self.fold(node, made)
        made = Piece(call, ATOM, kind, flags, refs)
        if kind not in NUMBERS:
            made.flags |= PRODUCES
        return self.fold(node, made)

    def combined(self, node: ast.BinOp, made: Piece, left: Piece, right: Piece) -> Piece:
        """Return the piece of an operation that is the same in Python as in the file."""
        return made

    def _only_float(self, left: Piece, right: Piece, operator: ast.operator) -> bool:
        # A product with a float is a float or an error; '%' makes text only of text on the left.
        if isinstance(operator, ast.Mult):
            return "float" in (left.kind, right.kind)
        return left.kind in NUMBERS

    def value_or_view(self, node: ast.AST) -> Piece:
        """Visit an operand; a view of an object stays a view, since views of keys can be combined and compared."""
        piece = self.visit(node)
        if piece.flags & LAZY and piece.kind != "view":
            return self.value(node)
        return piece

    def on_UnaryOp(self, node: ast.UnaryOp) -> Piece:
        if not isinstance(node.op, ast.Not):
            self.expect_number(node.operand)
        operand = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            made = Piece(f"not {operand.at(NOT)}", NOT, "bool", flags_of([operand]), operand.refs)
        else:
            sign = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}[type(node.op)]
            kind = operand.kind if operand.kind in ("int", "float") else "number"
            made = Piece(f"{sign}{operand.at(UNARY)}", UNARY, kind, flags_of([operand]), operand.refs)
        return self.fold(node, made)

    def on_BoolOp(self, node: ast.BoolOp) -> Piece:
        pieces = [self.value(part) for part in node.values]
        word, precedence = ("and", AND) if isinstance(node.op, ast.And) else ("or", OR)
        source = f" {word} ".join(piece.at(precedence + 1) for piece in pieces)
        return self.fold(node, Piece(source, precedence, _common_kind(pieces), flags_of(pieces), refs_of(pieces)))

    def on_Compare(self, node: ast.Compare) -> Piece:
        pieces, work = [self.value_or_view(node.left)], 0
        for operator, operand in zip(node.ops, node.comparators, strict=True):
            member = isinstance(operator, (ast.In, ast.NotIn))
            work |= WORK if member else 0
            piece = self.visit(operand) if member else self.value_or_view(operand)
            if isinstance(operator, (ast.Is, ast.IsNot)) and not (
                isinstance(operand, ast.Constant) and (operand.value is None or isinstance(operand.value, bool))
            ):
                piece = self.refuse(operand, "'is' compares with None, True or False only; use '=='")
            pieces.append(piece)
        source, precedence = self.comparison(node, pieces)
        return self.fold(node, Piece(source, precedence, "bool", flags_of(pieces) | work, refs_of(pieces)))

    def comparison(self, node: ast.Compare, pieces: list[Piece]) -> tuple[str, int]:
        """Return the source of a comparison of pieces, and its precedence."""
        source = pieces[0].at(BIT_OR)
        for operator, piece in zip(node.ops, pieces[1:], strict=True):
            source += f" {COMPARISONS[type(operator)]} {piece.at(BIT_OR)}"
        return source, COMPARE

    def on_IfExp(self, node: ast.IfExp) -> Piece:
        if id(node) in self.numeric:
            self.expect_number(node.body, node.orelse)
        test, body, otherwise = self.value(node.test), self.value(node.body), self.value(node.orelse)
        pieces = [test, body, otherwise]
        source = f"{body.at(OR)} if {test.at(OR)} else {otherwise.at(CONDITION)}"
        kind = _common_kind([body, otherwise])
        return self.fold(node, Piece(source, CONDITION, kind, flags_of(pieces), refs_of(pieces)))

    # -- containers --

    def _elements(self, nodes: list[ast.expr], hashed: bool = False) -> tuple[list[Piece], list[str]]:
        pieces, sources = [], []
        for node in nodes:
            if isinstance(node, ast.Starred):
                piece = self.visit(node.value)
                sources.append(self.spread(piece))
            else:
                piece = self.hashed(self.value(node)) if hashed else self.value(node)
                sources.append(piece.at(CONDITION))
            pieces.append(piece)
        return pieces, sources

    def on_List(self, node: ast.List) -> Piece:
        pieces, sources = self._elements(node.elts)
        return self.fold(
            node, Piece(f"[{', '.join(sources)}]", ATOM, "list", flags_of(pieces) | DISPLAY, refs_of(pieces))
        )

    def on_Tuple(self, node: ast.Tuple) -> Piece:
        pieces, sources = self._elements(node.elts)
        text = ", ".join(sources) + ("," if len(sources) == 1 else "")
        return self.fold(node, Piece(f"({text})", ATOM, "tuple", flags_of(pieces) | DISPLAY, refs_of(pieces)))

    def on_Set(self, node: ast.Set) -> Piece:
        pieces, sources = self._elements(node.elts, hashed=True)
        source = f"{{{', '.join(sources)}}}"
        if any(isinstance(part, ast.Starred) for part in node.elts):
            source = self.helper("_x_set", f"[{', '.join(sources)}]")
        return self.fold(node, Piece(source, ATOM, "set", flags_of(pieces) | DISPLAY, refs_of(pieces)))

    def hashed(self, piece: Piece) -> Piece:
        """Return the piece of a key or of a member of a set."""
        return piece

    def on_Dict(self, node: ast.Dict) -> Piece:
        pieces, sources = [], []
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item)
            if key is None:
                sources.append(f"**{value.at(BIT_OR)}")
            else:
                name = self.hashed(self.value(key))
                pieces.append(name)
                sources.append(f"{name.at(CONDITION)}: {value.at(CONDITION)}")
            pieces.append(value)
        return self.fold(
            node, Piece(f"{{{', '.join(sources)}}}", ATOM, "dict", flags_of(pieces) | DISPLAY, refs_of(pieces))
        )

    # -- access --

    def on_Attribute(self, node: ast.Attribute) -> Piece:
        """`value.user` outside a call: the field of that name."""
        if node.attr.startswith("_"):
            self.visit(node.value)
            hint = "" if node.attr.startswith("__") else f'; a field of that name is ["{node.attr}"]'
            return self.refuse(node, f"{node.attr!r} begins with an underscore, which is not allowed{hint}")
        owner = self.value(node.value)
        if owner.kind in SCALARS or owner.kind in ("list", "tuple", "set"):
            what = "None" if owner.kind == "none" else f"a value of type {owner.kind}"
            return self.refuse(node, f"{what} has no fields, so no {node.attr!r}")
        return Piece(f"{owner.at(ATOM)}[{node.attr!r}]", ATOM, None, flags_of([owner]), owner.refs)

    def on_Subscript(self, node: ast.Subscript) -> Piece:
        owner = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            bounds = [node.slice.lower, node.slice.upper, node.slice.step]
            pieces = [None if bound is None else self.value(bound) for bound in bounds]
            texts = ["" if piece is None else piece.at(CONDITION) for piece in pieces]
            inside = ":".join(texts if pieces[2] is not None else texts[:2])
            used = [owner, *[piece for piece in pieces if piece is not None]]
            kind = owner.kind if owner.kind in ("str", "bytes", "list", "tuple") else None
            work = WORK
        else:
            if isinstance(node.slice, ast.Tuple) and any(isinstance(part, ast.Slice) for part in node.slice.elts):
                return self.refuse(node.slice, "one slice only")
            index, work = self.hashed(self.value(node.slice)), 0
            inside, used, kind = index.at(CONDITION), [owner, index], None
            if owner.kind in NUMBERS or (owner.kind in ("str", "list", "bytes", "tuple") and index.kind == "str"):
                return self.refuse(node, f"a value of type {owner.kind} has no field {inside}")
        made = Piece(f"{owner.at(ATOM)}[{inside}]", ATOM, kind, flags_of(used) | work, refs_of(used))
        return self.fold(node, made)


def _is_variable(source: str) -> bool:
    return source.strip("\0").isidentifier()


def _common_kind(pieces: list[Piece]) -> str | None:
    kinds = {piece.kind for piece in pieces}
    return kinds.pop() if len(kinds) == 1 else None


def _binary_kind(operator: ast.operator, left: Piece, right: Piece) -> str | None:
    kinds = (left.kind, right.kind)
    both = left.kind in NUMBERS and right.kind in NUMBERS
    either = left.kind in NUMBERS or right.kind in NUMBERS
    if isinstance(operator, ast.Div):
        return "float"
    if isinstance(operator, (ast.Pow, ast.LShift, ast.RShift)):
        return "number"
    if isinstance(operator, (ast.Mod, ast.Mult)) and not both:
        if isinstance(operator, ast.Mult) and "float" in kinds:
            return "float"
        return left.kind if isinstance(operator, ast.Mod) and left.kind in ("str", "bytes") else None
    if either:
        if both and kinds == ("int", "int"):
            return "int"
        return "float" if "float" in kinds else "number"
    if isinstance(operator, ast.FloorDiv):
        return "number"
    if isinstance(operator, ast.Add):
        return next((kind for kind in kinds if kind in ("str", "bytes", "list", "tuple")), None)
    return None


__all__ = ["BUDGET", "HELPERS", "Translator"]
