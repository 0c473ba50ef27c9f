"""`streamkit replay` puts dead letters back into the source topics of their records."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from streamkit.durations import option_time
from streamkit.plan.model import Plan
from streamkit.runtime.execution.dead_letters import DeadLetter, human_reason
from streamkit.runtime.operations.topic_reading import parse_condition
from streamkit.runtime.records import RecordJson
from streamkit.suggestions import number_of
from streamkit_cli.commands.consume import time_text
from streamkit_cli.guard import print_message
from streamkit_cli.loading import load_plan, opened
from streamkit_cli.options import TIME_HELP, EnvFile, File, Format, Settings, Shown
from streamkit_cli.options import topics as topics_of_file
from streamkit_cli.record_lines import json_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamkit.runtime.operations.dead_letter_replay import Replay


Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="EXPR",
        help="Only dead letters for which this is true. It can use error message step topic partition offset timestamp failed_at key value headers.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help=f"Only records that failed at this time or later: {TIME_HELP}."),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Only records that failed before this time.")
]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=0, help="At most N dead letters.")]
From = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="TOPIC",
        help="A dead-letter topic; by default those of the file.",
        autocompletion=topics_of_file,
    ),
]
Again = Annotated[bool, typer.Option("--again", help="Include dead letters that were put back before.")]
Execute = Annotated[bool, typer.Option("--execute", help="Put them back; without it, they are only listed.")]


def replay(
    file: File,
    where: Where = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = None,
    topics: From = None,
    again: Again = False,
    form: Shown = Format.text,
    execute: Execute = False,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Put dead letters back into the source topics of their records.

    Records keep their original bytes, time, headers and partition. The command records which dead letters it put back,
    and does not list them again.

    Examples:
        streamkit replay orders.yaml --where 'error == "KeyError"'
        streamkit replay orders.yaml --since -1d --limit 100 --execute
    """
    from streamkit.runtime.operations.dead_letter_replay import Replay

    plan = load_plan(file, settings, env_file)
    records = RecordJson(plan)
    letter_filter = LetterFilter(records, where, since, until)
    with opened(plan, creates=execute) as transport:
        replay = Replay(plan, transport, _log_names(plan, topics), again=again)
        letters = replay.execute(letter_filter, limit) if execute else islice(replay.dead_letters(letter_filter), limit)
        writer = LetterWriter(replay, records, executed=execute)
        writer.json(letters) if form is Format.json else writer.table(letters)
    if letter_filter.failed:
        print_message(
            f"--where could not be evaluated for {number_of(letter_filter.failed, 'dead letter')}, which were left out: {letter_filter.failure}"
        )


def _log_names(plan: Plan, topics: list[str] | None) -> list[str] | None:
    """Return the topics' names on the log; a name that is no entry of the file stays as it is."""
    names = {topic.entry: topic.name for topic in plan.external_topics.values()}
    return [names.get(topic, topic) for topic in topics] if topics else None


# The selection of dead letters, and their output.

NAMES = (
    "error",
    "message",
    "step",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "failed_at",
    "headers",
    "key",
    "value",
)
MAX_ROWS = 50
"""The maximum number of rows in the table; the totals below it count all letters."""
UNLIMITED_WIDTH = 1_000_000
"""The width of output that is not a terminal, in characters: large enough that no cell is cut."""


class LetterFilter:
    """Selects dead letters by an expression over `NAMES` and by time. Raises UsageError."""

    def __init__(self, form: RecordJson, where: str | None, since: str | None, until: str | None):
        self._form = form
        self._since = None if since is None else option_time("--since", since)
        self._until = None if until is None else option_time("--until", until)
        self._test: Callable[..., bool] | None = None
        self.failed = 0
        """Letters for which the expression raised an error; they are left out."""
        self.failure = ""
        """The reason for the first of these errors."""
        if where is not None:
            expression = parse_condition("--where", where, NAMES)
            self._test = expression.function(NAMES)

    def __call__(self, letter: DeadLetter) -> bool:
        if self._since is not None and letter.failed_at < self._since:
            return False
        if self._until is not None and letter.failed_at >= self._until:
            return False
        return self._test is None or self._is_true(self._test, letter)

    def _is_true(self, test: Callable[..., bool], letter: DeadLetter) -> bool:
        facts = [getattr(letter, name) for name in NAMES[:-2]]
        try:
            return bool(test(*facts, *self._form.decode_source(letter.topic, letter.key, letter.value)))
        except Exception as error:
            self.failed += 1
            self.failure = self.failure or human_reason(error)
            return False


class LetterWriter:
    """Writes letters to stdout, as JSON Lines or as a table with totals."""

    def __init__(self, replay: Replay, form: RecordJson, *, executed: bool):
        self._replay = replay
        self._form = form
        self._executed = executed

    def json(self, dead_letters: Iterable[DeadLetter]) -> None:
        """Write one JSON object per letter."""
        from streamkit.runtime.operations.dead_letter_replay import dead_letter_json

        for letter in dead_letters:
            facts = dead_letter_json(letter, self._form, self._replay)
            sys.stdout.write(json_line({**facts, "replayed": self._executed}))

    def table(self, dead_letters: Iterable[DeadLetter]) -> None:
        """Write a table of the first letters, and the number of letters by error, step and topic."""
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("dead letter", "error", "message", "step", "read at", "failed at", "key", "value"):
            table.add_column(name, overflow="ellipsis", no_wrap=True)
        place = table.columns[0]  # a narrow terminal shows it in full: other commands take it
        kinds: Counter[tuple[str, str, str]] = Counter()
        stuck = 0
        for letter in dead_letters:
            if sum(kinds.values()) < MAX_ROWS:
                row = self._row(letter)
                table.add_row(*row)
                place.min_width = max(place.min_width or 0, len(row[0]))
            kinds[letter.error, letter.step, letter.topic or ""] += 1
            stuck += self._replay.target(letter) is None
        console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else UNLIMITED_WIDTH)
        total = sum(kinds.values())
        if total:
            console.print(table)
        if total > MAX_ROWS:
            console.print(f"… and {total - MAX_ROWS} more")
        if len(kinds) > 1:
            for (error, step, topic), count in kinds.most_common():
                console.print(
                    f"{count:>8}  {error or 'unknown error'}{f' at {step}' if step else ''}{f', {topic}' if topic else ''}"
                )
        console.print(self._summary(total, stuck))

    def _row(self, letter: DeadLetter) -> tuple[str, ...]:
        from streamkit.runtime.execution.handlers import shorten

        key, value = (shorten(data, 40) for data in (letter.key, letter.value))
        source = f"{letter.topic}-{letter.partition}@{letter.offset}" if letter.topic else "no record"
        place = f"{letter.place.topic}-{letter.place.partition}@{letter.place_offset}"
        message = shorten(letter.message.encode("utf-8", "replace"), 60)
        if re.fullmatch(r"'[^']*'", message):  # of a KeyError: the field's name
            message = message[1:-1]
        return place, letter.error, message, letter.step, source, time_text(letter.failed_at), key, value

    def _summary(self, total: int, stuck: int) -> str:
        if self._executed:
            return f"{total} put back" if total else "nothing to put back"
        if not total:
            return "no dead letters"
        note = f"; {stuck} of them have no topic to go to" if stuck else ""
        return f"{_count(total)}{note}; nothing was written: --execute puts them back"


def _count(number: int) -> str:
    return f"{number} dead letter{'' if number == 1 else 's'}"
