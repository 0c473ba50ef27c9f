"""Calls: built-in functions, the file's functions, methods, and lambdas as their arguments."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from streamkit.code import ATOM, CONDITION
from streamkit.expressions import methods
from streamkit.expressions.expression_limits import MAX_CALLS
from streamkit.expressions.library.function_entry import LibraryFunction
from streamkit.expressions.library.function_table import LIBRARY
from streamkit.expressions.spellings import METHODS, MODULES, NAMES
from streamkit.expressions.translation.core import BUDGET, Core
from streamkit.expressions.translation.piece import IMPURE, LAZY, LOOPS, PRODUCES, WORK, Piece, flags_of, refs_of
from streamkit.suggestions import did_you_mean

if TYPE_CHECKING:
    from streamkit.expressions.functions import Linked

FUNCTIONS = [
    "len",
    "min",
    "max",
    "sum",
    "abs",
    "round",
    "int",
    "float",
    "str",
    "bool",
    "sorted",
    "any",
    "all",
    "list",
    "dict",
    "tuple",
    "set",
    "zip",
    "enumerate",
    "range",
    "re_match",
    "re_split",
    "now",
    "merge",
    "header",
    *LIBRARY,
]
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
"""The least and most arguments by position of functions that take no fewer and no more."""
_QUICK = frozenset(("len", "abs", "round", "float", "bool"))
_KEYS = frozenset(("sorted", "min", "max"))
_AS_KEY = frozenset(
    [
        "len",
        "min",
        "max",
        "sum",
        "abs",
        "round",
        "int",
        "float",
        "str",
        "bool",
        "any",
        "all",
        "list",
        "dict",
        "tuple",
        "set",
    ]
)


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
            return self.refuse(node, f"{name!r} is a function: it can be called, and that is all")
        if name.startswith("_"):
            return self.refuse(node, f"{name!r} begins with an underscore, which is not allowed")
        if name in NAMES and not called:
            return self.refuse(
                node, f"unknown name {name!r}; write {NAMES[name]!r}, or put it in quotes where it is text"
            )
        if name in MODULES and not called:
            message = f"unknown name {name!r}; expressions import nothing: write a function of Python, and 'call' it"
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
        names = [self.bind(ast.copy_location(ast.Name(each.arg), each), bound) for each in plain]
        self.depth += 1
        body = self.value(node.body)
        self.depth -= 1
        self.scope = outer
        body = self.element(body)
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
        if not least <= len(node.args) <= most and not any(isinstance(each, ast.Starred) for each in node.args):
            expected = (
                f"{least} argument{'s' if least > 1 else ''}" if least == most else f"{least} to {most} arguments"
            )
            return self.refuse(node, f"{name}() takes {expected}, {len(node.args)} given")
        if name in ("header", "re_match", "re_split"):
            wanted = 1 if name == "header" else 2
            if len(pieces) != wanted or node.keywords or any(isinstance(each, ast.Starred) for each in node.args):
                return self.refuse(node, f"{name}() takes {wanted} argument{'s' if wanted > 1 else ''}")
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
        made = Piece(self.helper(f"_x_{name}", *sources), ATOM, kind, flags, refs)
        return self._checked(node, made)

    def _from_library(self, node: ast.Call, function: LibraryFunction) -> Piece:
        pieces, sources = self._arguments(node, function.name)
        most = len(function.parameters)
        starred = any(isinstance(each, ast.Starred) for each in node.args)
        if node.keywords or starred or not most - function.optional <= len(pieces) <= most:
            return self.refuse(node, f"{function.signature} takes {function.takes}, by position")
        for at, check in function.checks.items():
            if at < len(pieces) and pieces[at].constant:
                try:
                    check(self.evaluate(pieces[at]))
                except (ValueError, TypeError) as error:
                    return self.refuse(node.args[at], str(error))
        flags, refs = flags_of(pieces) | WORK | PRODUCES, refs_of(pieces)
        made = Piece(self.helper(f"_x_{function.name}", *sources), ATOM, function.kind, flags, refs)
        return self.fold(node, made)

    def _checked(self, node: ast.Call, made: Piece) -> Piece:
        """Fold a constant call; a constant iterator is evaluated, but not replaced."""
        if made.flags & LAZY and made.constant:
            tried = self.fold(node, Piece(made.source, ATOM, None, made.flags & ~LAZY))
            return made if not tried.flags & IMPURE else tried
        return self.fold(node, made)

    def _check_pattern(self, node: ast.expr, piece: Piece) -> None:
        from streamkit.expressions.evaluation import regex

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
        made = Piece(f"{function.name}({', '.join(ordered)})", ATOM, function.kind, flags, refs | set(hidden))
        return self.fold(node, made)

    def _in_order(self, node: ast.Call, params: tuple[str, ...], sources: list[str]) -> list[str] | None:
        """Return the arguments of a function of the file by position, or None after adding a problem."""
        name = node.func.id  # type: ignore[attr-defined]
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                self.refuse(argument, "'*' is not allowed in a call of a function of the file")
                return None
        given = len(node.args)
        named = {
            keyword.arg: source.partition("=")[2]
            for keyword, source in zip(node.keywords, sources[given:], strict=True)
        }
        missing = [param for param in params[given:] if param not in named]
        unknown = [keyword for keyword in named if keyword not in params[given:]]
        if given > len(params) or missing or unknown:
            shown = ", ".join(params)
            self.refuse(node, f"{name}({shown}) takes {len(params)} arguments, {given + len(named)} given")
            return None
        return [*sources[:given], *[named[param] for param in params[given:]]]

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
        kind = methods.RESULT_KINDS.get(name)
        if kind is None and receiver.kind == "str" and name in ("lower", "upper", "strip", "replace", "join", "title"):
            kind = "str"
        if name in methods.GUARDED:
            made = Piece(self.helper(f"_x_m_{name}", receiver.source, *sources), ATOM, kind, flags | PRODUCES, refs)
            return self.fold(node, made)
        made = Piece(self.method_call(receiver, name, sources), ATOM, kind, flags, refs)
        if name in methods.VIEWS:
            made.kind = "view"
            made.flags |= LAZY
            return made
        return self.fold(node, made)

    def method_call(self, receiver: Piece, name: str, sources: list[str]) -> str:
        """Return the source of the call of a method whose result is no larger than its arguments."""
        return f"{receiver.at(ATOM)}.{name}({', '.join(sources)})"

    def _method_problem(self, receiver: Piece, name: str) -> str | None:
        if name.startswith("_"):
            return f"{name!r} begins with an underscore, which is not allowed"
        if name in ("format", "format_map"):
            return f"method {name!r} is not allowed; use an f-string"
        if name in methods.MUTATING:
            return f"method {name!r} changes its object and is not allowed; build a new one"
        kind = receiver.kind if receiver.kind in methods.BY_KIND else None
        allowed = methods.BY_KIND[kind] if kind else methods.ALLOWED
        if name in allowed:
            return None
        hint = f"; write {METHODS[name]!r}" if name in METHODS else did_you_mean(name, sorted(allowed))
        return f"unknown method {name!r}{f' of a {kind}' if kind else ''}{hint}"
