"""Go to definition, and references: from the index of the names of a topology, of the files that it includes and of its tests."""

from __future__ import annotations

import os
from dataclasses import dataclass

from lsprotocol import types as lsp

from streamkit.editor.analysis import TEST, TEST_SUFFIXES, TOPOLOGY, Analysis, analyse
from streamkit.editor.names import Mention, Names, python_place
from streamkit.editor.project import Project, identity, path_of
from streamkit.editor.texts import Text
from streamkit.errors import StreamkitError


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
        return [each.index for each in (*self.topologies, *self.tests)]


def family(project: Project, uri: str) -> Family:
    """Return the family of a file; topologies and tests that are not open are read from the disk."""
    name = identity(path_of(uri))
    own = project.analyses.get(name)
    if own is not None and own.kind == TEST:
        name = identity(str(own.cases.topology)) if own.cases is not None else ""
    known = [each for each in list(project.analyses.values()) if name in map(identity, each.files)]
    if not known and name and name not in project.analyses:
        known = [each for each in [_read(project, name)] if each is not None]
    return _with_tests(project, [_fresh(project, each) for each in known if each.kind == TOPOLOGY])


def _fresh(project: Project, found: Analysis) -> Analysis:
    """Return the analysis of a topology's present texts: files that are not open change on the disk."""
    read = {found.text.file: found.text.text, **(found.model.included if found.model is not None else {})}
    try:
        is_fresh = all(project.texts.read(file) == text for file, text in read.items())
    except StreamkitError:
        is_fresh = False
    return found if is_fresh else _read(project, found.text.file) or found


def whole_family(project: Project, found: Family, mention: Mention) -> Family:
    """Return a family with all topologies that include a file which names a part: also those that are not open."""
    topologies = {identity(each.text.file): each for each in found.topologies}
    done: set[str] = set()
    while parts := {identity(each.file) for each in mentions(found, mention)} - {*topologies, *done}:
        opened = [each.text.file for each in list(project.analyses.values()) if each.kind == TOPOLOGY]
        near = [each.file for part in parts for each in project.beside(part)]
        for name in dict.fromkeys(map(identity, (*opened, *near))):
            if name not in topologies:
                known = project.analyses.get(name)
                other = _fresh(project, known) if known is not None else _read(project, name)
                if other is not None and not parts.isdisjoint(map(identity, other.files)):
                    topologies[name] = other
        done |= parts
        found = _with_tests(project, list(topologies.values()))
    return found


def _with_tests(project: Project, topologies: list[Analysis]) -> Family:
    known = list(project.analyses.values())
    files = {identity(each.text.file) for each in topologies}
    tests = {
        identity(each.text.file): each
        for each in known
        if each.kind == TEST and each.cases is not None and identity(str(each.cases.topology)) in files
    }
    unread = []
    for test in (os.path.splitext(file)[0] + suffix for file in sorted(files) for suffix in TEST_SUFFIXES):
        if test not in tests and os.path.isfile(test):
            found = _read(project, test)
            if found is not None and found.cases is not None:
                tests[test] = found
            else:
                unread.append(test)
    return Family(tuple(topologies), tuple(tests.values()), tuple(unread))


def _read(project: Project, file: str) -> Analysis | None:
    try:
        text = project.texts.get(file, project.encoding)
    except StreamkitError:
        return None
    return analyse(text, project.texts, project.environment(), project.options.lint)


def mention_at(project: Project, found: Family, text: Text, position: lsp.Position) -> Mention | None:
    """Return the name at a place."""
    offset, file = text.offset(position), identity(text.file)
    return next((each for names in found.indexes if (each := names.at(file, offset)) is not None), None)


def mentions(found: Family, mention: Mention) -> list[Mention]:
    """Return all mentions of a part, each place once."""
    every = (each for names in found.indexes for each in names.of(mention.part))
    return list({(identity(each.file), each.start): each for each in every}.values())


def definition(project: Project, uri: str, text: Text, position: lsp.Position) -> list[lsp.Location]:
    """Return the places that make the part whose name is at a place."""
    found = family(project, uri)
    mention = mention_at(project, found, text, position)
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
    return [location(project, each) for each in mentions(found, mention) if each.defines]


def references(
    project: Project, uri: str, text: Text, position: lsp.Position, with_definitions: bool
) -> list[lsp.Location]:
    """Return the places that name the part whose name is at a place."""
    found = family(project, uri)
    mention = mention_at(project, found, text, position)
    chosen = mentions(whole_family(project, found, mention), mention) if mention is not None else []
    return [location(project, each) for each in chosen if with_definitions or not each.defines]


def location(project: Project, mention: Mention) -> lsp.Location:
    """Return the place of a mention as the protocol has it."""
    text = project.texts.get(mention.file, project.encoding)
    return lsp.Location(project.uri(mention.file), text.span(mention.start, mention.end))
