"""Reads the code blocks of Markdown pages, and the commands of console blocks with the output that they show.

A block's first line is its language and options: `yaml file=alerts.yaml` is written to that file; `console` is run;
`broker` after it: a Kafka broker stands in for localhost:9092; `unrun`: it needs what is not there, such as kubectl, and is
only checked for its syntax. In shown output a line of `…` stands for any lines, and `…` in a line for any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>```+)(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=indent)(?P=fence)[ ]*$", re.M | re.S
)
_EXIT = re.compile(r"\[exit code (\d+)\]")
ANY = "…"


@dataclass(frozen=True)
class Block:
    """A fenced block. options: the words after the language, `name=value` or flags."""

    page: str
    line: int
    language: str
    options: dict[str, str]
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass
class Command:
    """A command of a console block; shown: the lines of output below it."""

    text: str
    line: int
    shown: list[str] = field(default_factory=list)
    code: int = 0


def blocks(path: Path, name: str) -> Iterator[Block]:
    """Yield the blocks of a page; generated parts, which have tests of their own, are left out."""
    text = path.read_text(encoding="utf-8").partition("<!-- Below: written by `make generate`")[0]
    for match in _FENCE.finditer(text):
        language, *words = match["info"].split() or [""]
        options = {key: value for key, _, value in (word.partition("=") for word in words)}
        indent = len(match["indent"])
        body = "".join(line[indent:] if line.strip() else line for line in match["text"].splitlines(keepends=True))
        yield Block(name, text.count("\n", 0, match.start()) + 1, language, options, body)


def commands(block: Block) -> list[Command]:
    """Return the commands of a console block: `$ ` begins one, `> ` continues it, what follows is its output."""
    found: list[Command] = []
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ "):
            found.append(Command(line[2:], number))
            continue
        assert found, f"{block.page}:{number}: output before the first command"
        if line.startswith("> ") or line == ">":
            found[-1].text += "\n" + line[2:]
        elif _EXIT.fullmatch(line):
            found[-1].code = int(line.split()[2].rstrip("]"))
        else:
            found[-1].shown.append(line)
    for command in found:
        while command.shown and not command.shown[-1].strip():
            command.shown.pop()
    return found


def fits(shown: list[str], came: list[str]) -> bool:
    """Tell whether output is the one shown; trailing blanks don't count.

    >>> fits(["a…", "…", "z"], ["abc", "d", "e", "z"]), fits(["a"], ["a", "b"])
    (True, False)
    """
    pattern = ""
    for line in shown:
        if line.strip() == ANY:
            pattern += "(.*\n)*?"
        else:
            pattern += ".*".join(map(re.escape, line.rstrip().split(ANY))) + "\n"
    text = "".join(line.rstrip() + "\n" for line in came)
    return re.fullmatch(pattern, text.rstrip("\n") + "\n" if text.strip() else "") is not None
