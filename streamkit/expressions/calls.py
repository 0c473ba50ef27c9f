"""Imports the Python callables that a topology names, from the YAML file's folder first, and checks their signatures."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache, partial
from types import ModuleType
from typing import Protocol

from streamkit import durations
from streamkit.distribution import install_command
from streamkit.errors import ConfigError, Position, Problem, StreamkitError, TopologyError
from streamkit.record import Value
from streamkit.suggestions import did_you_mean, number_of

_lock = threading.RLock()
_modules: dict[tuple[str, str], ModuleType] = {}


@dataclass(frozen=True)
class Argument:
    """An argument of a call by name (`with:`); `data`: its value in the file, as JSON."""

    name: str
    data: str
    position: Position | None = field(default=None, compare=False)

    @property
    def value(self) -> Value:
        """The value: a new object each time, so that a call that changes it does not affect other calls."""
        return json.loads(self.data)


class PythonObject:
    """An object that a topology in Python passes directly, such as a lambda. Spark's workers receive it pickled by value."""

    __slots__ = ("value",)

    def __init__(self, value: object):
        self.value = value

    def __reduce__(self) -> tuple[Callable[[bytes], PythonObject], tuple[bytes]]:
        # pickle alone can't serialize functions that no module defines.
        try:
            import cloudpickle
        except ImportError:
            raise ConfigError(
                f"sending functions that no module defines to Spark's workers needs cloudpickle: {install_command('spark')}"
            ) from None
        try:
            return _unpickled, (cloudpickle.dumps(self.value),)
        except Exception as error:  # objects that it captures may raise any error
            name = getattr(self.value, "__name__", type(self.value).__name__)
            captured = ", ".join(getattr(getattr(self.value, "__code__", None), "co_freevars", ()))
            holds = f", which captures {captured}," if captured else ""
            raise ConfigError(f"{name}{holds} can't be sent to Spark's workers: {error}") from error


def _unpickled(data: bytes) -> PythonObject:
    return PythonObject(pickle.loads(data))


class CallableRef(Protocol):
    """A topology's reference to a Python object: `module:attribute`, searched in `folder` first.

    A reference may also have a `position`, its place in the file, and a `target`, the PythonObject itself, which is then used without
    a search.
    """

    @property
    def module(self) -> str:
        """The module's full name."""

    @property
    def attribute(self) -> str:
        """The object's name in the module; it may contain dots, for attributes."""

    @property
    def folder(self) -> str:
        """The folder of the topology file."""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The arguments by name."""


def load_callable(ref: CallableRef) -> Callable[..., Value]:
    """Return the function or class that a reference names; with arguments, a `functools.partial` that binds them.

    Raises TopologyError (StreamkitError if the reference has no position), which names the module, attribute or argument
    and the nearest valid name.
    """
    loaded = load_object(ref)
    if not callable(loaded):
        raise _wrong(
            ref, f"{ref.module}:{ref.attribute} is a value of type {type(loaded).__name__} and can't be called"
        )
    if not ref.arguments:
        return loaded

    try:
        return bound(loaded, {argument.name: argument.value for argument in ref.arguments})
    except Misfit as error:
        raise _wrong(ref, str(error)) from None


def load_object(ref: CallableRef) -> object:
    """Return the object of a reference. Raises the errors of `load_callable`."""
    target: PythonObject | None = getattr(ref, "target", None)
    if target is not None:
        return target.value
    owner: object = _module(ref)
    for part in ref.attribute.split("."):
        if part.startswith("_") or not hasattr(owner, part):
            public = [name for name in dir(owner) if not name.startswith("_")]
            raise _wrong(ref, f"module {ref.module!r} has no public {part!r}{did_you_mean(part, public)}")
        owner = getattr(owner, part)
    return owner


def _wrong(ref: CallableRef, message: str) -> StreamkitError:
    position = getattr(ref, "position", None)
    return TopologyError([Problem(position, message)]) if position is not None else StreamkitError(message)


def _module(ref: CallableRef) -> ModuleType:
    folder = os.path.abspath(ref.folder or ".")
    with _lock:
        known = _modules.get((folder, ref.module))
        if known is None:
            known = _modules[folder, ref.module] = _import(ref, folder)
    return known


def _import(ref: CallableRef, folder: str) -> ModuleType:
    name = ref.module
    try:
        return _import_beside(folder, name) if _is_beside(folder, name) else importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise _wrong(ref, f"there is no module {name!r} beside the file or on the Python path") from None
        raise _wrong(ref, f"module {name!r} can't be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise _wrong(ref, f"module {name!r} can't be imported: {type(error).__name__}: {error}") from error


def _is_beside(folder: str, name: str) -> bool:
    top = os.path.join(folder, name.partition(".")[0])
    return os.path.isfile(top + ".py") or os.path.isdir(top)


def module_exists(folder: str, name: str) -> bool:
    """Return whether a module is beside the file or on the Python path, without importing it or the packages around it."""
    parts = name.split(".")
    if _is_beside(folder, name):
        path = os.path.join(folder, *parts)
        return os.path.isfile(f"{path}.py") or os.path.isdir(path) or name in sys.modules
    places: Iterable[str] | None = None
    for number in range(len(parts)):
        whole = ".".join(parts[: number + 1])
        if whole in sys.modules:
            places = getattr(sys.modules[whole], "__path__", None)
            continue
        finders = [find for finder in sys.meta_path if (find := getattr(finder, "find_spec", None)) is not None]
        spec = next((located for find in finders if (located := find(whole, places)) is not None), None)
        if spec is None:
            return False
        # A package may create its modules when it is imported.
        places = spec.submodule_search_locations
        if places is None and number + 1 < len(parts):
            return True
    return True


def _import_beside(folder: str, name: str) -> ModuleType:
    top = name.partition(".")[0]
    # Two files in different folders may each have a module with the same name; each must get its own.
    others = {key: sys.modules[key] for key in list(sys.modules) if _within(key, top)}
    if any(_stands_in(folder, module) for module in others.values()):
        return importlib.import_module(name)
    for key in others:
        del sys.modules[key]
    sys.path.insert(0, folder)
    try:
        importlib.invalidate_caches()
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)
        if others:
            for key in [key for key in sys.modules if _within(key, top)]:
                del sys.modules[key]
            sys.modules.update(others)
        if folder not in sys.path:
            # For imports in the module's functions; last in the path, so that it shadows no other module.
            sys.path.append(folder)


def _within(name: str, top: str) -> bool:
    return name == top or name.startswith(top + ".")


def _stands_in(folder: str, module: ModuleType) -> bool:
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    return bool(file) and os.path.abspath(file).startswith(folder + os.sep)


# Signatures of the Python callables that a topology names, and whether the arguments of a call fit them.
#
# `validate` reads them from the source of a module beside the file, without running it; a program reads them from the object.

POSITIONAL, KEYWORD, ANY_POSITIONAL, ANY_KEYWORD = "positional", "keyword", "args", "kwargs"
_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: POSITIONAL,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY: KEYWORD,
    inspect.Parameter.VAR_POSITIONAL: ANY_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD: ANY_KEYWORD,
}
_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
    "list": (list,),
    "dict": (dict,),
}
_WORDS = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}
_WORDS |= {"list": "a list", "dict": "a mapping"}
_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Parameter:
    """A parameter; `annotation`: the source of its annotation, empty without one."""

    name: str
    kind: str
    required: bool
    annotation: str = ""


@dataclass(frozen=True)
class Signature:
    """The parameters of a function, or of a class's constructor (without `self`)."""

    name: str
    parameters: tuple[Parameter, ...]
    is_class: bool = False

    def of_kind(self, kind: str) -> list[Parameter]:
        """Return the parameters of a kind."""
        return [parameter for parameter in self.parameters if parameter.kind == kind]


@dataclass(frozen=True)
class Usage:
    """How a construct of the language calls a function: its positional arguments, and whether the context may be one of them.

    `passed` is None if it is unknown, so that only keyword arguments are checked. `makes`: a class, unlike a function, is called with
    keyword arguments only.
    """

    passed: tuple[str, ...] | None = None
    context: bool = False
    makes: bool = False


@dataclass(frozen=True)
class FunctionCall:
    """A call of a Python function by its name in an expression: how many arguments it passes by position, and those by name."""

    ref: CallableRef
    name: str
    positional: int
    keywords: tuple[str, ...]
    position: Position


class Misfit(StreamkitError):
    """Arguments that do not fit a signature; `argument`: the wrong one, None if one is missing."""

    def __init__(self, message: str, argument: str | None = None):
        super().__init__(message)
        self.argument = argument


def bound(function: Callable[..., Value], arguments: Mapping[str, Value]) -> Callable[..., Value]:
    """Bind arguments by name to a callable. Raises Misfit."""
    signature = signature_of(function)
    if signature is None:
        return partial(function, **arguments)
    for misfit in misfits(signature, arguments, Usage()):
        raise misfit
    annotations = {parameter.name: parameter.annotation for parameter in signature.parameters}
    return partial(function, **{name: converted(value, annotations.get(name, "")) for name, value in arguments.items()})


def misfits(signature: Signature, arguments: Mapping[str, Value], usage: Usage) -> Iterator[Misfit]:
    """Yield the mistakes in the arguments of a call."""
    positional = signature.of_kind(POSITIONAL)
    passed = () if signature.is_class else usage.passed
    taken = [] if passed is None else positional[: len(passed)]
    name = signature.name
    if passed is not None and len(taken) < len(passed) and not signature.of_kind(ANY_POSITIONAL):
        takes = ", ".join(parameter.name for parameter in positional) or "nothing"
        yield Misfit(f"{name} takes {takes}, but gets {_count(passed)}: {', '.join(passed)}")
    rest = positional[len(taken) :]
    if usage.context and not signature.is_class and rest and rest[0].name not in arguments:
        rest = rest[1:]
    free = [*rest, *signature.of_kind(KEYWORD)]
    known = {parameter.name: parameter for parameter in free}
    for argument, value in arguments.items():
        parameter = known.get(argument)
        if parameter is not None:
            mistake = _mistake(value, parameter.annotation)
            if mistake:
                yield Misfit(f"{argument!r} of {name} must be {mistake}", argument)
        elif any(parameter.name == argument for parameter in taken):
            yield Misfit(f"{argument!r} of {name} is passed by the step; it can't be set by 'with'", argument)
        elif not signature.of_kind(ANY_KEYWORD):
            takes = f"it takes: {', '.join(known)}" if known else "it takes none"
            yield Misfit(f"{name} has no argument {argument!r}{did_you_mean(argument, known, takes)}", argument)
    missing = [parameter.name for parameter in free if parameter.required and parameter.name not in arguments]
    if missing and (usage.passed is not None or (usage.makes and signature.is_class)):
        yield Misfit(f"{name} needs {' and '.join(map(repr, missing))}; write with: {{{missing[0]}: …}}")


def misfits_of_call(signature: Signature, call: FunctionCall) -> Iterator[Misfit]:
    """Yield the mistakes in the arguments of a call in an expression; those of `with` are bound by name."""
    positional = [parameter.name for parameter in signature.of_kind(POSITIONAL)]
    keywords = [parameter.name for parameter in signature.of_kind(KEYWORD)]
    shown = f"{call.name}({', '.join([*positional, *keywords])})"
    bound_names = [argument.name for argument in call.ref.arguments if argument.name not in call.keywords]
    named = [*call.keywords, *bound_names]
    filled = positional[: call.positional]
    if call.positional > len(positional) and not signature.of_kind(ANY_POSITIONAL):
        given = call.positional + len(call.keywords)
        yield Misfit(f"{shown} takes {number_of(len(positional) + len(keywords), 'argument')}, {given} given")
        return
    yield from (Misfit(f"{shown} gets {name!r} twice, by position and by name") for name in named if name in filled)
    unknown = (
        [] if signature.of_kind(ANY_KEYWORD) else [name for name in call.keywords if name not in positional + keywords]
    )
    if unknown:
        yield from (
            Misfit(f"{shown} has no argument {name!r}{did_you_mean(name, positional + keywords)}") for name in unknown
        )
        return  # the missing one is probably misspelt
    missing = [
        parameter.name
        for parameter in (*signature.of_kind(POSITIONAL), *signature.of_kind(KEYWORD))
        if parameter.required and parameter.name not in (*filled, *named)
    ]
    if missing:
        yield Misfit(f"{shown} needs {' and '.join(map(repr, missing))}")


def converted(value: Value, annotation: str) -> Value:
    """Convert an argument to the type of its parameter: the text of a duration becomes a timedelta.

    >>> converted("10m", "timedelta | None")
    datetime.timedelta(seconds=600)
    """
    if value is not None and "timedelta" in _alternatives(annotation):
        return timedelta(milliseconds=durations.parse(value))
    return value


def _mistake(value: Value, annotation: str) -> str:
    """Describe the expected and the actual value of an argument; empty if it fits, or if its type is not checked."""
    choices = _alternatives(annotation)
    if not choices or (value is None and "None" in choices):
        return ""
    type_names = [type_name for type_name in choices if type_name != "None"]
    if type_names == ["timedelta"]:
        try:
            durations.parse(value)
        except ConfigError as error:
            return f"{str(error).removeprefix('must be ')}, not {value!r}"
        return ""
    if not all(type_name in _TYPES for type_name in type_names):
        return ""
    for type_name in type_names:
        if isinstance(value, _TYPES[type_name]) and (type_name == "bool" or not isinstance(value, bool)):
            return ""
    return f"{' or '.join(_WORDS[type_name] for type_name in type_names)}, not {value!r}"


def _alternatives(annotation: str) -> list[str]:
    """Return the names of the types in an annotation, without their modules and type arguments.

    >>> _alternatives("datetime.timedelta | None"), _alternatives("list[str]")
    (['timedelta', 'None'], ['list'])
    """
    parts = (part.strip().partition("[")[0] for part in annotation.strip("\"'").split("|"))
    return [part.rpartition(".")[2] for part in parts if part]


def _count(passed: Sequence[str]) -> str:
    return number_of(len(passed), "argument")


# -- Signatures of objects -----------------------------------------------------------------------------------------


def signature_of(function: Callable[..., Value]) -> Signature | None:
    """Return the signature of an object; None if Python does not know it, as with some functions written in C."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    parameters = tuple(
        Parameter(parameter.name, _KINDS[parameter.kind], parameter.default is parameter.empty, _annotation(parameter))
        for parameter in signature.parameters.values()
    )
    return Signature(getattr(function, "__name__", str(function)), parameters, inspect.isclass(function))


def _annotation(parameter: inspect.Parameter) -> str:
    annotation: object = parameter.annotation
    if annotation is parameter.empty:
        return ""
    if isinstance(annotation, str):
        return annotation
    return annotation.__name__ if type(annotation) is type else str(annotation)


# -- Signatures from source ----------------------------------------------------------------------------------------


def source_signature(folder: str, module: str, attribute: str) -> Signature | None:
    """Return the signature of a function or a class in a module beside the file, without importing it.

    None if the source alone does not determine it, because of another module, a base class or a decorator. Raises Misfit if the
    module does not define the name.
    """
    tree = _tree(folder, module)
    if tree is None or "." in attribute:
        return None
    names = _top_names(tree)
    if names is not None and attribute not in names:
        public = [name for name in names if not name.startswith("_")]
        raise Misfit(f"module {module!r} has no {attribute!r}{did_you_mean(attribute, public)}")
    definitions = [node for node in tree.body if getattr(node, "name", None) == attribute]
    if len(definitions) != 1 or getattr(definitions[0], "decorator_list", None):
        return None
    node = definitions[0]
    if isinstance(node, _FunctionNode):
        return Signature(attribute, _parameters(node.args))
    if not isinstance(node, ast.ClassDef) or node.keywords:
        return None
    inits = [
        statement for statement in node.body if isinstance(statement, _FunctionNode) and statement.name == "__init__"
    ]
    if len(inits) == 1 and not inits[0].decorator_list:
        return Signature(attribute, _parameters(inits[0].args)[1:], is_class=True)
    return Signature(attribute, (), is_class=True) if not inits and not node.bases else None


def coroutine_in_source(folder: str, module: str, attribute: str, method: str) -> str | None:
    """Return the name of a function, or of a class's method, in a module beside the file if it is async; otherwise None."""
    tree = _tree(folder, module)
    for node in tree.body if tree is not None else ():
        if isinstance(node, ast.AsyncFunctionDef) and node.name == attribute:
            return attribute
        if isinstance(node, ast.ClassDef) and node.name == attribute:
            named = [
                statement
                for statement in node.body
                if isinstance(statement, ast.AsyncFunctionDef) and statement.name == method
            ]
            return f"{attribute}.{method}" if named else None
    return None


def methods_called(folder: str, module: str, attribute: str) -> frozenset[str]:
    """Return the names of the methods that a function in a module beside the file calls; none if there is no such function."""
    tree = _tree(folder, module)
    definitions = [node for node in tree.body if getattr(node, "name", None) == attribute] if tree is not None else []
    calls = [
        node for definition in definitions if isinstance(definition, _FunctionNode) for node in ast.walk(definition)
    ]
    return frozenset(
        node.func.attr for node in calls if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    )


def place_in_source(folder: str, module: str, attribute: str) -> Position | None:
    """Return the position of a function or class in a module beside the file; if it is not defined there, the module's first line."""
    for file, tree in _sources(folder, module):
        node: ast.AST = tree
        for name in attribute.split("."):
            node = next(
                (statement for statement in getattr(node, "body", ()) if getattr(statement, "name", None) == name), node
            )
        return Position(file, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1)
    return None


def _tree(folder: str, module: str) -> ast.Module | None:
    """Return the syntax tree of a module beside the file; None if the file is missing, or Python can't parse it."""
    return next((tree for _, tree in _sources(folder, module)), None)


def _sources(folder: str, module: str) -> Iterator[tuple[str, ast.Module]]:
    path = os.path.join(folder or ".", *module.split("."))
    for file in (f"{path}.py", os.path.join(path, "__init__.py")):
        try:
            yield file, _parsed(file, os.stat(file).st_mtime_ns)
        except (OSError, SyntaxError, ValueError):
            continue


@lru_cache(maxsize=64)
def _parsed(file: str, changed: int) -> ast.Module:
    with open(file, "rb") as source:
        return ast.parse(source.read())


def _top_names(tree: ast.Module) -> set[str] | None:
    """Return the names that a module may define; None if it may define any name, for example by a star import."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            if any(alias.name == "*" for alias in node.names):
                return None
            names.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, _FunctionNode | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
    dynamic = {"__getattr__", "globals", "exec"}
    loaded = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return None if dynamic & (names | loaded) else names


def _parameters(arguments: ast.arguments) -> tuple[Parameter, ...]:
    positional = [*arguments.posonlyargs, *arguments.args]
    without = len(positional) - len(arguments.defaults)
    listed = [_parameter(argument, POSITIONAL, at < without) for at, argument in enumerate(positional)]
    if arguments.vararg is not None:
        listed.append(_parameter(arguments.vararg, ANY_POSITIONAL, False))
    listed += [
        _parameter(argument, KEYWORD, default is None)
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg is not None:
        listed.append(_parameter(arguments.kwarg, ANY_KEYWORD, False))
    return tuple(listed)


def _parameter(argument: ast.arg, kind: str, required: bool) -> Parameter:
    return Parameter(
        argument.arg, kind, required, "" if argument.annotation is None else ast.unparse(argument.annotation)
    )
