"""The words of docs/style.md and the names of modules: what is banned stays out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Whom a sentence means must be named; the rest is old or literary.
WORDS = re.compile(
    r"\b(whoever|nobody|somebody|anybody|everybody|anew|thereof|lest|save for|of who|and its kin)\b", re.IGNORECASE
)
# Shows each banned word beside what replaces it.
PAGE_OF_WORDS = ROOT / "docs" / "style.md"
TEXTS = [
    path
    for path in sorted(
        [*ROOT.glob("streamkit/**/*.py"), *ROOT.glob("cli/**/*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    )
    if path != PAGE_OF_WORDS
]
MODULES = [
    path
    for path in [*ROOT.glob("streamkit/**/*.py"), *ROOT.glob("cli/**/*.py")]
    if path.name not in ("__init__.py", "__main__.py") and "templates" not in path.parts
]
NAMED = re.compile(r"^\s*(?:async +)?(?:def|class) +(\w+)", re.MULTILINE)
# They say nothing of what the thing is in the words of the field.
BANNED_NAMES = {
    *("hand", "asked", "asking", "starts", "following", "patience", "pace", "told", "say", "whole", "together"),
    *("letters", "lines", "front", "wire", "held", "boxes"),
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_banned_word_is_in_code_or_pages() -> None:
    found = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in TEXTS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if WORDS.search(line)
    ]
    assert not found, f"docs/style.md has what replaces these words: {found}"


def public_names(path: Path) -> Iterator[str]:
    """The module's own name, and those of its functions, classes and methods."""
    yield path.stem
    yield from NAMED.findall(path.read_text(encoding="utf-8"))


def test_no_banned_word_is_a_name() -> None:
    found = {
        f"{name_of(path)}: {name}" for path in MODULES for name in public_names(path) if name.lower() in BANNED_NAMES
    }
    assert found == set()


def test_no_two_modules_have_one_name() -> None:
    counts = Counter(path.stem for path in MODULES)
    assert {name for name, count in counts.items() if count > 1} == set()
