"""What a topology makes of some records, as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

from streamkit.errors import UsageError
from streamkit.plan.model import Plan
from streamkit.runtime.driver import Driver, pipe_at, run_lines
from streamkit.serdes.plain import Json

_LONGEST = 60
_COLUMNS = ("topic", "key", "value", "timestamp", "headers", "partition")


class TriedRecords(list[dict[str, Json]]):
    """The output records in their JSON form, in order; prints and shows itself as a table. stores: the rows of stores by name."""

    def __init__(self, records: Iterable[dict[str, Json]], stores: Mapping[str, list[list[Json]]]):
        super().__init__(records)
        self.stores = stores

    def __repr__(self) -> str:
        header, *rows = self._cells()
        if not rows:
            return "no records"
        cut = [
            header,
            *([each if len(each) <= _LONGEST else f"{each[: _LONGEST - 1]}…" for each in row] for row in rows),
        ]
        widths = [max(map(len, column)) for column in zip(*cut, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cut]
        return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])

    def _repr_html_(self) -> str:
        """Return the table, which notebooks show."""
        header, *rows = self._cells()
        head = "".join(f"<th>{name}</th>" for name in header)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _cells(self) -> list[list[str]]:
        """Return the names of the columns that some record has, and the rows."""
        names = [name for name in _COLUMNS if any(name in record for record in self)]
        return [names, *([_cell(record.get(name)) for name in names] for record in self)]


def _cell(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def try_records(plan: Plan, records: str | Path | Iterable[Mapping[str, Json]]) -> TriedRecords:
    """Run a plan over records, or over a file of JSON Lines. Raises UsageError for a file that can't be read, and as Driver.pipe."""
    with Driver(plan) as driver:
        if isinstance(records, str | Path):
            try:
                lines = Path(records).read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"{records}: {getattr(error, 'strerror', None) or error}") from error
            found = list(run_lines(driver, lines, str(records)))
        else:
            found = [
                each for number, record in enumerate(records, 1) for each in pipe_at(driver, record, f"record {number}")
            ]
        return TriedRecords(found, driver.stores())
