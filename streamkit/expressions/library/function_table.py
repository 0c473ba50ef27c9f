"""The functions of the library by name, in the order of the reference."""

from __future__ import annotations

from streamkit.expressions.library import (
    field_functions,
    hash_functions,
    number_functions,
    pattern_functions,
    text_functions,
    time_functions,
)
from streamkit.expressions.library.function_entry import LibraryFunction

SECTIONS: dict[str, tuple[LibraryFunction, ...]] = {
    "Times": time_functions.ENTRIES,
    "Fields and keys": field_functions.ENTRIES,
    "JSON, base64, URLs": text_functions.ENTRIES,
    "Patterns": pattern_functions.ENTRIES,
    "Numbers": number_functions.ENTRIES,
    "Hashes": hash_functions.ENTRIES,
}
LIBRARY: dict[str, LibraryFunction] = {each.name: each for entries in SECTIONS.values() for each in entries}
