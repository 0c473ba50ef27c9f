"""Translates syntax trees to Python source, with and without charges to a record's budget.

A construct without a method is a problem: the translator lists the allowed constructs, not the forbidden ones.
"""

from __future__ import annotations

import ast
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from time import thread_time
from types import MappingProxyType
from typing import TypeAlias

from streamkit.code import (
    ADD,
    AND,
    ATOM,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    COMPARE,
    CONDITION,
    MULTIPLY,
    NOT,
    OR,
    SHIFT,
    UNARY,
    Code,
)
from streamkit.errors import LimitError, Position, Problem, TimeLimitError
from streamkit.expressions import regex
from streamkit.expressions.budget import (
    MAX_CALLS,
    MAX_LOOPS,
    MAX_SECONDS,
    MAX_TOTAL,
    OPERATION,
    ROUND,
    Budget,
    check_bits,
    deep_size,
)
from streamkit.expressions.calls import CallableRef, FunctionCall
from streamkit.expressions.counting import COUNTING
from streamkit.expressions.expression import HELPERS, Function, Link, Linked
from streamkit.expressions.function_entry import LibraryFunction
from streamkit.expressions.function_table import BUILT_IN, LIBRARY
from streamkit.expressions.growth import is_safe_key
from streamkit.expressions.helpers import ALLOWED, BY_KIND, GUARDED, HASHING, MUTATING, RESULT_KINDS, VIEWS
from streamkit.expressions.syntax import METHODS, MODULES, NAMES, Source
from streamkit.record import Value
from streamkit.suggestions import did_you_mean, number_of

# The base of the translator: visiting, problems, constants, the budget and local names.

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
        functions: Library,
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
        self._once: set[int] = set()
        self._seconds = MAX_SECONDS
        self._constant_bytes = 0

    # -- entry --

    def translate(self, tree: ast.expr) -> Piece:
        """Return the piece of a whole expression: plain data, and constant if it can be."""
        return self.value(tree)

    def value(self, node: ast.AST) -> Piece:
        """Visit a part whose result is kept: an iterator or a view becomes a list."""
        piece = self.visit(node)
        if piece.flags & LAZY:
            listed = Piece(self.helper("_x_list", piece.source), ATOM, "list", piece.flags & ~LAZY, piece.refs)
            return self.fold(node, listed)
        return piece

    def visit(self, node: ast.AST) -> Piece:
        """Translate any part, or add a problem if the language does not have it."""
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

    def operations(self, node: ast.AST) -> int:
        """Return the number of operations in a part that take time, without those in its loops and lambdas."""
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            return self.operations(node.generators[0].iter)
        if isinstance(node, ast.Lambda):
            return 0
        own = int(isinstance(node, (ast.BinOp, ast.Call, ast.Compare, ast.JoinedStr)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.functions:
            own += self.functions[node.func.id].operations
        return own + sum(map(self.operations, ast.iter_child_nodes(node)))

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

    def worked(self, piece: Piece, operations: int) -> Piece:
        """Return the piece of a lambda's result, which takes some operations."""
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

    def loop(self, piece: Piece, operations: int = 0) -> Piece:
        """Return the piece of a loop's iterable; each iteration has some operations."""
        return piece


# Calls: built-in functions, the file's functions, methods, and lambdas as their arguments.

FUNCTIONS = [*BUILT_IN, *LIBRARY]
_KINDS = {
    **{name: name for name in ("int", "float", "str", "bool", "list", "dict", "tuple", "set")},
    **{"len": "int", "any": "bool", "all": "bool", "sorted": "list", "abs": "number", "round": "number"},
    **{"re_match": "bool", "re_split": "list", "merge": "dict"},
}
_READ_LAZILY = frozenset(
    ["min", "max", "sum", "sorted", "any", "all", "list", "dict", "tuple", "set", "zip", "enumerate"]
)
"""Functions that read an iterator once, so that it need not become a list before."""
_COUNTS = {"abs": (1, 1), "all": (1, 1), "any": (1, 1), "len": (1, 1), "range": (1, 3), "sorted": (1, 1), "sum": (1, 2)}
"""The minimum and maximum number of positional arguments of functions that have both."""
_QUICK = frozenset(("len", "abs", "round", "float", "bool"))
_KEYS = frozenset(("sorted", "min", "max"))
_AS_KEY = frozenset(FUNCTIONS[: FUNCTIONS.index("zip")]) - {"sorted"}
"""The functions of one value by Python's rules, which may be the key of `sorted`, `min` and `max` without a call of their own."""


class Calls(Core):
    """The translation of calls."""

    def on_Call(self, node: ast.Call) -> Piece:
        if isinstance(node.func, ast.Attribute):
            return self._method(node, node.func)
        if not isinstance(node.func, ast.Name):
            self._arguments(node, "")
            return self.refuse(node, "only functions by name and methods can be called")
        name = node.func.id
        if name in self.scope or (name in self.names and name not in FUNCTIONS):
            self._arguments(node, "")
            return self.refuse(node.func, f"{name!r} is a value and can't be called")
        function = self.functions.get(name)
        if function is not None:
            return self._function(node, function)
        if name in LIBRARY:
            return self._from_library(node, LIBRARY[name])
        if name in FUNCTIONS:
            return self._builtin(node, name)
        self._arguments(node, "")
        return self.unknown_name(node.func, called=True)

    def unknown_name(self, node: ast.Name, called: bool = False) -> Piece:
        """Add a problem about a name that the language or this place does not have."""
        name = node.id
        if not called and (name in FUNCTIONS or name in self.functions):
            return self.refuse(node, f"{name!r} is a function and can only be called")
        if name.startswith("_"):
            return self.refuse(node, f"{name!r} begins with an underscore, which is not allowed")
        if name in NAMES and not called:
            return self.refuse(
                node, f"unknown name {name!r}; write {NAMES[name]!r}, or put it in quotes where it is text"
            )
        if name in MODULES and not called:
            message = f"unknown name {name!r}; expressions can't import modules: write a Python function, and 'call' it"
            return self.refuse(node, message)
        functions = [*FUNCTIONS, *self.functions]
        values = [*self.names, *self.scope]
        hint = did_you_mean(name, functions if called else values) or did_you_mean(name, [*functions, *values])
        shown = f" (there are: {', '.join(values)})" if values and not called and len(values) < 12 else ""
        return self.refuse(node, f"unknown {'function' if called else 'name'} {name!r}{hint}{shown}")

    # -- arguments --

    def _arguments(self, node: ast.Call, name: str, lambdas: bool = False) -> tuple[list[Piece], list[str]]:
        """Return pieces and sources of all arguments, those with a keyword last."""
        pieces: list[Piece] = []
        sources: list[str] = []
        for argument in node.args:
            star = isinstance(argument, ast.Starred)
            inner = argument.value if isinstance(argument, ast.Starred) else argument
            if star or name in _READ_LAZILY:
                piece = self.visit(inner)
            elif lambdas and isinstance(inner, ast.Lambda):
                piece = self._lambda(inner)
            else:
                piece = self.value(inner)
            pieces.append(piece)
            sources.append(self.spread(piece) if star else piece.at(CONDITION))
        for keyword in node.keywords:
            piece = self._keyword(keyword, name, lambdas)
            pieces.append(piece)
            sources.append(f"{keyword.arg}={piece.at(CONDITION)}")
        return pieces, sources

    def _keyword(self, keyword: ast.keyword, name: str, lambdas: bool) -> Piece:
        if keyword.arg is None:
            self.visit(keyword.value)
            return self.refuse(keyword.value, "'**' is not allowed in a call; use merge() or {**…}")
        if name == "merge":
            self.visit(keyword.value)
            return self.refuse(
                keyword.value, f"merge() takes objects: write {{{keyword.arg!r}: …}}, not {keyword.arg}=…"
            )
        if keyword.arg.startswith("_"):
            return self.refuse(keyword.value, f"{keyword.arg!r} begins with an underscore, which is not allowed")
        if name in _KEYS and keyword.arg == "key":
            return self._key_function(keyword.value)
        if lambdas and isinstance(keyword.value, ast.Lambda):
            return self._lambda(keyword.value)
        return self.value(keyword.value)

    def _key_function(self, node: ast.expr) -> Piece:
        if isinstance(node, ast.Lambda):
            return self._lambda(node)
        if isinstance(node, ast.Constant) and node.value is None:
            return self.value(node)
        if isinstance(node, ast.Name) and node.id in _AS_KEY and node.id not in self.scope:
            self.helpers.add(f"_x_{node.id}")
            return Piece(f"_x_{node.id}")
        return self.refuse(node, "'key' takes a lambda, or a built-in function such as len, by name")

    def _lambda(self, node: ast.Lambda) -> Piece:
        parameters = node.args
        plain = [*parameters.posonlyargs, *parameters.args]
        if parameters.vararg or parameters.kwarg or parameters.kwonlyargs or parameters.defaults:
            return self.refuse(node, "a lambda takes plain parameters only, without defaults")
        outer, bound = self.scope, set[str]()
        self.scope = dict(outer)
        names = [self.bind(ast.copy_location(ast.Name(argument.arg), argument), bound) for argument in plain]
        self.depth += 1
        body = self.value(node.body)
        self.depth -= 1
        self.scope = outer
        body = self.worked(self.element(body), self.operations(node.body))
        source = f"lambda {', '.join(names)}: {body.at(CONDITION)}"
        return Piece(source, CONDITION, None, flags_of([body]) | LOOPS, body.refs - bound)

    # -- built-in functions --

    def _builtin(self, node: ast.Call, name: str) -> Piece:
        if name == "now":
            if node.args or node.keywords:
                self.refuse(node, "now() takes no arguments")
            return Piece("\0now\0()", ATOM, "int", IMPURE, frozenset(("now",)))
        if name in ("abs", "round") or (name == "sum" and len(node.args) == 1 and not node.keywords):
            for argument in node.args:
                loop = isinstance(argument, (ast.GeneratorExp, ast.ListComp))
                self.expect_number(argument.elt if loop else argument)  # type: ignore[attr-defined]
        pieces, sources = self._arguments(node, name)
        least, most = _COUNTS.get(name, (0, len(node.args)))
        if not least <= len(node.args) <= most and not any(isinstance(argument, ast.Starred) for argument in node.args):
            expected = number_of(least, "argument") if least == most else f"{least} to {most} arguments"
            return self.refuse(node, f"{name}() takes {expected}, {len(node.args)} given")
        if name in ("header", "re_match", "re_split"):
            wanted = 1 if name == "header" else 2
            if (
                len(pieces) != wanted
                or node.keywords
                or any(isinstance(argument, ast.Starred) for argument in node.args)
            ):
                return self.refuse(node, f"{name}() takes {number_of(wanted, 'argument')}")
        if name == "header":
            if "headers" not in self.names:
                return self.refuse(node, "header() is not available here, where there are no headers")
            pieces.insert(0, self.record_name("headers"))
            sources.insert(0, pieces[0].source)
        elif name.startswith("re_"):
            self._check_pattern(node.args[0], pieces[0])
        flags, refs = flags_of(pieces), refs_of(pieces)
        kind = _KINDS.get(name)
        if name in ("zip", "enumerate", "range"):
            flags |= LAZY
            kind = "iterator"
        if name == "range" or (name == "sum" and len(pieces) > 1):
            flags |= PRODUCES
        if name not in _QUICK:
            flags |= WORK
        if name == "round" and len(pieces) == 1:
            kind = "int"
        result = Piece(self.helper(f"_x_{name}", *sources), ATOM, kind, flags, refs)
        return self._checked(node, result)

    def _from_library(self, node: ast.Call, function: LibraryFunction) -> Piece:
        pieces, sources = self._arguments(node, function.name)
        most = len(function.parameters)
        starred = any(isinstance(argument, ast.Starred) for argument in node.args)
        if node.keywords or starred or not most - function.optional <= len(pieces) <= most:
            return self.refuse(node, f"{function.signature} takes {function.takes}, by position")
        for at, check in function.checks.items():
            if at < len(pieces) and pieces[at].constant:
                try:
                    check(self.evaluate(pieces[at]))
                except (ValueError, TypeError) as error:
                    return self.refuse(node.args[at], str(error))
        flags, refs = flags_of(pieces) | WORK | PRODUCES, refs_of(pieces)
        result = Piece(self.helper(f"_x_{function.name}", *sources), ATOM, function.kind, flags, refs)
        return self.fold(node, result)

    def _checked(self, node: ast.Call, result: Piece) -> Piece:
        """Fold a constant call; a constant iterator is evaluated, but not replaced."""
        if result.flags & LAZY and result.constant:
            tried = self.fold(node, Piece(result.source, ATOM, None, result.flags & ~LAZY))
            return result if not tried.flags & IMPURE else tried
        return self.fold(node, result)

    def _check_pattern(self, node: ast.expr, piece: Piece) -> None:
        if not piece.constant:
            return
        try:
            regex.compiled(self.evaluate(piece))
        except regex.PatternError as error:
            self.refuse(node, str(error))

    # -- functions of the file --

    def _function(self, node: ast.Call, function: Linked) -> Piece:
        pieces, sources = self._arguments(node, "", lambdas=function.call is not None)
        flags, refs = flags_of(pieces), refs_of(pieces)
        if function.broken:
            self.problems += [problem for problem in function.problems if problem not in self.problems]
            return Piece("None", ATOM, None, IMPURE)
        self.links.update((link.name, link) for link in function.links)
        self.helpers |= function.helpers
        if function.call is not None:
            self._note_call(node, function.call)
            return Piece(f"{function.name}({', '.join(sources)})", ATOM, None, flags | IMPURE | LOOPS, refs)
        ordered = self._in_order(node, function.params, sources)
        if ordered is None:
            return Piece("None", ATOM, None, IMPURE)
        self.calls += function.cost
        if self.calls > MAX_CALLS:
            self.calls = 0
            return self.refuse(node, f"functions that amount to more than {MAX_CALLS} calls")
        hidden = sorted(function.names)
        if "headers" in hidden and "headers" not in self.names:
            name = node.func.id  # type: ignore[attr-defined]
            return self.refuse(node, f"{name!r} reads headers, which are not available here")
        ordered += [f"\0{name}\0" for name in hidden]
        if function.uses_budget:
            self.uses_budget = True
            ordered.append(BUDGET)
        flags |= function.flags | LOOPS
        result = Piece(f"{function.name}({', '.join(ordered)})", ATOM, function.kind, flags, refs | set(hidden))
        return self.fold(node, result)

    def _note_call(self, node: ast.Call, ref: CallableRef) -> None:
        """Note the call of a Python function, whose arguments the reader of the file checks."""
        if not any(isinstance(argument, ast.Starred) for argument in node.args):
            names = tuple(keyword.arg for keyword in node.keywords if keyword.arg is not None)
            name: str = node.func.id  # type: ignore[attr-defined]
            self.functions.calls.append(FunctionCall(ref, name, len(node.args), names, self.place(node)))

    def _in_order(self, node: ast.Call, params: tuple[str, ...], sources: list[str]) -> list[str] | None:
        """Return the arguments of a function of the file by position, or None after adding a problem."""
        name = node.func.id  # type: ignore[attr-defined]
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                self.refuse(argument, "'*' is not allowed in a call of a function of the file")
                return None
        count = len(node.args)
        named = {
            keyword.arg: source.partition("=")[2]
            for keyword, source in zip(node.keywords, sources[count:], strict=True)
        }
        missing = [param for param in params[count:] if param not in named]
        unknown = [keyword for keyword in named if keyword not in params[count:]]
        if count > len(params) or missing or unknown:
            shown = ", ".join(params)
            self.refuse(node, f"{name}({shown}) takes {number_of(len(params), 'argument')}, {count + len(named)} given")
            return None
        return [*sources[:count], *[named[param] for param in params[count:]]]

    # -- methods --

    def _method(self, node: ast.Call, function: ast.Attribute) -> Piece:
        receiver = self.value(function.value)
        pieces, sources = self._arguments(node, "sum" if function.attr == "join" else "")
        name = function.attr
        problem = self._method_problem(receiver, name)
        if problem:
            return self.refuse(function, problem)
        pieces.append(receiver)
        flags, refs = flags_of(pieces) | (0 if name == "get" else WORK), refs_of(pieces)
        kind = RESULT_KINDS.get(name)
        if kind is None and receiver.kind == "str" and name in ("lower", "upper", "strip", "replace", "join", "title"):
            kind = "str"
        if name in GUARDED:
            result = Piece(self.helper(f"_x_m_{name}", receiver.source, *sources), ATOM, kind, flags | PRODUCES, refs)
            return self.fold(node, result)
        result = Piece(self.method_call(receiver, name, sources), ATOM, kind, flags, refs)
        if name in VIEWS:
            result.kind = "view"
            result.flags |= LAZY
            return result
        return self.fold(node, result)

    def method_call(self, receiver: Piece, name: str, sources: list[str]) -> str:
        """Return the source of a method call whose result is not larger than its arguments."""
        if name in HASHING:
            return self.helper(f"_x_h_{name}", receiver.source, *sources)
        return f"{receiver.at(ATOM)}.{name}({', '.join(sources)})"

    def _method_problem(self, receiver: Piece, name: str) -> str | None:
        if name.startswith("_"):
            return f"{name!r} begins with an underscore, which is not allowed"
        if name in ("format", "format_map"):
            return f"method {name!r} is not allowed; use an f-string"
        if name in MUTATING:
            return f"method {name!r} changes its object and is not allowed; build a new one"
        kind = receiver.kind if receiver.kind in BY_KIND else None
        allowed = BY_KIND[kind] if kind else ALLOWED
        if name in allowed:
            return None
        hint = f"; write {METHODS[name]!r}" if name in METHODS else did_you_mean(name, sorted(allowed))
        return f"unknown method {name!r}{f' of a {kind}' if kind else ''}{hint}"


# Comprehensions: their names, and the number of iterations if it depends on the file alone.

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
        operations = sum(self.operations(part) for part in (*results, *node.generators[-1].ifs))
        form = opening, closing, kind
        return self.fold(node, self._written(clauses, elements, bound, form, results[0], operations))

    def _written(
        self,
        clauses: list[tuple[str, Piece, list[Piece]]],
        elements: list[Piece],
        bound: set[str],
        form: tuple[str, str, str],
        first: ast.expr,
        operations: int,
    ) -> Piece:
        pieces = list(elements)
        loops = ""
        for at, (target, items, tests) in enumerate(clauses, 1):
            source = self.loop(items, operations if at == len(clauses) else 0).at(OR)
            loops += f" for {target} in {source}" + "".join(f" if {test.at(OR)}" for test in tests)
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
_OF_SETS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
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
            result = Piece(" ".join(inline) or "''", ATOM, "str", flags, refs_of(parts))
        else:
            call = self.helper("_x_text", *[part.at(CONDITION) for part in parts])
            result = Piece(call, ATOM, "str", flags | PRODUCES, refs_of(parts))
        return self.fold(node, result)

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
            if "view" in (left.kind, right.kind) and type(node.op) in _OF_SETS:
                left, right = self._hashed(left), self._hashed(right)
            source = f"{left.at(precedence)} {sign} {right.at(precedence + 1)}"
            flags |= 0 if kind in NUMBERS else WORK
            result = Piece(source, precedence, kind, flags, refs)
            return self.fold(node, self.combined(node, result, left, right))
        helper = _HELPED.get(type(node.op))
        if helper is None:
            return self.refuse(node, "operator '@' is not allowed")
        if isinstance(node.op, (ast.Mult, ast.Mod)) and self._only_float(left, right, node.op):
            sign = "*" if isinstance(node.op, ast.Mult) else "%"
            source = f"{left.at(MULTIPLY)} {sign} {right.at(UNARY)}"
            return self.fold(node, Piece(source, MULTIPLY, kind, flags, refs))
        if helper == "_x_mul" and id(node) in self.numeric:
            result = Piece(self.helper("_x_times", left.source, right.source), ATOM, "number", flags, refs)
            return self.fold(node, result)
        call = self.helper(helper, left.source, right.source)
        if (
            isinstance(node.op, ast.Mod)
            and _is_variable(left.source)
            and right.kind == "int"
            and (right.is_literal or not self.counts)
        ):
            # The remainder of an integer is frequent, and faster without the call.
            sign = f"{left.source} % {right.at(UNARY)}"
            self.helpers.add("_x_Int")
            result = Piece(
                f"{sign} if {left.source}.__class__ is _x_Int else {call}", CONDITION, kind, flags | WORK, refs
            )
            return self.fold(node, result)
        result = Piece(call, ATOM, kind, flags, refs)
        if kind not in NUMBERS:
            result.flags |= PRODUCES
        return self.fold(node, result)

    def _hashed(self, operand: Piece) -> Piece:
        """Return the other operand of a view, which accepts any items, as a set with checked hashes."""
        if operand.kind in ("view", "set", "dict"):
            return operand
        return Piece(self.helper("_x_set", operand.source), ATOM, "set", operand.flags, operand.refs)

    def combined(self, node: ast.BinOp, result: Piece, left: Piece, right: Piece) -> Piece:
        """Return the piece of an operation that is the same in Python as in the file."""
        return result

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
            result = Piece(f"not {operand.at(NOT)}", NOT, "bool", flags_of([operand]), operand.refs)
        else:
            sign = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}[type(node.op)]
            kind = operand.kind if operand.kind in ("int", "float") else "number"
            result = Piece(f"{sign}{operand.at(UNARY)}", UNARY, kind, flags_of([operand]), operand.refs)
        return self.fold(node, result)

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
                (isinstance(operand, ast.Constant) and (operand.value is None or isinstance(operand.value, bool)))
                # `null` has been reported.
                or (
                    isinstance(operand, ast.Name)
                    and operand.id in NAMES
                    and operand.id not in {*self.names, *self.scope}
                )
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
        if any(isinstance(part, (ast.Set, ast.Dict, ast.List)) for part in node.elts):
            template = len(node.elts) == 1 and isinstance(node.elts[0], ast.Set)
            hint = "names need no braces, so write 'value' for '{{ value }}'" if template else "write a list: [a, b]"
            return self.refuse(node, f"a set can't have sets, lists or objects as members; {hint}")
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
        result = Piece(f"{owner.at(ATOM)}[{inside}]", ATOM, kind, flags_of(used) | work, refs_of(used))
        return self.fold(node, result)


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


# Translation to Python with charges to a record's budget: the same results, with a charge for work and for results.
#
# It replaces `Translator` for expressions whose values may be large, or which may take long. Functions of `counting` replace
# those of `helpers`.

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
        source = f"{self.budget()}.item({piece.source})"
        return Piece(source, ATOM, piece.kind, piece.flags | CHARGED, piece.refs)

    def spread(self, piece: Piece) -> str:
        return f"*{self.budget()}.spread({piece.source})"

    def loop(self, piece: Piece, operations: int = 0) -> Piece:
        steps = f", {ROUND + OPERATION * operations}" if operations else ""
        return Piece(f"{self.budget()}.loop({piece.source}{steps})", ATOM, piece.kind, piece.flags, piece.refs)

    def hashed(self, piece: Piece) -> Piece:
        """Return the piece of a key or a member, with a charge if it may be a tuple."""
        if piece.is_literal or piece.kind in SCALARS:
            return piece
        return Piece(f"{self.budget()}.key({piece.source})", ATOM, piece.kind, piece.flags, piece.refs)

    def worked(self, piece: Piece, operations: int) -> Piece:
        source = f"{self.budget()}.spend({ROUND + OPERATION * operations}) or {piece.at(OR + 1)}"
        return Piece(source, OR, piece.kind, piece.flags, piece.refs)

    # -- Constructs with large results or much work --

    def on_JoinedStr(self, node: ast.JoinedStr) -> Piece:
        parts = [self._part(part) for part in node.values]
        source = self.helper("_x_text", *[part.at(CONDITION) for part in parts])
        flags = flags_of(parts) | WORK | PRODUCES | CHARGED
        return self.fold(node, Piece(source, ATOM, "str", flags, refs_of(parts)))

    def _part(self, part: ast.expr) -> Piece:
        if isinstance(part, ast.FormattedValue):
            return self._placeholder(part)[0]
        return self.visit(part)

    def combined(self, node: ast.BinOp, result: Piece, left: Piece, right: Piece) -> Piece:
        if isinstance(node.op, ast.FloorDiv):
            return Piece(self.helper("_x_div", left.source, right.source), ATOM, result.kind, result.flags, result.refs)
        if result.kind in NUMBERS or isinstance(node.op, (ast.Div, ast.RShift)):
            return result
        return self.charged(result)

    def comparison(self, node: ast.Compare, pieces: list[Piece]) -> tuple[str, int]:
        if len(pieces) > 2:
            self._chain(node, pieces)
            return super().comparison(node, pieces)
        operator, (left, right) = node.ops[0], pieces
        if isinstance(operator, (ast.In, ast.NotIn)):
            test = self.helper("_x_in", left.at(CONDITION), right.at(CONDITION))
            return (f"not {test}", NOT) if isinstance(operator, ast.NotIn) else (test, ATOM)
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

    def on_Compare(self, node: ast.Compare) -> Piece:
        # Python makes a constant tuple or set beside `in` once.
        members = zip(node.ops, node.comparators, strict=True)
        self._once.update(id(operand) for operator, operand in members if isinstance(operator, (ast.In, ast.NotIn)))
        return super().on_Compare(node)

    def _display(self, node: ast.AST, result: Piece) -> Piece:
        once = not self.depth or id(node) in self._once
        return result if result.constant and once else self.charged(result)

    def on_Subscript(self, node: ast.Subscript) -> Piece:
        result = super().on_Subscript(node)
        return self.charged(result) if isinstance(node.slice, ast.Slice) and not result.constant else result

    def element(self, piece: Piece) -> Piece:
        return piece if piece.kind in ("float", "bool") or piece.flags & CHARGED else self.charged(piece)

    def method_call(self, receiver: Piece, name: str, sources: list[str]) -> str:
        if name in VIEWS:
            return super().method_call(receiver, name, sources)
        self.helpers.add("_x_k_method")
        return f"_x_k_method({', '.join((self.budget(), repr(name), receiver.at(CONDITION), *sources))})"


# Parts of translated expressions: Python source with its static properties.


IMPURE = 1
"""May differ from call to call (`now()`, Python callables), or has a problem already."""
PRODUCES = 2
"""Has an operation whose result may be much larger than its operands."""
LOOPS = 4
"""Has a loop, or a call that may loop."""
DISPLAY = 8
"""Has a display: a list, object or other container that is written in the expression."""
WORK = 32
"""Takes time that depends on the size of its operands."""
CHARGED = 64
"""Is a value that is charged where it is made."""
LAZY = 16
"""Is an iterator or a view, which must not leave the expression."""

NUMBERS = frozenset(("int", "float", "number", "bool"))
SCALARS = NUMBERS | {"str", "bytes", "none"}


class Piece(Code):
    """A part of an expression: Python with its precedence, static kind, flags and the names that it refers to.

    `literal` is the value of a literal or a folded constant, if `is_literal`.
    """

    __slots__ = ("flags", "is_literal", "kind", "literal", "refs")

    def __init__(
        self,
        source: str,
        precedence: int = ATOM,
        kind: str | None = None,
        flags: int = 0,
        refs: frozenset[str] = frozenset(),
    ):
        super().__init__(source, precedence)
        self.kind = kind
        self.flags = flags
        self.refs = refs
        self.literal: Value = None
        self.is_literal = False

    @property
    def constant(self) -> bool:
        """Whether it is the same for every record."""
        return not self.refs and not self.flags & IMPURE


def literal(value: Value, kind: str | None = None) -> Piece:
    """Return the piece of a scalar."""
    if kind is None:
        kind = "none" if value is None else type(value).__name__
    # A number before a dot, and a sign before a power, need parentheses.
    precedence = UNARY if isinstance(value, (int, float)) and not isinstance(value, bool) else ATOM
    source = repr(value)
    if source == "inf":
        source = "1e999"
    piece = Piece(source, precedence, kind)
    piece.literal, piece.is_literal = value, True
    return piece


def refs_of(pieces: list[Piece]) -> frozenset[str]:
    """Return all names that some pieces refer to."""
    return frozenset().union(*[piece.refs for piece in pieces])


def flags_of(pieces: list[Piece]) -> int:
    """Return the flags of some pieces together; laziness and charges do not spread."""
    result = 0
    for piece in pieces:
        result |= piece.flags
    return result & ~(LAZY | CHARGED)


# The functions of a file: checked together, used by name in its expressions.


_DEEPEST = 50
_BUILT_IN = frozenset(FUNCTIONS)


@dataclass(frozen=True, eq=False)
class _Functions(Mapping[str, Function]):
    """The functions of a file, and those of installed packages."""

    own: dict[str, Function]
    installed: Mapping[str, Function]

    def __getitem__(self, name: str) -> Function:
        if name in self.own or name in _BUILT_IN:
            return self.own[name]
        return self.installed[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from self.installed

    def __len__(self) -> int:
        return len(self.own) + len(self.installed)


class Library(Mapping[str, Linked]):
    """All functions of a file, each checked once, on first use.

    `problems` contains the problems of all functions; an expression that uses such a function reports them too. installed: those of
    installed packages, which are searched for names that neither the file nor the language has. `calls` collects the calls of Python
    functions in all expressions that are translated with this library; a call may occur several times.
    """

    def __init__(
        self,
        functions: Mapping[str, Function] | None = None,
        installed: Mapping[str, Function] = MappingProxyType({}),
        counts: bool = False,
        calls: list[FunctionCall] | None = None,
    ):
        self.calls: list[FunctionCall] = [] if calls is None else calls
        self.functions = _Functions(dict(functions or {}), installed)
        self.counts = counts
        self._counted: Library | None = None
        self._linked: dict[str, Linked] = {}
        self._path: list[str] = []
        self._problems: list[Problem] = []

    @property
    def counted(self) -> Library:
        """The same functions, translated with charges to a record's budget."""
        if self._counted is None:
            self._counted = Library(self.functions.own, self.functions.installed, True, self.calls)
        return self._counted

    def add(self, function: Function) -> str:
        """Add a function that a topology in Python passes; return its name, which no other function has."""
        name, number = function.name, 2
        while name in _BUILT_IN or self.functions.own.get(name, function).call != function.call:
            name, number = f"{function.name}{number}", number + 1
        for library in (self, self.counted):
            library.functions.own[name] = replace(function, name=name)
        return name

    @property
    def problems(self) -> list[Problem]:
        """Every problem of every function."""
        for name in self.functions.own:
            self.get(name)
        return self._problems

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def __getitem__(self, name: str) -> Linked:
        function = self.functions[name]
        if name in self._path:
            cycle = " -> ".join([*self._path[self._path.index(name) :], name])
            return self._broken(function, f"functions call each other in a circle: {cycle}")
        if len(self._path) > _DEEPEST:
            return self._broken(function, f"functions call each other over {_DEEPEST} levels deep")
        if name not in self._linked:
            self._path.append(name)
            try:
                self._linked[name] = self._link(function)
            finally:
                self._path.pop()
        return self._linked[name]

    def _broken(self, function: Function, message: str) -> Linked:
        problem = Problem(function.position, message)
        self._problems.append(problem)
        return Linked(function.name, problems=(problem,))

    def _link(self, function: Function) -> Linked:
        if function.call is not None:
            name = call_name(function.name, function.call)
            return Linked(name, call=function.call, links=(Link(name, call=function.call),))
        before = len(self._problems)
        self._check_params(function)
        source = Source(function.expr or "", function.expr_position or function.position, function.locate)
        linked = _translated(function, source, self, self._problems)
        own = tuple(dict.fromkeys(self._problems[before:]))
        self._problems[before:] = [problem for problem in own if problem not in self._problems[:before]]
        return replace(linked, problems=own)

    def _check_params(self, function: Function) -> None:
        seen: set[str] = set()
        for param in function.params:
            if not isinstance(param, str) or not param.isidentifier() or param.startswith("_"):
                self._problems.append(Problem(function.position, f"{param!r} can't be a parameter's name"))
            elif param in seen:
                self._problems.append(Problem(function.position, f"parameter {param!r} stands twice"))
            seen.add(param)


def reference_key(call: CallableRef) -> str:
    """Return a text that identifies a callable with its arguments."""
    arguments = "".join(f":{argument.name}={argument.data}" for argument in call.arguments)
    return f"{call.folder}:{call.module}:{call.attribute}{arguments}"


def call_name(name: str, call: CallableRef) -> str:
    """Return the name that a Python function of the file has in generated code."""
    return f"_x_c_{_mark(name, reference_key(call))}"


def _mark(name: str, text: str) -> str:
    # Generated code puts the functions of all its expressions into one namespace.
    return f"{name}_{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def _translated(function: Function, source: Source, library: Library, problems: list[Problem]) -> Linked:
    tree = source.parse(problems)
    if tree is None:
        return Linked(function.name)
    scope = {param: f"_y_p_{index}" for index, param in enumerate(function.params)}
    kind = CountedTranslator if library.counts else Translator
    translator = kind(("headers",), library, source.place, scope)
    piece = translator.translate(tree)
    problems += translator.problems
    hidden = frozenset(piece.refs - set(scope.values()))
    parameters = [*scope.values(), *[f"_y_h_{name}" for name in sorted(hidden)]]
    if translator.uses_budget:
        parameters.append(BUDGET)
    text = piece.source
    for name in hidden:
        text = text.replace(f"\0{name}\0", f"_y_h_{name}")
    text = f"lambda {', '.join(parameters)}: {text}"
    name = f"_x_f_{_mark(function.name, text + ''.join(sorted(translator.links)))}"
    return Linked(
        name,
        params=function.params,
        links=(*translator.links.values(), Link(name, source=text)),
        helpers=frozenset(translator.helpers),
        names=hidden,
        kind=piece.kind,
        flags=piece.flags & ~LAZY & ~(0 if _impure(translator) else IMPURE),
        cost=1 + translator.calls,
        operations=translator.operations(tree),
        uses_budget=translator.uses_budget,
    )


def _impure(translator: Translator) -> bool:
    return any(link.call is not None for link in translator.links.values())
