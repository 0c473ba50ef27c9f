"""The base of the translator: visiting, problems, constants, the budget and local names."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from time import thread_time
from typing import TYPE_CHECKING

from streamkit.code import ATOM, BIT_OR
from streamkit.errors import LimitError, Position, Problem, TimeLimitError
from streamkit.expressions.checked_expression import Link
from streamkit.expressions.evaluation.budget import Budget
from streamkit.expressions.evaluation.counting import COUNTING
from streamkit.expressions.evaluation.helpers import HELPERS as _BUILTIN_HELPERS
from streamkit.expressions.expression_limits import MAX_SECONDS, MAX_TOTAL, deep_size
from streamkit.expressions.library.function_table import LIBRARY
from streamkit.expressions.methods import METHOD_HELPERS
from streamkit.expressions.translation.piece import IMPURE, LAZY, PRODUCES, Piece, literal
from streamkit.record import Value

if TYPE_CHECKING:
    from streamkit.expressions.functions import Linked

HELPERS: dict[str, Callable[..., Value]] = {
    **_BUILTIN_HELPERS,
    **METHOD_HELPERS,
    **{f"_x_{each.name}": each.run for each in LIBRARY.values()},
    **COUNTING,
}

BUDGET = "_y_b"
_FOLDED = 200
"""Characters up to which the value of a constant part replaces its source."""

_WORDS = {
    "NamedExpr": "':=' assigns",
    "Await": "'await'",
    "Yield": "'yield'",
    "YieldFrom": "'yield'",
    "Lambda": "a lambda (it can be an argument of a call)",
    "Starred": "'*' (it can be in calls, lists, tuples and sets)",
    "MatMult": "operator '@'",
}


class Core:
    """The state of a translation, and the methods that all constructs need; it collects problems."""

    counts = False
    """Whether the translation charges a record's budget."""

    def __init__(
        self,
        names: tuple[str, ...],
        functions: Mapping[str, Linked],
        place: Callable[[ast.AST], Position],
        scope: Mapping[str, str] | None = None,
    ):
        self.names = names
        self.functions = functions
        self.place = place
        self.scope: dict[str, str] = dict(scope or {})
        self.depth = 0
        self.product = 1
        self.problems: list[Problem] = []
        self.helpers: set[str] = set()
        self.links: dict[str, Link] = {}
        self.calls = 0
        self.uses_budget = False
        self.numeric: set[int] = set()
        self._locals = 0
        self._seconds = MAX_SECONDS
        self._constant_bytes = 0

    # -- entry --

    def translate(self, tree: ast.expr) -> Piece:
        """Return the piece of a whole expression: plain data, and constant where it can be."""
        return self.value(tree)

    def value(self, node: ast.AST) -> Piece:
        """Visit a part whose result is kept: an iterator or a view becomes a list."""
        piece = self.visit(node)
        if piece.flags & LAZY:
            made = Piece(self.helper("_x_list", piece.source), ATOM, "list", piece.flags & ~LAZY, piece.refs)
            return self.fold(node, made)
        return piece

    def visit(self, node: ast.AST) -> Piece:
        """Translate any part, or add a problem where the language does not have it."""
        method = getattr(self, f"on_{type(node).__name__}", None)
        if method is None:
            return self.refuse(node, f"{_WORDS.get(type(node).__name__, type(node).__name__)} is not allowed here")
        piece: Piece = method(node)
        return piece

    # -- problems and constants --

    def refuse(self, node: ast.AST, message: str) -> Piece:
        """Add a problem; return a piece, so that the rest of the expression is checked too."""
        self.problems.append(Problem(self.place(node), message))
        return Piece("None", ATOM, None, IMPURE)

    def helper(self, name: str, *arguments: str) -> str:
        """Return the source of a call of a helper."""
        self.helpers.add(name)
        return f"{name}({', '.join(arguments)})"

    def evaluate(self, piece: Piece) -> Value:
        """Return the value of a constant piece, within the same bounds as at run time."""
        start = thread_time()
        environment: dict[str, object] = {
            **HELPERS,
            "__builtins__": {},
            BUDGET: Budget(seconds=max(self._seconds, 0.1)),
        }
        for link in self.links.values():
            if link.source is not None:
                environment[link.name] = eval(link.source, environment)
        try:
            return eval(piece.source, environment)
        finally:
            self._seconds -= thread_time() - start

    def fold(self, node: ast.AST, piece: Piece) -> Piece:
        """Evaluate a constant piece: beyond a bound it is a problem, and a small scalar replaces its source."""
        if not piece.constant or piece.is_literal or piece.flags & LAZY:
            return piece
        try:
            value = self.evaluate(piece)
            if piece.flags & PRODUCES:
                self._constant_bytes += deep_size(value, MAX_TOTAL)
                if self._constant_bytes > MAX_TOTAL:
                    raise LimitError(f"constant parts of over {MAX_TOTAL} bytes together")
        except TimeLimitError:
            # Whether an expression is valid must not depend on the machine: the record's budget limits it at run time.
            piece.flags |= IMPURE
            return piece
        except LimitError as error:
            return self.refuse(node, str(error))
        except (MemoryError, RecursionError):
            return self.refuse(node, "the expression is too large")
        except Exception:
            # The expression fails for every record; the step's error handling decides at run time.
            piece.flags |= IMPURE
            return piece
        if value is None or type(value) in (bool, int, str, bytes) or (type(value) is float and value - value == 0):
            folded = literal(value)
            if len(folded.source) <= _FOLDED:
                return folded
        return piece

    def record_name(self, name: str) -> Piece:
        """Return the piece of a name that the record binds."""
        if name == "headers":
            return Piece("(\0headers\0 or [])", kind="list", refs=frozenset(("headers",)))
        kind = "random" if name == "random" else None
        return Piece(f"\0{name}\0", kind=kind, refs=frozenset((name,)))

    def spread(self, piece: Piece) -> str:
        """Return the source of a `*` and its operand."""
        return f"*{piece.at(BIT_OR)}"

    def element(self, piece: Piece) -> Piece:
        """Return the piece of a comprehension's element, or of a lambda's result."""
        return piece

    def expect_number(self, *nodes: ast.expr) -> None:
        """Record that parts must be numbers, so that products there can't be long texts or lists."""
        for node in nodes:
            if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.IfExp)):
                self.numeric.add(id(node))

    # -- names of their own --

    def bind(self, target: ast.expr, bound: set[str]) -> str:
        """Give a loop's names unique local names, and return the source of the target."""
        if isinstance(target, ast.Name):
            if target.id.startswith("_"):
                self.refuse(target, f"{target.id!r} begins with an underscore, which is not allowed")
            local = self.new_local()
            self.scope[target.id] = local
            bound.add(local)
            return local
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = ", ".join(self.bind(part, bound) for part in target.elts)
            return f"({parts},)" if target.elts else "()"
        if isinstance(target, ast.Starred):
            return f"*{self.bind(target.value, bound)}"
        self.refuse(target, "a loop binds plain names only")
        return self.new_local()

    def new_local(self) -> str:
        """Return a variable name that is used nowhere else in the expression."""
        self._locals += 1
        return f"_y_{self._locals}"

    def loop(self, piece: Piece) -> Piece:
        """Return the piece of a loop's iterable."""
        return piece
