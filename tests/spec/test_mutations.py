"""Whatever stands in a file: a model, or problems with places inside the file, and never another exception."""

from __future__ import annotations

import random

import pytest

from streamkit import spec
from streamkit.errors import TopologyError
from tests.spec.helpers import TOPOLOGIES

FILES = 1000
WORDS = (
    "null", "~", "[]", "{}", "5", "-1", "true", "'", '"', ": ", "- ", "&a ", "*a ", "<<: ", "!!int ", "|\n", ">-\n", "#", "${X}",
    "${X:-1}", "\t", "\r", "é", "\u2028", "\x85", "\ufeff", "🎉", "@", "%", "`", "1e999", "0x", ".nan", "call: ", "{call: m:f}",
    "when: ", "name: ", "9" * 50, "(" * 200, "a.b", "..", "? ", "---\n", "...\n", ",", "}", "]", "\\",
)  # fmt: skip


def mutate(text: str, choose: random.Random) -> str:
    """Return a text with up to four changes: characters, lines and words taken away, doubled, moved or put in."""
    for _ in range(choose.randint(1, 4)):
        lines = text.split("\n")
        line = choose.randrange(len(lines))
        place = choose.randrange(len(text) + 1)
        action = choose.randrange(8)
        if action == 0:
            text = text[:place] + text[place + choose.randint(1, 5) :]
        elif action in (1, 2):
            text = text[:place] + choose.choice(WORDS) + text[place:]
        elif action == 3:
            text = "\n".join(lines[:line] + lines[line + 1 :])
        elif action == 4:
            text = "\n".join(lines[: line + 1] + lines[line:])
        elif action == 5:
            lines[line] = " " * choose.randint(0, 8) + lines[line].strip()
            text = "\n".join(lines)
        elif action == 6:
            key, colon, _ = lines[line].partition(": ")
            lines[line] = key + colon + choose.choice(WORDS)
            text = "\n".join(lines)
        else:
            text = text[:place] + chr(choose.choice((choose.randrange(128), choose.randrange(0x3000)))) + text[place:]
    return text


@pytest.mark.parametrize("seed", range(10))
def test_mutated_files(seed):
    choose = random.Random(seed)
    originals = [path.read_text(encoding="utf-8") for path in TOPOLOGIES]
    for _ in range(FILES // 10):
        text = mutate(choose.choice(originals), choose)
        try:
            spec.load_text(text, "f.yaml", environment={})
        except TopologyError as error:
            check_places(text, error)


def check_places(text, error):
    """Every problem has one line of text and stands in the file; one behind the end of a line is allowed."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert error.problems
    for problem in error.problems:
        assert 1 <= problem.position.line <= len(lines), text
        assert 1 <= problem.position.column <= len(lines[problem.position.line - 1]) + 1, (str(problem), text)
        assert "\n" not in problem.message, text
