"""Writes docs/commands.md and docs/lint.md, from the help of the commands and from the rules.

`python -m streamkit_cli.command_reference --write DOCS` writes them; `--check DOCS` exits 1 when they are out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from streamkit.lint import RULES
from streamkit_cli.command_line import COMMANDS
from streamkit_cli.reference_pages import command_section, help_text, rule_section

HEAD = """\
# Commands

Exit codes: 0 success, 1 the topology or the job failed, 2 wrong usage. Results go to stdout, everything else to stderr.

## Values of settings

The first of these that names a setting decides: `--set NAME=value`, the environment, `--env-file`, `config` of the file, the default.
In the environment a setting is called `STREAMKIT_` and its name in capitals, with `_` for `.` and `-`: `STREAMKIT_NUM_STREAM_THREADS`
is `num.stream.threads`. `streamkit config FILE` shows each value and where it comes from.

`--verbose` before the command shows tracebacks, with the lines of generated code in them, and more of the log.

`STREAMKIT_NATIVE=off` turns the native extension off. Where it was built it reads and writes the records of Kafka, checks,
measures and merges values, counts in caches, and hashes foreign keys. The default is `auto`. `streamkit doctor` shows whether it is in
use.

<!-- Below: written by `make generate` from the commands' own help. -->
"""
LINT = """\
# Rules of `validate --strict`

A valid topology may break them; each has a reason. What is certainly a mistake, marked as an error, `validate` reports without
`--strict` too. A comment
`# lint: ignore=RULE` in the line silences one place, `--ignore RULE` a whole run.

<!-- Below: written by `make generate` from the rules. -->

| rule | finds |
|---|---|
"""


def commands() -> str:
    """Return docs/commands.md."""
    help_of = help_text([])
    return "\n".join([HEAD, *(command_section(name, help_of(name)) for name in COMMANDS)])


def rules() -> str:
    """Return docs/lint.md."""
    rows = "".join(
        f"| [`{rule.code}`](#{rule.code}) | {rule.summary}{' An error.' if rule.is_mistake else ''} |\n"
        for rule in RULES.values()
    )
    return LINT + rows + "".join(f"\n{rule_section(rule)}" for rule in RULES.values())


def keep(files: dict[Path, str | None], write: bool) -> int:
    """Write files, or compare them; one without a text must not exist. Return the exit code."""
    stale = 0
    for path, text in files.items():
        if (path.read_text(encoding="utf-8") if path.exists() else None) == text:
            continue
        if not write:
            print(f"{path} is out of date: make generate", file=sys.stderr)
            stale = 1
        elif text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return stale


def main(arguments: list[str]) -> int:
    """Write or check the pages in a folder; return the exit code."""
    if len(arguments) != 2 or arguments[0] not in ("--write", "--check"):
        print("usage: python -m streamkit_cli.command_reference --write|--check DOCS", file=sys.stderr)
        return 2
    folder = Path(arguments[1])
    return keep({folder / "commands.md": commands(), folder / "lint.md": rules()}, arguments[0] == "--write")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
