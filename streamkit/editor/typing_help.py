"""Completion and the help for calls: from the language's declarations, the file's names and the inferred types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from lsprotocol import types as lsp

from streamkit import plugins, serdes
from streamkit.editor.cursor import cursor_at, keys_beside, word_end
from streamkit.editor.knowledge import Knowledge, describe_type, know
from streamkit.editor.project import Project
from streamkit.editor.texts import Text
from streamkit.expressions.function_table import LIBRARY
from streamkit.expressions.helpers import BY_KIND
from streamkit.expressions.infer import type_of_text
from streamkit.expressions.types import ANY, BYTES, TEXT, ListOf, MapOf, Record, Type, field_names, member
from streamkit.spec.topology_model import TopologyModel

Kind = lsp.CompletionItemKind
_OWNER = re.compile(r"""((?:[A-Za-z_]\w*|\)|\])(?:[\w.]|\[[^\[\]]*\]|\([^()]*\))*)\.(\w*)$""")
_WORD = re.compile(r"(?<![\w.])([A-Za-z_]\w*)?$")
_USED_FIELD = re.compile(r"\b(?:value|left|right|aggregate)\.([A-Za-z_]\w*)")
_CALL = re.compile(r"([A-Za-z_]\w*)\(([^()]*)$")
_METHODS: dict[Type, str] = {TEXT: "str", BYTES: "bytes"}


def completions(project: Project, uri: str, text: Text, position: lsp.Position) -> list[lsp.CompletionItem]:
    """Return what may be typed at a place."""
    line, column = text.place(position)
    cursor = cursor_at(text, line, column)
    if text.line(line).lstrip().startswith("#"):
        return []
    known = know(project, uri, text, cursor)
    if known.is_expression:
        return _in_expression(known, line, column)
    if cursor.is_key:
        return _keys(known, column)
    return _values(known, column)


# -- Keys and values -------------------------------------------------------------------------------------------------


def _keys(known: Knowledge, column: int) -> list[lsp.CompletionItem]:
    cursor = known.cursor
    if known.is_step:
        plain = known.place.words
        items = [
            (name, f"{name}" if name in plain else f"{name}: ", documentation, Kind.Function)
            for name, documentation in known.place.keys.items()
        ]
        macros = known.model.macros if known.model is not None else {}
        items += [(name, f"{name}: ", each.description, Kind.Module) for name, each in macros.items()]
        return _items(known, column, items)
    beside = keys_beside(known.text, cursor)
    items = [
        (name, f"{name}: ", each, Kind.Property) for name, each in _documented_keys(known).items() if name not in beside
    ]
    items += [(name, f"{name}: ", "A topic of the file.", Kind.Reference) for name in known.names()]
    # A list in a line such as `stream: [orders, ` has values.
    return _items(known, column, items) or _values(known, column)


def _documented_keys(known: Knowledge) -> dict[str, str]:
    macros = known.model.macros if known.model is not None else {}
    step = known.cursor.path[-1] if known.cursor.path else None
    if isinstance(step, str) and known.step == step and step in macros:
        return {name: f"{each.type}. {each.description}" for name, each in macros[step].parameters.items()}
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


def _in_expression(known: Knowledge, line: int, column: int) -> list[lsp.CompletionItem]:
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
    items += [(name, name, f"`{each.signature}`\n\n{each.doc}", Kind.Function) for name, each in LIBRARY.items()]
    items += [
        (name, name, "", Kind.Keyword) for name in ("and", "or", "not", "in", "if", "else", "None", "True", "False")
    ]
    return _at(known, start, column, items)


def _members(known: Knowledge, owner: Type, start: int, column: int) -> list[lsp.CompletionItem]:
    items = []
    for name in field_names(owner):
        items.append((name, name, describe_type(member(owner, name) or ANY), Kind.Field))
    if owner is ANY:
        # JSON without a schema: the fields that other expressions of the file have.
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
    known = know(project, uri, text, cursor)
    call = _CALL.search(cursor.plain) if known.is_expression else None
    if call is None:
        return None
    shown = _signature(call[1], known.model)
    if shown is None:
        return None
    label, documentation, parameters = shown
    return lsp.SignatureHelp(
        [
            lsp.SignatureInformation(
                label, _markdown(documentation), [lsp.ParameterInformation(name) for name in parameters]
            )
        ],
        0,
        min(call[2].count(","), max(len(parameters) - 1, 0)),
    )


def _signature(name: str, model: TopologyModel | None) -> tuple[str, str, tuple[str, ...]] | None:
    functions: Mapping[str, object] = model.functions if model is not None else {}
    if name in functions:
        parameters = tuple(getattr(functions[name], "params", ()))
        return f"{name}({', '.join(parameters)})", str(getattr(functions[name], "expr", None) or ""), parameters
    found = LIBRARY.get(name)
    return None if found is None else (found.signature, found.doc, found.parameters)


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
    known = know(project, uri, text, cursor)
    content = _documentation(project, uri, known, row[start:end].lstrip("-"))
    at = lsp.Range(text.position(line, start), text.position(line, end))
    return lsp.Hover(_markdown(content), at) if content else None


def _documentation(project: Project, uri: str, known: Knowledge, word: str) -> str:
    if known.is_expression:
        return _of_expression(known, word)
    if known.cursor.is_key:
        return "\n\n".join(filter(None, (_documented_keys(known).get(word, ""), *_of_step(project, uri, known))))
    return "\n\n".join(filter(None, (_of_topic(project, uri, known, word), known.place.documentation)))


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
    found = [f"Before it: key {describe_type(types.key)}; value {describe_type(types.value)}."]
    valid = project.valid(uri)
    if valid is None or valid.plan is None or valid.text.text != known.text.text:
        return found
    plan, line = valid.plan, known.cursor.line + 1
    nodes = {
        name
        for sub in plan.sub_topologies
        for name, node in sub.nodes.items()
        if node.origin is not None and node.origin.position.line == line
    }
    if nodes:
        found.append(f"Nodes: {', '.join(f'`{name}`' for name in sorted(nodes))}.")
    for sub in plan.sub_topologies:
        for name in sub.stores:
            if any(name in getattr(sub.nodes[each], "stores", ()) for each in nodes & set(sub.nodes)):
                changelog = plan.changelog_name(name)
                found.append(
                    f"Store `{name}`" + (f", changelog `{changelog}`." if changelog else ", without a changelog.")
                )
    for name, topic in plan.internal_topics.items():
        writers = {
            each
            for sub in plan.sub_topologies
            for each, node in sub.nodes.items()
            if getattr(node, "topic", None) == name
        }
        if writers & nodes:
            count = topic.partitions if topic.partitions is not None else "as many as its inputs"
            found.append(f"Internal topic `{plan.internal_name(name)}`, partitions: {count}.")
    return found


def _of_topic(project: Project, uri: str, known: Knowledge, word: str) -> str:
    topics = known.model.topics if known.model is not None else {}
    if word not in topics or word not in known.names():
        return ""
    topic = topics[word]
    count = topic.partitions if topic.partitions is not None else "not declared"
    return f"Topic `{topic.topic}`: key {topic.key.spec}, value {topic.value.spec}; partitions: {count}."
