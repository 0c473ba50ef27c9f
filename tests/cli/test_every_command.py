"""What all commands have in common: names of options, formats, times, examples, help, completion."""

from __future__ import annotations

import os
import re
import shlex
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer

from streamkit_cli.command_line import COMMANDS, FORMER, application, examples_of, function_of, renamed
from streamkit_cli.options import TIME_HELP
from tests.cli.support import UPPER, streamkit

GROUP: Any = typer.main.get_command(application([]))
NOTHING_TO_READ = {"demo", "dev", "new", "run", "produce", "generate", "docs", "completion", "lsp"}
"""Commands that print what to do next, a log, nothing, a script, Markdown, records, or messages of a protocol."""
OTHER_LIMITS = {
    "lag": "--max is the lag up to which the exit code is 0, no count of lines",
    "consume": "--max is another name of --limit, which tools rely on",
}


def options(name: str) -> dict[str, Any]:
    """Return the parameters of a command by each name of an option, or the name of the argument."""
    return {option: each for each in GROUP.commands[name].params for option in each.opts}


def examples(name: str) -> list[str]:
    return examples_of(function_of(name))


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - NOTHING_TO_READ))
def test_what_is_printed_to_read_is_text_or_json(name: str) -> None:
    (choices,) = re.findall(r"--format <([a-z|]+)>", streamkit(name, "--help", COLUMNS="200").out)
    assert {"text", "json"} <= set(choices.split("|"))


@pytest.mark.parametrize("name", COMMANDS)
def test_counts_are_limits_and_json_is_a_format(name: str) -> None:
    assert "--json" not in options(name)
    if "--max" in options(name):
        assert name in OTHER_LIMITS
    for option, each in options(name).items():
        if each.help and re.match(r"(End after|At most) ", each.help) and "Spark" not in each.help:
            assert option in ("--limit", "--max"), (option, each.help)


@pytest.mark.parametrize("name", COMMANDS)
def test_times_have_one_grammar(name: str) -> None:
    times = [each for each in options(name).values() if each.metavar in ("TIME", "MS", "MILLIS", "DATE")]
    for each in times:
        assert each.metavar == "TIME", each.opts
    assert not times or any(TIME_HELP in each.help for each in times)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_two_examples_that_its_parser_takes(name: str) -> None:
    assert len(examples(name)) == 2
    shown = streamkit(name, "--help", COLUMNS="80").out
    for example in examples(name):
        assert f"    {example}\n" in shown
        # Up to a redirection; after a pipe or `<(`.
        lexer = shlex.shlex(example, posix=True, punctuation_chars="|<>()")
        lexer.whitespace_split = True
        words = list(lexer)
        words = words[words.index("streamkit") + 1 :]
        words = list(takewhile(lambda word: word[0] not in "|<>()", words))
        assert words[0] == name
        with GROUP.commands[name].make_context(name, words[1:]):
            pass


def test_summaries_are_whole_in_a_narrow_terminal() -> None:
    shown = " ".join(streamkit("--help", COLUMNS="80").out.split())
    for name in COMMANDS:
        summary = " ".join((GROUP.commands[name].callback.__doc__ or "").partition("\n\n")[0].split())
        assert f"{name} {summary}" in shown
        assert summary.endswith(".")


@pytest.mark.parametrize("name", FORMER)
def test_a_former_option_still_works_with_a_line_on_stderr(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for former, words in FORMER[name].items():
        assert former not in options(name)
        assert words[0] in options(name)
        assert renamed([name, "x.yaml", former, "--set", "a=b"]) == [name, "x.yaml", *words, "--set", "a=b"]
        assert renamed([name, f"{former}=5"]) == [name, *words[:-1], f"{words[-1]}=5"]
        told = capsys.readouterr().err.splitlines()
        assert len(told) == 2
        assert (
            told[0]
            == f"streamkit: {former} is now {' '.join(words)}; the former name works in this release for the last time"
        )


def test_words_after_the_options_are_not_renamed() -> None:
    assert renamed(["lag", "--", "--json"]) == ["lag", "--", "--json"]
    assert renamed(["validate", "--json"]) == ["validate", "--json"]


def test_a_former_option_through_the_whole_command(tmp_path: Path) -> None:
    done = streamkit("doctor", "--json")
    assert done.out == streamkit("doctor", "--format", "json").out
    assert done.err.startswith("streamkit: --json is now --format json;")


# -- Completion --


@pytest.fixture
def counted(tmp_path: Path) -> Path:
    """A topology with a store, in its folder."""
    path = tmp_path / "upper.yaml"
    text = UPPER.format(state=tmp_path / "state")
    path.write_text(text + "  counts:\n    from: shout\n    steps:\n      - group_by_key\n      - count: louds\n")
    return path


def completions(line: str, folder: Path) -> list[str]:
    """Return what bash is offered for the last word of a line."""
    words = line.split(" ")
    done = streamkit(
        cwd=folder,
        _STREAMKIT_COMPLETE="complete_bash",
        COMP_WORDS=line,
        COMP_CWORD=str(len(words) - 1),
    )
    return done.out.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("streamkit consume upper.yaml ", ["words", "loud", "louds-changelog"]),
        ("streamkit consume upper.yaml lo", ["loud", "louds-changelog"]),
        ("streamkit produce upper.yaml w", ["words"]),
        ("streamkit query upper.yaml ", ["louds"]),
        ("streamkit reset-offsets upper.yaml --input-topics loud,w", ["loud,words"]),
        ("streamkit submit upper.yaml --compare l", ["loud"]),
        ("streamkit replay upper.yaml --from l", ["loud"]),
        ("streamkit run upper.yaml --set num.stream.th", ["num.stream.threads="]),
        ("streamkit run upper.yaml --set commit", ["commit.interval.ms="]),
        ("streamkit lag nowhere.yaml --set num.stream.th", ["num.stream.threads="]),
        ("streamkit consume nowhere.yaml ", []),
    ],
)
def test_completion_offers_what_the_file_has(line: str, expected: list[str], counted: Path) -> None:
    assert completions(line, counted.parent) == expected


def test_completion_offers_topics_of_a_file_with_mistakes_in_its_pipelines(counted: Path) -> None:
    counted.write_text(counted.read_text().replace("from: shout", "from: shuot"))
    assert completions("streamkit consume upper.yaml ", counted.parent) == ["words", "loud"]
    counted.write_text("][")
    assert completions("streamkit consume upper.yaml ", counted.parent) == []


# -- Folders and patterns --


def test_validate_takes_a_folder_with_its_tests(counted: Path) -> None:
    folder = counted.parent
    (folder / "compose.yaml").write_text("services: {}\n")
    (folder / "upper.test.yaml").write_text("tests:\n  a:\n    given: [{topic: wodrs}]\n    expect: {loud: []}\n")
    below = folder / "more"
    below.mkdir()
    (below / "bad.yml").write_text("streamkit: 1\napplication: a b\n")
    done = streamkit("validate", folder)
    files = [line.partition(":")[0] for line in done.out.splitlines()]
    assert (done.code, done.err) == (1, "")
    assert {os.path.basename(file) for file in files} == {"bad.yml", "upper.test.yaml"}
    assert "'wodrs'" in done.out


def test_a_topology_and_its_test_report_a_problem_once(counted: Path) -> None:
    counted.write_text(counted.read_text().replace("from: shout", "from: shuot"))
    test = counted.with_name("upper.test.yaml")
    test.write_text("tests:\n  a:\n    given: [{topic: words, value: a}]\n    expect: {loud: []}\n")
    alone = streamkit("validate", test).out.splitlines()
    assert any("shuot" in line for line in alone)
    both = streamkit("validate", counted, test).out
    assert both.count("shuot") == 1


def test_validate_takes_a_pattern(counted: Path) -> None:
    folder = counted.parent
    assert streamkit("validate", "*.yaml", cwd=folder).code == 0
    (folder / "other.yaml").write_text("streamkit: 2\n")
    assert streamkit("validate", "*.yaml", cwd=folder).code == 1
    done = streamkit("validate", "*.yml", cwd=folder)
    assert (done.code, done.err) == (2, "streamkit: *.yml: no file matches\n")


def test_a_folder_without_topologies_is_wrong_usage(tmp_path: Path) -> None:
    done = streamkit("validate", tmp_path)
    assert done.code == 2
    assert "no topology below it" in done.err
