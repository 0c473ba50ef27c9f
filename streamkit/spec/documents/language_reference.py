"""The language reference: every operator's summary, options and example as Markdown, written into docs/language.md.

`python -m streamkit.spec.documents.language_reference --write docs/language.md` replaces the text below the marker; `--check` exits 1
when the file is out of date. The text above the marker is not generated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import MISSING
from pathlib import Path

from streamkit.errors import UsageError
from streamkit.expressions.library.function_entry import LibraryFunction
from streamkit.expressions.library.function_table import SECTIONS
from streamkit.operators.core import fields as kinds
from streamkit.operators.core.operator import AnyOperator, Example
from streamkit.spec.documents import end_examples, step_examples
from streamkit.spec.documents.step_examples import Shown

MARKER = "<!-- Below: written by `make generate` from streamkit/operators/. -->"

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


def render(operators: Iterable[AnyOperator]) -> str:
    """Return the section of all operators, in the order given."""
    listed = list(operators)
    index = " · ".join(f"[`{operator.name}`](#{operator.name})" for operator in listed)
    ends = ["## Sources and ends", *(_shown(each) for each in end_examples.ENDS)]
    return "\n\n".join(["## Functions", *_functions(), "## Steps", index, *map(_operator, listed), *ends]) + "\n"


def _functions() -> list[str]:
    parts = [
        "Functions of expressions beyond those of Python, which [expressions](#expressions) lists. A time is a whole number of "
        "milliseconds since the epoch, in UTC. Arguments are given by position. A function of the file with the same name goes "
        "before one of these. What they make and how long they take is bounded and counted as for everything else; what an "
        "argument does not allow is an error of the step, and for a constant one of `validate`."
    ]
    for title, entries in SECTIONS.items():
        parts.append(f"### {title}")
        rows = [f"| `{each.signature}` | {_cell(each.doc)} | {_function_examples(each)} |" for each in entries]
        parts.append("\n".join(["| function | result | |", "|---|---|---|", *rows]))
    return parts


def _function_examples(function: LibraryFunction) -> str:
    return _cell("<br>".join(f"`{written}` is `{shown}`" for written, shown in function.examples))


def _operator(operator: AnyOperator) -> str:
    parts = [f"### `{operator.name}`", operator.summary, f"On: {_words(operator.accepts)}."]
    if operator.main:
        parts[-1] += f" `{operator.name}: X` is short for `{operator.name}: {{{operator.main}: X}}`."
    if operator.is_extension:
        parts[-1] += " A step of streamkit's own, which Kafka Streams does not have."
    if operator.fields:
        rows = [
            f"| `{field.name}` | {describe_kind(field.kind)} | {_default(field)} | {_cell(field.doc)} |"
            for field in operator.fields
        ]
        parts.append("\n".join(["| option | what | default | |", "|---|---|---|---|", *rows]))
    example = getattr(operator, "example", None)
    if example is not None:
        parts.append(_example(example))
    parts += map(_shown, step_examples.STEPS.get(operator.name, ()))
    return "\n\n".join(parts)


def _shown(example: Shown) -> str:
    return f"{example.title}\n\n{_example(example)}"


def _example(example: Example | Shown) -> str:
    parts = [_block("yaml", example.topology)]
    for name, text in example.files.items():
        parts += [f"`{name}`:", _block("python", text)]
    parts += ["In and out:", _block("json", example.input), _block("json", example.output)]
    return "\n\n".join(parts)


def describe_kind(kind: kinds.Kind) -> str:
    """Return what a kind of field holds, in words.

    >>> describe_kind(kinds.Choice(("on_update", "on_close")))
    '`on_update` or `on_close`'
    """
    template = next((_KINDS[base] for base in type(kind).__mro__ if base in _KINDS), type(kind).__name__.lower())
    text = template.format(
        names=" ".join(f"`{name}`" for name in getattr(kind, "names", ())),
        minimum=getattr(kind, "minimum", 0),
        words=" or ".join(f"`{word}`" for word in getattr(kind, "words", ())),
    )
    return _cell(text + ", or a list of them" if getattr(kind, "many", False) else text)


def _default(field: kinds.Field) -> str:
    if field.required:
        return "required"
    if isinstance(field.default, bool):  # as YAML has it
        return f"`{str(field.default).lower()}`"
    return "" if field.default in (None, MISSING) else f"`{field.default}`"


def _words(accepts: Iterable[str]) -> str:
    return ", ".join(name.replace("_", " ") for name in accepts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text.strip()}\n```"


def registered() -> list[AnyOperator]:
    """Return all operators, in their order."""
    from streamkit.operators import OPERATORS

    return list(OPERATORS.values())


def updated(text: str) -> str:
    """Return the reference's text with everything below the marker written again. Raises UsageError without a marker."""
    head, marker, _ = text.partition(MARKER)
    if not marker:
        raise UsageError(f"no line {MARKER}")
    return f"{head}{MARKER}\n\n{render(registered())}"


def main(arguments: list[str]) -> int:
    """Run the command line; return its exit code. `--plugins` prints the section of what installed plugins add."""
    if arguments == ["--plugins"]:
        from streamkit.operators import STEPS

        print(render(STEPS.added.values()))
        return 0
    if len(arguments) != 2 or arguments[0] not in ("--write", "--check"):
        print(
            "usage: python -m streamkit.spec.documents.language_reference --write|--check FILE, or --plugins",
            file=sys.stderr,
        )
        return 2
    path = Path(arguments[1])
    before = path.read_text(encoding="utf-8")
    try:
        after = updated(before)
    except UsageError as error:
        print(f"{path}: {error}", file=sys.stderr)
        return error.exit_code
    if arguments[0] == "--write":
        path.write_text(after, encoding="utf-8")
    elif before != after:
        print(f"{path} is out of date: make generate", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
