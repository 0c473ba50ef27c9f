"""Records a page: runs its commands in an empty folder, and writes what they print and how long they take into it.

`python -m tests.docs.record docs/first-session.md`. Blocks marked `unrun` are run as well: here is the machine for it.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from pathlib import Path

from tests.docs.pages import Block, blocks, commands
from tests.docs.shell import Shell

ROOT = Path(__file__).parent.parent.parent
SHOWN_CLONE = "https://example.org/streamkit.git"
LIMIT_S = 900
TOOK = re.compile(r"\n\*Took [^\n]*\*\n")
WHOLE = re.compile(r"(took \*\*)[^*]*(\*\*)")


def record(page: Path, folder: Path) -> str:
    """Return the page with what its commands print now."""
    text = TOOK.sub("", page.read_text(encoding="utf-8"))
    began = time.monotonic()
    shell = Shell(folder, own_commands=False)
    try:
        for block in list(blocks(page, page.name)):
            if "file" in block.options:
                (folder / block.options["file"]).write_text(block.text, encoding="utf-8")
            elif block.language == "console":
                start = time.monotonic()
                printed = _printed(block, shell)
                took = f"\n*Took {time.monotonic() - start:.0f} s.*\n"
                text = text.replace(f"\n{block.text}```\n", f"\n{printed}```\n{took}", 1)
    finally:
        shell.close()
    return WHOLE.sub(rf"\g<1>{time.monotonic() - began:.0f} s\2", text)


def _printed(block: Block, shell: Shell) -> str:
    """Run a block's commands; return them with what came."""
    lines: list[str] = []
    for command in commands(block):
        code, came = shell.run(command.text.replace(SHOWN_CLONE, f"{ROOT} streamkit"), LIMIT_S)
        if code != command.code:
            raise SystemExit(f"{command.text}\nended with {code}, not {command.code}:\n" + "\n".join(came))
        lines += ["$ " + command.text.replace("\n", "\n> "), *(line.rstrip() for line in came)]
        lines += [f"[exit code {code}]"] if code else []
    return "".join(line + "\n" for line in lines)


def main(arguments: list[str]) -> int:
    """Record the pages that are named."""
    for name in arguments:
        page = Path(name)
        with tempfile.TemporaryDirectory() as folder:
            text = record(page, Path(folder))
        temporary = page.with_suffix(".new")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
