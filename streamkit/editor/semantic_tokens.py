"""Semantic tokens: the words within expressions, which editors would otherwise show as plain YAML scalars."""

from __future__ import annotations

from lsprotocol import types as lsp

from streamkit.editor import KINDS
from streamkit.editor.names import Word, placed_words
from streamkit.editor.project import Project, identity, path_of
from streamkit.editor.texts import Text


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
