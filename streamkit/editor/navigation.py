"""Definitions, references and renames, from the index of the names of a topology, its tests and the files that it includes; semantic tokens."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from lsprotocol import types as lsp

from streamkit import plugins
from streamkit.changes.compare_versions import compare
from streamkit.changes.finding import Verdict
from streamkit.changes.of_plan import form_of
from streamkit.editor import KINDS
from streamkit.editor.analysis import TEST, TEST_SUFFIXES, TOPOLOGY, Analysis, analyse, of_repository
from streamkit.editor.names import Mention, Names, Word, placed_words, python_place
from streamkit.editor.project import Project, identity, path_of
from streamkit.editor.texts import Text, Texts
from streamkit.errors import Position, Problem, StreamkitError, UsageError
from streamkit.expressions import regex
from streamkit.expressions.translate import FUNCTIONS
from streamkit.plan.model import Plan, SourceNode
from streamkit.spec.yaml_nodes import quoted
from streamkit.spec.yaml_reader import core


@dataclass(frozen=True)
class Family:
    """The topologies that a file belongs to, and the tests of these.

    unread: tests with mistakes, whose names are not known.
    """

    topologies: tuple[Analysis, ...]
    tests: tuple[Analysis, ...]
    unread: tuple[str, ...]

    @property
    def indexes(self) -> list[Names]:
        """The indexes of all files."""
        return [topology.index for topology in (*self.topologies, *self.tests)]


def family(project: Project, uri: str) -> Family:
    """Return the family of a file; topologies and tests that are not open are read from the disk."""
    name = identity(path_of(uri))
    own = project.analyses.get(name)
    if own is not None and own.kind == TEST:
        name = identity(str(own.cases.topology)) if own.cases is not None else ""
    known = [analysis for analysis in list(project.analyses.values()) if name in map(identity, analysis.files)]
    if not known and name and name not in project.analyses:
        known = [analysis for analysis in [_read(project, name)] if analysis is not None]
    return _with_tests(project, [_fresh(project, analysis) for analysis in known if analysis.kind == TOPOLOGY])


def _fresh(project: Project, analysis: Analysis) -> Analysis:
    """Return the analysis of a topology's present texts: files that are not open change on the disk."""
    read = {analysis.text.file: analysis.text.text, **(analysis.model.included if analysis.model is not None else {})}
    try:
        is_fresh = all(project.texts.read(file) == text for file, text in read.items())
    except StreamkitError:
        is_fresh = False
    return analysis if is_fresh else _read(project, analysis.text.file) or analysis


def whole_family(project: Project, related: Family, mention: Mention) -> Family:
    """Return a family with all topologies that include a file which names a part: also those that are not open."""
    topologies = {identity(topology.text.file): topology for topology in related.topologies}
    done: set[str] = set()
    while parts := {identity(other.file) for other in mentions(related, mention)} - {*topologies, *done}:
        opened = [analysis.text.file for analysis in list(project.analyses.values()) if analysis.kind == TOPOLOGY]
        near = [text.file for part in parts for text in project.including(part, of_repository(part))]
        for name in dict.fromkeys(map(identity, (*opened, *near))):
            if name not in topologies:
                known = project.analyses.get(name)
                other = _fresh(project, known) if known is not None else _read(project, name)
                if other is not None and not parts.isdisjoint(map(identity, other.files)):
                    topologies[name] = other
        done |= parts
        related = _with_tests(project, list(topologies.values()))
    return related


def _with_tests(project: Project, topologies: list[Analysis]) -> Family:
    known = list(project.analyses.values())
    files = {identity(topology.text.file) for topology in topologies}
    tests = {
        identity(analysis.text.file): analysis
        for analysis in known
        if analysis.kind == TEST and analysis.cases is not None and identity(str(analysis.cases.topology)) in files
    }
    unread = []
    for test in (os.path.splitext(file)[0] + suffix for file in sorted(files) for suffix in TEST_SUFFIXES):
        if test not in tests and os.path.isfile(test):
            analysis = _read(project, test)
            if analysis is not None and analysis.cases is not None:
                tests[test] = analysis
            else:
                unread.append(test)
    return Family(tuple(topologies), tuple(tests.values()), tuple(unread))


def _read(project: Project, file: str) -> Analysis | None:
    try:
        text = project.texts.get(file, project.encoding)
    except StreamkitError:
        return None
    return analyse(text, project.texts, project.environment(), project.options.lint)


def mention_at(related: Family, text: Text, position: lsp.Position) -> Mention | None:
    """Return the name at a place."""
    offset, file = text.offset(position), identity(text.file)
    return next((mention for names in related.indexes if (mention := names.at(file, offset)) is not None), None)


def mentions(related: Family, mention: Mention) -> list[Mention]:
    """Return all mentions of a part, each place once."""
    every = (use for names in related.indexes for use in names.of(mention.part))
    return list({(identity(use.file), use.start): use for use in every}.values())


def definition(project: Project, uri: str, text: Text, position: lsp.Position) -> list[lsp.Location]:
    """Return the places that make the part whose name is at a place."""
    related = family(project, uri)
    mention = mention_at(related, text, position)
    if mention is None:
        return []
    if mention.part.kind == "file":
        start = lsp.Position(0, 0)
        return [lsp.Location(project.uri(mention.part.name), lsp.Range(start, start))]
    if mention.part.kind == "callable":
        place = python_place(mention.part.name)
        if place is None:
            return []
        at = lsp.Position(place.line - 1, place.column - 1)
        return [lsp.Location(project.uri(place.file), lsp.Range(at, at))]
    return [location(project, use) for use in mentions(related, mention) if use.defines]


def references(
    project: Project, uri: str, text: Text, position: lsp.Position, with_definitions: bool
) -> list[lsp.Location]:
    """Return the places that name the part whose name is at a place."""
    related = family(project, uri)
    mention = mention_at(related, text, position)
    chosen = mentions(whole_family(project, related, mention), mention) if mention is not None else []
    return [location(project, use) for use in chosen if with_definitions or not use.defines]


def location(project: Project, mention: Mention) -> lsp.Location:
    """Return the place of a mention as the protocol has it."""
    text = project.texts.get(mention.file, project.encoding)
    return lsp.Location(project.uri(mention.file), text.span(mention.start, mention.end))


# Renames in all files of a topology, with what the change costs a running application.


Edits = dict[str, list[tuple[int, int, str]]]
"""By real path: what replaces the text between two offsets."""


@dataclass(frozen=True)
class Rename:
    """A rename. edits: by uri; cost: what `diff` finds that is not safe, one sentence a line, may be empty."""

    title: str
    edits: dict[str, list[lsp.TextEdit]]
    versions: dict[str, int | None]
    cost: str

    def workspace_edit(self, documents: bool, annotations: bool) -> lsp.WorkspaceEdit:
        """Return the change for a client. documents, annotations: whether it supports `documentChanges` and their annotations."""
        if not documents:
            return lsp.WorkspaceEdit(changes=self.edits)
        annotation = lsp.ChangeAnnotation(self.title, needs_confirmation=True, description=self.cost)
        annotated = annotations and bool(self.cost)
        changes: list[lsp.TextDocumentEdit] = []
        for uri, edits in self.edits.items():
            document = lsp.OptionalVersionedTextDocumentIdentifier(uri, self.versions[uri])
            marked = [lsp.AnnotatedTextEdit("cost", edit.range, edit.new_text) for edit in edits]
            changes.append(lsp.TextDocumentEdit(document, marked if annotated else edits))
        return lsp.WorkspaceEdit(
            document_changes=changes, change_annotations={"cost": annotation} if annotated else None
        )


def renamed_word(project: Project, uri: str, text: Text, position: lsp.Position) -> lsp.PrepareRenamePlaceholder | None:
    """Return the name at a place that can be renamed; None if there is none. Raises UsageError for one that can't."""
    related = family(project, uri)
    mention = mention_at(related, text, position)
    if mention is None:
        return None
    related = whole_family(project, related, mention)
    _check(project, related, mentions(related, mention), mention)
    return lsp.PrepareRenamePlaceholder(text.span(mention.start, mention.end), text.text[mention.start : mention.end])


def rename(project: Project, uri: str, text: Text, position: lsp.Position, name: str) -> Rename | None:
    """Return the rename of the part at a place; None if there is none. Raises UsageError for one that is not possible."""
    related = family(project, uri)
    mention = mention_at(related, text, position)
    if mention is None:
        return None
    related = whole_family(project, related, mention)
    chosen = mentions(related, mention)
    _check(project, related, chosen, mention)
    if not name or "\n" in name:
        raise UsageError("The new name is empty, or has several lines")
    if mention.part.kind == "function" and (name in FUNCTIONS or name in plugins.references(plugins.FUNCTIONS)):
        # Calls of that function would be calls of this one, without a mistake.
        raise UsageError(f"There is a function {name!r} already, of the language or of an installed package")
    for topology in related.topologies:
        _check_patterns(topology, mention, name)
    edits: Edits = {}
    for use in chosen:
        edits.setdefault(identity(use.file), []).append(_replacement(_text(project, use), use, name))
    old = text.text[mention.start : mention.end]
    cost = _cost(project, related, edits)
    texts = {file: project.texts.get(file, project.encoding) for file in edits}
    return Rename(
        f"Rename the {mention.part.kind} '{old}' to '{name}'",
        {
            project.uri(file): [lsp.TextEdit(texts[file].span(start, end), new) for start, end, new in sorted(edit)]
            for file, edit in edits.items()
        },
        {project.uri(file): texts[file].version for file in edits},
        "\n".join(cost),
    )


def _text(project: Project, mention: Mention) -> Text:
    return project.texts.get(mention.file, project.encoding)


def _check(project: Project, related: Family, chosen: list[Mention], mention: Mention) -> None:
    """Raise UsageError if a part can't be renamed, or not all places that name it are known."""
    kind = mention.part.kind
    if kind == "callable":
        raise UsageError("A Python object is renamed in its module")
    if kind == "file":
        raise UsageError("A file is renamed in its folder")
    for topology in related.topologies:
        # Parts with mistakes may not be read, so that names in them are not known; nor can the new plan be compared.
        if (mistake := _mistake(topology)) is not None:
            raise UsageError(f"A rename needs all places of the name; mend this first: {mistake}")
        if (hidden := topology.index.hidden(mention.part)) is not None:
            raise UsageError(
                f"The {kind} can't be renamed: the expression in {hidden} may give or compare its name; write the name "
                "out there, or change it by hand"
            )
        _check_patterns(topology, mention, mention.part.name)
    if not any(use.defines for use in chosen):
        raise UsageError(f"No file has this {kind}")
    for use in chosen:
        if not use.written:
            text = _text(project, use)
            place = text.at(use.start)
            raise UsageError(
                f"The {kind} can't be renamed: its name is not written out in {Position(use.file, place.line + 1, place.character + 1)}"
            )


def _check_patterns(topology: Analysis, mention: Mention, name: str) -> None:
    """Raise UsageError if a source reads a topic by a pattern of names on the log: it would read another set of topics."""
    if topology.plan is None or not topology.index.is_routed(mention.part):
        return
    for sub in topology.plan.sub_topologies:
        for node in sub.nodes.values():
            pattern = node.pattern if isinstance(node, SourceNode) else None
            if pattern is not None and node.origin is not None and regex.match(pattern, name):
                raise UsageError(
                    f"The topic can't be renamed: the pattern {pattern!r} in {node.origin.position} matches the name "
                    f"{name!r}; change both by hand"
                )


def _replacement(text: Text, mention: Mention, name: str) -> tuple[int, int, str]:
    """Return the edit of a mention; a name that would be no text in YAML is put in quotes."""
    before = text.text[mention.start - 1 : mention.start]
    is_own_value = mention.part.kind in ("topic", "store", "pipeline") and before not in ("'", '"', ".")
    try:
        is_plain = isinstance(core(name), str) and name[0] not in "-.?"
    except ValueError:
        is_plain = False
    return mention.start, mention.end, quoted(name) if is_own_value and not is_plain else name


class _Edited(Texts):
    """The texts of a project after a rename."""

    def __init__(self, project: Project, edits: Edits):
        opened = dict(project.opened)
        for file, edit in edits.items():
            text = project.texts.get(file, project.encoding)
            changed = text.text
            for start, end, new in sorted(edit, reverse=True):
                changed = changed[:start] + new + changed[end:]
            opened[file] = Text(text.file, changed, text.version, text.encoding)
        super().__init__(opened)


def _cost(project: Project, related: Family, edits: Edits) -> list[str]:
    """Return what a rename costs. Raises UsageError if it makes a mistake in a topology."""
    texts, environment = _Edited(project, edits), project.environment()
    cost: list[str] = []
    for before in related.topologies:
        after = _analysis(before, texts, environment)
        if (mistake := _mistake(after)) is not None:
            raise UsageError(f"After the rename: {mistake}")
        cost += _findings(before.plan, after.plan, os.path.basename(before.text.file))
    for before in related.tests:
        mistake = _mistake(_analysis(before, texts, environment))
        cost += [f"The test must be changed by hand: {mistake}."] if mistake is not None else []
    cost += [f"{os.path.basename(file)} has mistakes, and stays as it is." for file in related.unread]
    return list(dict.fromkeys(cost))


def _analysis(before: Analysis, texts: Texts, environment: Mapping[str, str]) -> Analysis:
    text = texts.get(before.text.file, before.text.encoding)
    return analyse(text, texts, environment, "mistakes") or before


def _mistake(analysis: Analysis) -> Problem | None:
    return next((mark.problem for mark in analysis.marks if mark.severity == "error"), None)


def _findings(old: Plan | None, new: Plan | None, label: str) -> list[str]:
    if old is None or new is None:
        return ["What this costs a running application is not known, because the file has mistakes."]
    changes = compare(form_of(old, label), form_of(new, label), offers_migration=False)
    return [
        f"{change.message[:1].upper()}{change.message[1:]}." for change in changes if change.verdict is not Verdict.SAFE
    ]


# Semantic tokens: the words within expressions, which editors would otherwise show as plain YAML scalars.


def semantic_tokens(project: Project, uri: str, text: Text) -> lsp.SemanticTokens:
    """Return the words of all expressions of a file, as of its latest analysis."""
    analysis = project.analysis(uri)
    if analysis is None or analysis.read is None:
        return lsp.SemanticTokens([])
    file = identity(path_of(uri))
    # A step of a macro is read once for each use.
    own = {node.start: node for node in analysis.read.expressions if identity(node.source.file) == file}
    return lsp.SemanticTokens(_encoded(text, [word for node in own.values() for word in placed_words(node)]))


def _encoded(text: Text, words: list[Word]) -> list[int]:
    """Encode words for the protocol, which gives the position of each word relative to the previous one."""
    data, line, character = list[int](), 0, 0
    for word in sorted(set(words)):
        start, end = text.at(word.start), text.at(word.end)
        if start.line != line:
            character = 0
        data += [start.line - line, start.character - character, end.character - start.character]
        data += [KINDS.index(word.kind), 0]
        line, character = start.line, start.character
    return data
