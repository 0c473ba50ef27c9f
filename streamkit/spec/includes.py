"""`include`: sections of other files, as if their entries stood in the file that includes them."""

from __future__ import annotations

import os
from collections.abc import Callable

from streamkit.errors import Problem, TopologyError, UsageError
from streamkit.spec.yaml_nodes.nodes import Node, Source, check_keys, compose
from streamkit.spec.yaml_nodes.reader import BAD, Reader

SECTIONS = ("config", "topics", "functions", "stores")
KEYS = ("include", *SECTIONS)
_MOST = 100
"""Files that one topology includes."""


def with_includes(reader: Reader, root: Node, read_text: Callable[[str], str]) -> tuple[Node | None, dict[str, str]]:
    """Return the root with the sections of the files that it includes, and the texts of these files by name.

    Each file counts once, however many include it. Entries keep their places, so that problems name the right file. The
    root is None where a file can't be read or has no sections: names that it may have are no second problem.
    """
    including = _Including(reader, read_text)
    including.visit(root, reader.folder, [(_identity(reader.source.file), reader.source.file)])
    if including.is_broken:
        return None, {}
    if not including.texts:
        return root, {}
    merged = Node("mapping", [], root.start, root.end, root.source)
    own = {key.value: (key, value) for key, value in root.value if key.kind == "scalar"}
    for name in SECTIONS:
        if name in including.sections:
            own[name] = including.joined(name, own.get(name))
    merged.value = list(own.values())
    merged.size = root.size
    return merged, including.texts


class _Including:
    """Visits files; `sections` has the key node of each section and its entries, `texts` the texts by file."""

    def __init__(self, reader: Reader, read_text: Callable[[str], str]):
        self._reader = reader
        self._read_text = read_text
        self._seen: set[str] = set()
        self.sections: dict[str, list[tuple[Node, Node]]] = {}
        self.texts: dict[str, str] = {}
        self.is_broken = False

    def visit(self, node: Node, folder: str, path: list[tuple[str, str]]) -> None:
        """Add the sections of the files that a mapping includes. path: the files from the topology to this one."""
        if node.kind != "mapping":
            return
        for key, value in node.value:
            if key.kind == "scalar" and key.value == "include" and not self._reader.is_null(value):
                for item in value.value if value.kind == "list" else [value]:
                    self._include(item, folder, path)

    def _include(self, item: Node, folder: str, path: list[tuple[str, str]]) -> None:
        name = self._reader.text(item, "A file of 'include'")
        if name is BAD:
            return
        file = os.path.normpath(os.path.join(folder, name))
        if "\0" in file or (os.path.exists(file) and not os.path.isfile(file)):
            # A pipe would be waited for without an end.
            self._reader.report(item, f"The included file can't be read: {file!r} is no regular file")
            self.is_broken = True
            return
        identity = _identity(file)
        at = next((place for place, (known, _) in enumerate(path) if known == identity), None)
        if at is not None:
            circle = " -> ".join([*(shown for _, shown in path[at:]), file])
            self._reader.report(item, f"Files include each other in a circle: {circle}")
            return
        if identity in self._seen:
            return
        self._seen.add(identity)
        if len(self._seen) > _MOST:
            self._reader.report(item, f"A topology includes at most {_MOST} files")
            self.is_broken = True
            return
        root = self._composed(item, file)
        if root is None:
            return
        self.is_broken = self.is_broken or root.kind != "mapping"
        found = self._reader.options(root, "An included file", KEYS)
        self.visit(root, os.path.dirname(file), [*path, (identity, file)])
        for section in SECTIONS:
            if section in found and found[section].kind != "mapping":
                self._reader.report_mismatch(found[section], f"'{section}'", "a mapping")
                self.is_broken = True
            elif section in found:
                self.sections.setdefault(section, []).extend(found[section].value)

    def _composed(self, item: Node, file: str) -> Node | None:
        """Return the root of a file; None after a problem, or where the file is empty."""
        problems: list[Problem] = []
        root = None
        try:
            text = self.texts[file] = self._read_text(file)
            root = compose(Source(text, file), problems)
        except UsageError as error:
            self._reader.report(item, f"The included file can't be read: {error}")
            self.is_broken = True
        except TopologyError as error:
            problems += error.problems
        self.is_broken = self.is_broken or bool(problems)
        if root is not None:
            check_keys(root, problems)
        self._reader.problems.extend(problems)
        return None if root is None or self._reader.is_null(root) else root

    def joined(self, name: str, own: tuple[Node, Node] | None) -> tuple[Node, Node]:
        """Return a section's key and mapping: the entries of included files, then those of the file itself."""
        entries = self.sections[name]
        key, mapping = own if own is not None else (_named(name, entries[0][0]), entries[0][0])
        joined = Node("mapping", [], mapping.start, mapping.end, mapping.source)
        if own is not None and mapping.kind != "mapping" and not self._reader.is_null(mapping):
            return own  # a mistake that the section itself reports
        known: dict[str, Node] = {}
        for entry in [*entries, *(mapping.value if own is not None and mapping.kind == "mapping" else [])]:
            label = entry[0].value
            if entry[0].kind == "scalar" and label in known and known[label].source is not entry[0].source:
                self._reader.report(entry[0], f"{label!r} stands in {known[label].position} too, in '{name}'")
                continue
            known.setdefault(label, entry[0]) if entry[0].kind == "scalar" else None
            joined.value.append(entry)
        return key, joined


def _named(name: str, place: Node) -> Node:
    return Node("scalar", name, place.start, place.end, place.source)


def _identity(file: str) -> str:
    return os.path.realpath(file)
