"""Completion, signatures and hover texts, from the language's declarations, the file's names and the inferred types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from lsprotocol import types as lsp

from streamkit import plugins, serdes
from streamkit.editor.analysis import TEST, TEST_SUFFIXES, Analysis
from streamkit.editor.cursor import Cursor, Path, cursor_at, keys_beside, word_end
from streamkit.editor.project import Project, identity
from streamkit.editor.texts import Text
from streamkit.expressions.function_table import BUILT_IN, LIBRARY
from streamkit.expressions.helpers import BY_KIND
from streamkit.expressions.infer import type_of_text
from streamkit.expressions.types import ANY, BYTES, INTEGER, TEXT, ListOf, MapOf, Record, Type, field_names, member
from streamkit.operators import STEPS
from streamkit.operators.core.fields import STREAM_NAMES, Expr, StoreNames
from streamkit.operators.core.operator import Types
from streamkit.plan.assemble import BuiltStep
from streamkit.serdes.plain import Document
from streamkit.spec.topology_model import TopologyModel
from streamkit.spec.topology_schema import Schema, with_plugins

Kind = lsp.CompletionItemKind
_OWNER = re.compile(r"""((?:[A-Za-z_]\w*|\)|\])(?:[\w.]|\[[^\[\]]*\]|\([^()]*\))*)\.(\w*)$""")
_WORD = re.compile(r"(?<![\w.])([A-Za-z_]\w*)?$")
_USED_FIELD = re.compile(r"\b(?:value|left|right|aggregate)\.([A-Za-z_]\w*)")
_NAME = re.compile(r"\.?\b[A-Za-z_]\w*$")
_ARGUMENT = re.compile(r"\w+")
_METHODS: dict[Type, str] = {TEXT: "str", BYTES: "bytes"}


def completions(project: Project, uri: str, text: Text, position: lsp.Position) -> list[lsp.CompletionItem]:
    """Return the completions at a position."""
    line, column = text.place(position)
    cursor = cursor_at(text, line, column)
    if text.line(line).lstrip().startswith("#"):
        return []
    known = facts_at(project, uri, text, cursor)
    if known.is_expression:
        return _in_expression(known, column)
    if cursor.is_key:
        return _keys(known, column)
    return _values(known, column)


# -- Keys and values -------------------------------------------------------------------------------------------------


def _keys(known: Knowledge, column: int) -> list[lsp.CompletionItem]:
    cursor = known.cursor
    if known.is_step:
        plain = known.place.words
        items = [
            (name, name if name in plain else f"{name}: ", documentation, Kind.Function)
            for name, documentation in known.place.keys.items()
        ]
        macros = known.model.macros if known.model is not None else {}
        items += [(name, f"{name}: ", macro.description, Kind.Module) for name, macro in macros.items()]
        return _items(known, column, items)
    beside = keys_beside(known.text, cursor)
    items = [
        (name, f"{name}: ", documentation, Kind.Property)
        for name, documentation in _documented_keys(known).items()
        if name not in beside
    ]
    items += [(name, f"{name}: ", "A topic of the file.", Kind.Reference) for name in known.names()]
    # In a flow list such as `stream: [orders, `, values follow where the cursor expects a key.
    return _items(known, column, items) or _values(known, column)


def _documented_keys(known: Knowledge) -> dict[str, str]:
    macros = known.model.macros if known.model is not None else {}
    step = known.cursor.path[-1] if known.cursor.path else None
    if isinstance(step, str) and known.step == step and step in macros:
        return {
            name: f"{parameter.type}. {parameter.description}" for name, parameter in macros[step].parameters.items()
        }
    return known.place.keys


def _values(known: Knowledge, column: int) -> list[lsp.CompletionItem]:
    items = [(name, name, "", Kind.Reference) for name in known.names()]
    words = list(known.place.words)
    if "serde" in known.place.definitions:
        words += [name for name in serdes.FORMATS if name not in words]
    items += [(word, word, known.place.documentation, Kind.EnumMember) for word in words]
    return _items(known, column, items)


def _items(
    known: Knowledge, column: int, items: Iterable[tuple[str, str, str, lsp.CompletionItemKind]]
) -> list[lsp.CompletionItem]:
    """Return items that replace the word around the cursor. items: label, text, documentation, kind."""
    cursor, text = known.cursor, known.text
    start = column - len(cursor.plain.rpartition("\n")[2])
    end = word_end(text, cursor.line, column)
    has_colon = text.line(cursor.line)[end:].lstrip().startswith(":")
    return _at(
        known,
        start,
        end,
        [(label, label if has_colon else written, about, kind) for label, written, about, kind in items],
    )


def _markdown(text: str) -> lsp.MarkupContent:
    return lsp.MarkupContent(lsp.MarkupKind.Markdown, text)


# -- Expressions -----------------------------------------------------------------------------------------------------


def _in_expression(known: Knowledge, column: int) -> list[lsp.CompletionItem]:
    written = known.cursor.plain
    names = known.expression_names()
    owner = _OWNER.search(written)
    if owner is not None:
        return _members(known, type_of_text(owner[1], names), column - len(owner[2]), column)
    word = _WORD.search(written)
    if word is None:
        return []
    start = column - len(word[1] or "")
    items = [(name, name, describe_type(type_), Kind.Variable) for name, type_ in names.items()]
    functions = known.model.functions if known.model is not None else {}
    items += [(name, name, "A function of the file.", Kind.Function) for name in functions]
    items += [
        (name, name, "A function of an installed package.", Kind.Function)
        for name in plugins.references(plugins.FUNCTIONS)
    ]
    signatures = {**BUILT_IN, **{name: (function.signature, function.doc) for name, function in LIBRARY.items()}}
    items += [(name, name, f"`{label}`\n\n{about}", Kind.Function) for name, (label, about) in signatures.items()]
    items += [
        (name, name, "", Kind.Keyword) for name in ("and", "or", "not", "in", "if", "else", "None", "True", "False")
    ]
    return _at(known, start, column, items)


def _members(known: Knowledge, owner: Type, start: int, column: int) -> list[lsp.CompletionItem]:
    items = []
    for name in field_names(owner):
        items.append((name, name, describe_type(member(owner, name) or ANY), Kind.Field))
    if owner is ANY:
        # JSON without a schema: offer the fields that other expressions of the file use.
        used = dict.fromkeys(_USED_FIELD.findall(known.text.text))
        items += [(name, name, "A field that this file uses.", Kind.Field) for name in used]
    kind = _METHODS.get(owner) or ("list" if isinstance(owner, ListOf) else None)
    kind = "dict" if isinstance(owner, Record | MapOf) else kind
    methods = BY_KIND[kind] if kind is not None else BY_KIND["str"] | BY_KIND["dict"] if owner is ANY else ()
    items += [(name, name, "", Kind.Method) for name in sorted(methods)]
    return _at(known, start, column, items)


def _at(
    known: Knowledge, start: int, end: int, items: list[tuple[str, str, str, lsp.CompletionItemKind]]
) -> list[lsp.CompletionItem]:
    text, line = known.text, known.cursor.line
    at = lsp.Range(text.position(line, start), text.position(line, end))
    return [
        lsp.CompletionItem(
            label=label,
            kind=kind,
            documentation=_markdown(documentation) if documentation else None,
            sort_text=f"{number:04}",
            filter_text=label,
            text_edit=lsp.TextEdit(at, written),
        )
        for number, (label, written, documentation, kind) in enumerate(items)
    ]


def signature(project: Project, uri: str, text: Text, position: lsp.Position) -> lsp.SignatureHelp | None:
    """Return the parameters of the call around a place in an expression."""
    line, column = text.place(position)
    cursor = cursor_at(text, line, column)
    known = facts_at(project, uri, text, cursor)
    call = open_call(cursor.plain) if known.is_expression else None
    shown = _signature(call[0], known.model) if call is not None else None
    if call is None or shown is None:
        return None
    label, documentation, parameters = shown
    return lsp.SignatureHelp(
        [
            lsp.SignatureInformation(
                label, _markdown(documentation), [lsp.ParameterInformation(name) for name in parameters]
            )
        ],
        0,
        min(call[1], max(len(parameters) - 1, 0)),
    )


def open_call(written: str) -> tuple[str, int] | None:
    """Return the function of the innermost call that is open at the end of a text, and the number of the argument there.

    >>> open_call("merge(value, {'a': len(value.b), 'c, d': [1, 2"), open_call("len(value.get("), open_call("len(a)")
    (('merge', 1), None, None)
    """
    stack, quote = list[tuple[str | None, int]](), ""
    for at, character in enumerate(written):
        if quote:
            quote = "" if character == quote and written[at - 1] != "\\" else quote
        elif character in "'\"":
            quote = character
        elif character in "([{":
            name = _NAME.search(written[:at]) if character == "(" else None
            stack.append((name[0] if name is not None else None, 0))
        elif character in ")]}" and stack:
            stack.pop()
        elif character == "," and stack:
            stack[-1] = stack[-1][0], stack[-1][1] + 1
    call = next((opened for opened in reversed(stack) if opened[0] is not None), None)
    return None if call is None or call[0] is None or call[0].startswith(".") else (call[0], call[1])


def _signature(name: str, model: TopologyModel | None) -> tuple[str, str, tuple[str, ...]] | None:
    functions: Mapping[str, object] = model.functions if model is not None else {}
    if name in functions:
        parameters = tuple(getattr(functions[name], "params", ()))
        return f"{name}({', '.join(parameters)})", str(getattr(functions[name], "expr", None) or ""), parameters
    if name in BUILT_IN:
        label, documentation = BUILT_IN[name]
        return label, documentation, tuple(_ARGUMENT.findall(label)[1:])
    function = LIBRARY.get(name)
    return None if function is None else (function.signature, function.doc, function.parameters)


# -- Hover -----------------------------------------------------------------------------------------------------------


def hover(project: Project, uri: str, text: Text, position: lsp.Position) -> lsp.Hover | None:
    """Return the documentation of the word at a place."""
    line, column = text.place(position)
    row = text.line(line)
    start = column
    while start > 0 and (row[start - 1].isalnum() or row[start - 1] in "_-."):
        start -= 1
    end = word_end(text, line, column)
    if start == end:
        return None
    cursor = cursor_at(text, line, end)
    known = facts_at(project, uri, text, cursor)
    content = _documentation(project, uri, known, row[start:end].lstrip("-"))
    at = lsp.Range(text.position(line, start), text.position(line, end))
    return lsp.Hover(_markdown(content), at) if content else None


def _documentation(project: Project, uri: str, known: Knowledge, word: str) -> str:
    if known.is_expression:
        return _of_expression(known, word)
    if known.cursor.is_key:
        return "\n\n".join(filter(None, (_documented_keys(known).get(word, ""), *_of_step(project, uri, known))))
    return "\n\n".join(filter(None, (_of_topic(known, word), known.place.documentation)))


def _of_expression(known: Knowledge, word: str) -> str:
    name = word.rpartition(".")[2]
    shown = _signature(name, known.model)
    if shown is not None and "." not in word:
        return f"`{shown[0]}`\n\n{shown[1]}"
    names = known.expression_names()
    if word.partition(".")[0] not in names:
        return ""
    return f"`{word}`: {describe_type(type_of_text(word, names))}"


def _of_step(project: Project, uri: str, known: Knowledge) -> list[str]:
    """Return the types at a step, the names of its nodes, and the internal topics that they use."""
    if not known.is_step:
        return []
    types = known.types()
    paragraphs = [f"Before it: key {describe_type(types.key)}; value {describe_type(types.value)}."]
    valid = project.valid(uri)
    if valid is None or valid.plan is None or valid.text.text != known.text.text:
        return paragraphs
    plan, line = valid.plan, known.cursor.line + 1
    nodes = {
        name
        for sub in plan.sub_topologies
        for name, node in sub.nodes.items()
        if node.origin is not None and node.origin.position.line == line
    }
    if nodes:
        paragraphs.append(f"Nodes: {', '.join(f'`{name}`' for name in sorted(nodes))}.")
    for sub in plan.sub_topologies:
        for name in sub.stores:
            if any(name in sub.nodes[node].stores for node in nodes & set(sub.nodes)):
                changelog = plan.changelog_name(name)
                paragraphs.append(
                    f"Store `{name}`" + (f", changelog `{changelog}`." if changelog else ", without a changelog.")
                )
    for name, topic in plan.internal_topics.items():
        writers = {
            writer
            for sub in plan.sub_topologies
            for writer, node in sub.nodes.items()
            if getattr(node, "topic", None) == name
        }
        if writers & nodes:
            count = topic.partitions if topic.partitions is not None else "as many as its inputs"
            paragraphs.append(f"Internal topic `{plan.internal_name(name)}`, partitions: {count}.")
    return paragraphs


def _of_topic(known: Knowledge, word: str) -> str:
    topics = known.model.topics if known.model is not None else {}
    if word not in topics or word not in known.names():
        return ""
    topic = topics[word]
    count = topic.partitions if topic.partitions is not None else "not declared"
    return f"Topic `{topic.topic}`: key {topic.key.spec}, value {topic.value.spec}; partitions: {count}."


# What is known at a cursor: names of the file, and the types of keys and values at a step.


TOPIC_KEYS = ("stream", "table", "global_table", "global_store", "read_only_store", "dead_letter", "to", "topic")
"""Keys whose values are entries of `topics`."""
_KNOWN_TYPES = {"timestamp": INTEGER, "offset": INTEGER, "partition": INTEGER, "partitions": INTEGER, "topic": TEXT}


@dataclass(frozen=True)
class Knowledge:
    """The facts about a file at a cursor."""

    text: Text
    cursor: Cursor
    place: Place
    analysis: Analysis | None
    model: TopologyModel | None

    @property
    def step(self) -> str | None:
        """The step whose options contain the cursor."""
        path = self.cursor.path
        places = [at for at, name in enumerate(path[:-1]) if name is None and path[at - 1 : at] == ("steps",)]
        return path[places[-1] + 1] if places else None

    @property
    def is_step(self) -> bool:
        """Whether the name of a step belongs here."""
        return self.cursor.path[-2:] == ("steps", None) and self.cursor.path[:1] != ("tests",)

    def names(self) -> list[str]:
        """Return the names of other parts of the file that belong here: topics, pipelines, stores."""
        model, path = self.model, self.cursor.path
        if model is None:
            return []
        if self.cursor.is_key:
            return list(model.topics) if path[-1:] in (("generators",), ("given",), ("expect",)) else []
        key = next((name for name in reversed(path) if name is not None), "")
        if self._is_topic(path, key):
            return list(model.topics)
        if "pipelineReference" in self.place.definitions:
            return _pipelines(model)
        operator = STEPS.get(self.step or "")
        kinds = [field.kind for field in operator.fields if field.name == key] if operator is not None else []
        return list(model.stores) if kinds and isinstance(kinds[0], StoreNames) else []

    def _is_topic(self, path: Path, key: str) -> bool:
        if path[:1] == ("tests",):
            return key == "topic"
        return path[:1] == ("pipelines",) and key in TOPIC_KEYS and (key != "topic" or "to" in path)

    @property
    def is_expression(self) -> bool:
        """Whether the value here is an expression."""
        return not self.cursor.is_key and "expression" in self.place.definitions and not self.is_step

    def expression_names(self) -> dict[str, Type]:
        """Return the names in the expression here, with their types."""
        operator = STEPS.get(self.step or "")
        last = next((name for name in reversed(self.cursor.path) if name is not None), "")
        names: tuple[str, ...] = STREAM_NAMES
        if operator is not None:
            chosen = [
                field for field in operator.fields if field.name == (operator.main if last == operator.name else last)
            ]
            names = next((field.kind.names for field in chosen if isinstance(field.kind, Expr)), names)
        types = self.types()
        known: dict[str, Type] = {**_KNOWN_TYPES, "key": types.key, "value": types.value}
        return {name: known.get(name, ANY) for name in names}

    def types(self) -> Types:
        """Return the types of key and value before the step at the cursor, as of the latest analysis."""
        analysis = self.analysis
        if analysis is None or self.cursor.path[:1] != ("pipelines",):
            return Types()
        line, pipeline = self._analysed_line(analysis.text), self.cursor.path[1]
        above = _above(analysis.built, pipeline, line, self._column())
        if above is None:
            return Types()
        return above.after if above.before is None or above.position.column >= self._column() else above.before

    def _column(self) -> int:
        """Return the column (from 1) of the name of the step at the cursor."""
        for number in range(self.cursor.line, -1, -1):
            match = re.match(r"\s*- +", self.text.line(number))
            if match is not None:
                return match.end() + 1
        return 1

    def _analysed_line(self, analysed: Text) -> int:
        """Return the cursor's line (from 1) in the analysed version, since lines below an edit may have moved."""
        line = self.cursor.line
        if analysed.text == self.text.text:
            return line + 1
        moved = len(analysed.line_offsets) - len(self.text.line_offsets)
        changed = self.text.at(_common_prefix(analysed.text, self.text.text)).line
        while changed < line and analysed.line(changed) == self.text.line(changed):
            changed += 1
        return line + 1 if changed >= line else line + moved + 1


def _common_prefix(one: str, other: str) -> int:
    """Return the length of the common prefix.

    By bisection, since a comparison line by line takes longer than the rest of a completion.
    """
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def _above(built: list[BuiltStep], pipeline: str | None, line: int, column: int) -> BuiltStep | None:
    """Return the source or step whose output reaches the step at a position: the nearest one above it or around it."""
    own = [step for step in built if step.pipeline == pipeline and step.position.within is None]
    before = [step for step in own if step.position.line < line]
    listed = [step for step in before if step.before is not None and step.position.column <= column]
    sources = [step for step in own if step.before is None]
    return max(listed, key=lambda step: step.position.line, default=sources[0] if sources else None)


def _pipelines(model: TopologyModel) -> list[str]:
    pipelines = []
    for name, pipeline in model.pipelines.items():
        last = pipeline.steps[-1] if pipeline.steps else None
        branches = last.get("when") if last is not None and last.operator == "branch" else None
        default = last.get("default") if last is not None and branches else None
        pipelines += [f"{name}.{branch.name}" for branch in branches or ()] or [name]
        pipelines += [f"{name}.{default}"] if isinstance(default, str) else []
    return pipelines


def facts_at(project: Project, uri: str, text: Text, cursor: Cursor) -> Knowledge:
    """Return the facts about a file at a cursor."""
    is_test = text.file.endswith(TEST_SUFFIXES)
    analysis = project.analyses.get(identity(text.file))
    latest = project.valid(uri) if is_test else analysis or project.analysis(uri)
    model = latest.model if latest is not None else None
    if model is None:
        good = project.valid(uri)
        model = good.model if good is not None else None
    place = place_in_test(cursor.path) if is_test else place_in_topology(cursor.path)
    return Knowledge(text, cursor, place, latest if latest is None or latest.kind != TEST else None, model)


def describe_type(type_: Type, depth: int = 0) -> str:
    """Return a type with its fields.

    >>> describe_type(Record("order", {"id": INTEGER, "names": ListOf(TEXT)}))
    'order {id: a whole number, names: a list of text}'
    """
    names = field_names(type_)
    if isinstance(type_, ListOf):
        return f"a list of {describe_type(type_.item, depth)}"
    if isinstance(type_, MapOf):
        return f"a map of {describe_type(type_.value, depth)}"
    if not isinstance(type_, Record) or not names or depth > 1:
        return type_.word if type_ is not ANY else "any value"
    fields: Mapping[str, Type] = type_.fields
    return (
        f"{type_.word} {{{', '.join(f'{name}: {describe_type(field, depth + 1)}' for name, field in fields.items())}}}"
    )


# What is allowed at a place of a file, with its documentation, from the JSON Schemas that the declarations generate.


_DEEPEST = 12
"""The maximum depth of nested references and alternatives."""


@dataclass(frozen=True)
class Place:
    """The schemas that apply at a place, and the names of the definitions that led to them."""

    root: Schema
    schemas: tuple[Schema, ...]
    definitions: frozenset[str]

    @property
    def keys(self) -> dict[str, str]:
        """The keys that a mapping may have here, with their documentation."""
        keys: dict[str, str] = {}
        for schema in self.schemas:
            for name, inner in schema.get("properties", {}).items():
                if name not in keys or not keys[name]:
                    keys[name] = self._documentation(inner)
        return keys

    @property
    def words(self) -> dict[str, str]:
        """The words that are allowed as a value here, with their documentation."""
        words: dict[str, str] = {}
        for schema in self.schemas:
            for word in [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else [])]:
                words.setdefault(_written(word), "")
            if schema.get("type") == "boolean":
                words |= {"true": "", "false": ""}
        return words

    @property
    def documentation(self) -> str:
        """What the value here means."""
        return next((str(schema["description"]) for schema in self.schemas if schema.get("description")), "")

    def below(self, name: str | None) -> Place:
        """Return the place of a key's value, or of the items of a list for None."""
        inner_schemas = []
        for schema in self.schemas:
            inner = schema.get("items") if name is None else schema.get("properties", {}).get(name)
            if inner is None and name is not None:
                inner = schema.get("additionalProperties")
            if isinstance(inner, dict):
                inner_schemas.append(inner)
        return _place(self.root, inner_schemas)

    def _documentation(self, schema: Schema) -> str:
        return schema.get("description") or _place(self.root, [schema]).documentation


def _written(word: Document) -> str:
    return str(word).lower() if isinstance(word, bool) else str(word)


def _place(root: Schema, schemas: list[Schema]) -> Place:
    applied, names = list[Schema](), set[str]()
    for schema in schemas:
        for applying, name in _alternatives(root, schema, 0):
            applied.append(applying)
            names.update(name)
    return Place(root, tuple(applied), frozenset(names))


def _alternatives(root: Schema, schema: Schema, depth: int) -> Iterator[tuple[Schema, list[str]]]:
    """Yield a schema and all that it refers to, with the names of definitions."""
    yield schema, []
    if depth > _DEEPEST:
        return
    inner = [*schema.get("anyOf", ()), *(schema[key] for key in ("then",) if key in schema)]
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name:
        inner.append(root["$defs"][name])
    for alternative in inner:
        for referred, names in _alternatives(root, alternative, depth + 1):
            yield referred, [name, *names] if name else names


@lru_cache(maxsize=1)
def _topology_schema() -> Schema:
    return with_plugins({})


@lru_cache(maxsize=1)
def _test_schema() -> Schema:
    from streamkit.testing.case_schema import build

    return build()


def place_in_topology(path: Path) -> Place:
    """Return the place of a path in a topology, without the steps of its macros."""
    return _container_at(_topology_schema(), path)


def place_in_test(path: Path) -> Place:
    """Return the place of a path in a test file."""
    return _container_at(_test_schema(), path)


def _container_at(schema: Schema, path: Path) -> Place:
    place = _place(schema, [schema])
    for name in path:
        place = place.below(name)
    return place
