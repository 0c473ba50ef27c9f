"""`streamkit validate`: every problem of some files at once."""

from __future__ import annotations

from typing import Annotated

import typer

from streamkit.errors import UsageError
from streamkit.suggestions import did_you_mean
from streamkit_cli.options import CiFormat, EnvFile, Problems, Settings
from streamkit_cli.problems import CheckOptions, validate_files

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE…",
        help="Topologies, tests, job files, or folders; - is stdin, with a topology or a job.",
        show_default=False,
    ),
]
Excerpt = Annotated[
    bool | None,
    typer.Option(
        "--excerpt/--no-excerpt", help="Show the lines of the file below each problem; the default on a terminal."
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Also report violations of the rules in docs/lint.md.")]
Ignore = Annotated[
    list[str] | None, typer.Option("--ignore", metavar="RULE", help="Ignore a rule of --strict; may be repeated.")
]
Online = Annotated[
    bool,
    typer.Option(
        "--online",
        help="Fetch the subjects' schemas from the schema registry, and check whether schemas in files are compatible.",
    ),
]

Imports = Annotated[
    bool,
    typer.Option(
        "--imports", help="Import the modules that the files name, which runs their code, and check the calls."
    ),
]


def validate(
    files: Files,
    strict: Strict = False,
    online: Online = False,
    imports: Imports = False,
    ignore: Ignore = None,
    form: Problems = CiFormat.text,
    excerpt: Excerpt = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> int:
    """Find every mistake in topologies, tests and job files.

    A folder means the topologies, tests (*.test.yaml) and job files below it, a pattern such as '*.yaml' the files that match. No
    code of a file runs without --imports. Each problem is a line FILE:LINE:COL: message. Exit code 0: no problem, 1:
    problems, 2: a file does not exist.

    Examples:
        streamkit validate orders.yaml
        streamkit validate topologies --strict --format github
    """
    ignored = frozenset(ignore or ())
    if ignored:
        from streamkit.lint import EVERY_RULE

        unknown = sorted(ignored - EVERY_RULE.keys())
        if unknown:
            hint = did_you_mean(unknown[0], EVERY_RULE, f"known are {', '.join(EVERY_RULE)}")
            raise UsageError(f"--ignore {unknown[0]}: there is no such rule{hint}")
    return validate_files(
        files, CheckOptions(excerpt, settings, env_file, strict, ignored, form.value, online, imports)
    )
