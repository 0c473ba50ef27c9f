"""The language reference: every operator's summary, options and example as Markdown, written into the pages of docs/language.

`python -m streamkit.spec.language_reference --write docs/language` replaces the text below the marker of each page;
`--check` exits 1 when a page is out of date. The text above the marker is not generated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import MISSING
from importlib import resources
from pathlib import Path

import yaml

from streamkit.errors import UsageError
from streamkit.expressions.function_entry import LibraryFunction
from streamkit.expressions.function_table import SECTIONS
from streamkit.operators import OPERATORS, STEPS
from streamkit.operators.core import fields as kinds
from streamkit.operators.core.operator import Example, StepDeclaration
from streamkit.spec.macros import TYPES
from streamkit.spec.markdown import block, cell

MARKER = "<!-- Below: written by `make generate` from streamkit/operators/. -->"

MACROS = (
    "Steps of the file's own, with parameters: `NAME: {description, params, steps}`. `params` maps a name to its type, or "
    "to `{type, default, description}`; `default: null` leaves the option out that has the parameter. A pipeline uses a "
    "macro like a step: `- NAME: {PARAMETER: VALUE}`, or `- NAME: VALUE` if only one parameter needs a value. Only in "
    "streamkit, not in Kafka Streams."
)

_KINDS: dict[type, str] = {
    kinds.Expr: "expression of {names}",
    kinds.SerdeField: "serde",
    kinds.Text: "text",
    kinds.Duration: "duration",
    kinds.SignedDuration: "duration, which may be negative (`-5m`)",
    kinds.Integer: "integer, at least {minimum}",
    kinds.Fraction: "number from 0 to 1",
    kinds.Choice: "{words}",
    kinds.Flag: "`true` or `false`",
    kinds.TopicConfig: "settings of a topic",
    kinds.DurationOr: "{words} or a duration",
    kinds.StoreField: "store",
    kinds.StoreNames: "list of stores",
    kinds.BaseName: "text",
    kinds.PipelineRef: "pipeline",
    kinds.CogroupInputs: "list of `{{from: PIPELINE, add: EXPRESSION}}`",
    kinds.Branches: "`{{NAME: condition}}`, `{{NAME: {{if, steps, to, for_each, chained}}}}`, or a list of them without NAME",
    kinds.DefaultBranch: "text, or `true`",
    kinds.HeaderMap: "`{{NAME: expression or null}}`",
    kinds.Callable_: "`module:object`",
    kinds.Arguments: "mapping of arguments",
    kinds.CacheField: "`{{size, ttl}}`",
}


def pages() -> dict[str, str]:
    """Return the generated part of each page, by the name of its file."""
    groups: dict[str, list[StepDeclaration]] = {}
    for operator in OPERATORS.values():
        groups.setdefault(group_of(operator), []).append(operator)
    parts = {f"{group}.md": render(operators) for group, operators in groups.items()}
    ends = ["## Sources and ends", *map(_shown, examples_of_ends())]
    parts["topics.md"] += "\n" + "\n\n".join(ends) + "\n"
    return {"README.md": _index(groups), "functions.md": _functions(), "macros.md": describe_macros(), **parts}


def group_of(operator: StepDeclaration) -> str:
    """Return the group of a step, after which its page is called: the package of its module."""
    return type(operator).__module__.split(".")[-2]


def render(operators: Iterable[StepDeclaration]) -> str:
    """Return the sections of operators, in the order given."""
    return "\n\n".join(map(describe_operator, operators)) + "\n"


def _index(groups: dict[str, list[StepDeclaration]]) -> str:
    lines = ["## Steps", ""]
    for group, operators in groups.items():
        steps = " ".join(f"[`{operator.name}`]({group}.md#{operator.name})" for operator in operators)
        lines.append(f"- [{group.capitalize()}]({group}.md): {steps}")
    return "\n".join(lines) + "\n"


def _functions() -> str:
    parts = []
    for title, entries in SECTIONS.items():
        rows = [f"| `{entry.signature}` | {cell(entry.doc)} | {_function_examples(entry)} |" for entry in entries]
        parts += [f"## {title}", "\n".join(["| function | result | |", "|---|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def describe_function(function: LibraryFunction) -> str:
    """Return the section of a function: its signature, its result, and examples."""
    examples = "\n".join(f"- `{written}` is `{shown}`" for written, shown in function.examples)
    return f"## `{function.signature}`\n\n{function.doc}\n\n{examples}\n"


def describe_macros() -> str:
    """Return the section of macros: the types of parameters, and examples."""
    rows = [f"| `{name}` | {cell(type_.doc)} |" for name, type_ in TYPES.items()]
    table = "\n".join(["| type of a parameter | its arguments |", "|---|---|", *rows])
    return "\n\n".join(["## `macros`", MACROS, table, *map(_shown, examples_of_macros())]) + "\n"


def _function_examples(function: LibraryFunction) -> str:
    return cell("<br>".join(f"`{written}` is `{shown}`" for written, shown in function.examples))


def describe_operator(operator: StepDeclaration) -> str:
    """Return the section of a step: its summary, its options, and examples."""
    accepted = ", ".join(operator.accepts).replace("_", " ")
    parts = [f"## `{operator.name}`", operator.summary, f"On: {accepted}."]
    if operator.main:
        parts[-1] += f" `{operator.name}: X` is short for `{operator.name}: {{{operator.main}: X}}`."
    if operator.is_extension:
        parts[-1] += " Only in streamkit, not in Kafka Streams."
    if operator.fields:
        rows = [
            f"| `{field.name}` | {describe_kind(field.kind)} | {_default(field)} | {cell(field.doc)} |"
            for field in operator.fields
        ]
        parts.append("\n".join(["| option | what | default | |", "|---|---|---|---|", *rows]))
    parts += map(_shown, examples_of(operator))
    return "\n\n".join(parts)


def examples_of(operator: StepDeclaration) -> list[Example]:
    """Return the examples of a step: `example`, or those of NAME.yaml beside its module. Raises UsageError for a malformed file."""
    example = getattr(operator, "example", None)
    package = type(operator).__module__.rpartition(".")[0]
    return [example] if example is not None else packaged_examples(package, operator.name) if package else []


def examples_of_ends() -> list[Example]:
    """Return the examples of sources and ends of pipelines, which are not steps."""
    return packaged_examples("streamkit.spec", "sources_and_ends")


def examples_of_macros() -> list[Example]:
    """Return the examples of macros."""
    return packaged_examples("streamkit.spec", "macros")


def examples_of_rules() -> dict[str, dict[str, str]]:
    """Return for each rule of the linter a topology that breaks it (`bad`), and one that does not (`good`)."""
    examples: dict[str, dict[str, str]] = yaml.safe_load(
        (resources.files("streamkit") / "lint.yaml").read_text("utf-8")
    )
    return examples


def packaged_examples(package: str, name: str) -> list[Example]:
    """Return the examples in the file NAME.yaml of a package; none without such a file. Raises UsageError for a malformed one."""
    file = resources.files(package) / f"{name}.yaml"
    return parse_examples(file.read_text(encoding="utf-8"), f"{package}: {name}.yaml") if file.is_file() else []


def parse_examples(text: str, source: str) -> list[Example]:
    """Return examples that are written as a list of mappings with the fields of `Example`. Raises UsageError."""
    try:
        return [Example(**fields) for fields in yaml.safe_load(text)]
    except (yaml.YAMLError, TypeError) as error:
        raise UsageError(f"{source} is not a list of examples: {error}") from error


def _shown(example: Example) -> str:
    parts = [example.title] if example.title else []
    parts.append(block("yaml", example.topology))
    for name, text in example.files.items():
        parts += [f"`{name}`:", block("python", text)]
    parts += ["Input and output:", block("json", example.input), block("json", example.output)]
    return "\n\n".join(parts)


def describe_kind(kind: kinds.Kind) -> str:
    """Return the contents of a kind of field in words.

    >>> describe_kind(kinds.Choice(("on_update", "on_close")))
    '`on_update` or `on_close`'
    """
    template = next((_KINDS[base] for base in type(kind).__mro__ if base in _KINDS), type(kind).__name__.lower())
    text = template.format(
        names=" ".join(f"`{name}`" for name in getattr(kind, "names", ())),
        minimum=getattr(kind, "minimum", 0),
        words=" or ".join(f"`{word}`" for word in getattr(kind, "words", ())),
    )
    return cell(text + ", or a list of them" if getattr(kind, "many", False) else text)


def _default(field: kinds.Field) -> str:
    if field.required:
        return "required"
    if isinstance(field.default, bool):  # as YAML has it
        return f"`{str(field.default).lower()}`"
    return "" if field.default in (None, MISSING) else f"`{field.default}`"


def updated(text: str, generated: str) -> str:
    """Return a page's text with everything below the marker replaced. Raises UsageError without a marker."""
    head, marker, _ = text.partition(MARKER)
    if not marker:
        raise UsageError(f"no line {MARKER}")
    return f"{head}{MARKER}\n\n{generated}"


def main(arguments: list[str]) -> int:
    """Run the command line; return its exit code. `--plugins` prints the sections of the steps that installed plugins add."""
    if arguments == ["--plugins"]:
        print(render(STEPS.added.values()))
        return 0
    if len(arguments) != 2 or arguments[0] not in ("--write", "--check"):
        print(
            "usage: python -m streamkit.spec.language_reference --write|--check FOLDER, or --plugins",
            file=sys.stderr,
        )
        return 2
    return max(_keep(Path(arguments[1]) / name, text, arguments[0] == "--write") for name, text in pages().items())


def _keep(path: Path, generated: str, write: bool) -> int:
    """Write a page or compare it; return the exit code."""
    try:
        before = path.read_text(encoding="utf-8")
        after = updated(before, generated)
    except (OSError, UsageError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return UsageError.exit_code
    if write:
        path.write_text(after, encoding="utf-8")
    elif before != after:
        print(f"{path} is out of date: make generate", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
