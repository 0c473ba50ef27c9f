"""The words of docs/style.md and the names of modules: what is banned stays out, and today's exceptions only become fewer."""

from __future__ import annotations

import ast
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
# They say nothing of what the thing is in the words of the field.
BANNED_NAMES = {
    *("hand", "asked", "asking", "starts", "following", "patience", "pace", "told", "say", "whole", "together"),
    *("letters", "lines", "front", "wire", "held", "boxes"),
}
# A name that goes is taken out; none comes in.
BANNED_STILL_THERE = {
    "cli/guard.py: say",
    "streamkit/changes/stores.py: held",
    "streamkit/http/stores.py: asked",
    "streamkit/operators/hand.py: Hand",
    "streamkit/operators/hand.py: hand",
    "streamkit/runtime/local/following.py: Following",
    "streamkit/runtime/local/following.py: following",
    "streamkit/runtime/local/pace.py: Pace",
    "streamkit/runtime/local/pace.py: pace",
    "streamkit/runtime/local/patience.py: Patience",
    "streamkit/runtime/local/patience.py: patience",
    "streamkit/runtime/local/starts.py: Starts",
    "streamkit/runtime/local/starts.py: starts",
    "streamkit/runtime/replay.py: letters",
    "streamkit/runtime/spark/arrow_rows.py: whole",
    "streamkit/runtime/spark/json_output.py: Lines",
    "streamkit/runtime/spark/split.py: together",
    "streamkit/runtime/spark/worker.py: told",
    "streamkit/runtime/local/tasks.py: held",
    "streamkit/runtime/local/thread.py: held",
    "streamkit/serdes/base.py: held",
    "streamkit/serdes/primitives.py: held",
}
TWICE_STILL_THERE = {
    *("admin", "app", "base", "codec", "compare", "config", "consumer", "context"),
    *("driver", "environment", "errors", "flow", "groups", "growth", "join", "kinds", "limits"),
    *("load", "log", "lookup", "membership", "metrics", "model", "names", "options"),
    *("process", "producer", "progress", "reference", "replay", "report", "run", "schema", "serdes"),
    *("session", "state", "status", "stores", "submit", "suppress", "tasks", "topics", "topology"),
    *("window", "writer"),
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
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def test_no_banned_word_is_a_name() -> None:
    found = {
        f"{name_of(path)}: {name}" for path in MODULES for name in public_names(path) if name.lower() in BANNED_NAMES
    }
    assert found == BANNED_STILL_THERE


def test_no_two_modules_have_one_name() -> None:
    counts = Counter(path.stem for path in MODULES)
    assert {name for name, count in counts.items() if count > 1} == TWICE_STILL_THERE
