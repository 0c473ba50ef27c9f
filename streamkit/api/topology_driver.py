"""Topologies in memory: the test driver (TopologyTestDriver), and the output for given records as a table."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from types import TracebackType
from typing import Any

from streamkit import durations
from streamkit.errors import SerdeError, UnknownStoreError, UsageError
from streamkit.plan.model import Plan
from streamkit.record import Headers, Record
from streamkit.record import Operand as Key
from streamkit.record import Operand as Value
from streamkit.runtime.driver import Driver, pipe_at, run_lines
from streamkit.runtime.records import RecordObjects
from streamkit.serdes.plain import Json
from streamkit.suggestions import did_you_mean, listed


class TopologyDriver:
    """Runs a topology as `streamkit try` does: one partition, a commit after each record, a clock that starts at 0.

    Keys and values are Python objects, as serdes and expressions see them. The driver is a context manager.
    """

    def __init__(self, plan: Plan):
        self._records = RecordObjects(plan)
        self._driver = Driver(plan, records=self._records)
        self._entries = {topic.entry: topic.name for topic in plan.external_topics.values()}
        self._unread: dict[str, deque[Record]] = defaultdict(deque)

    def pipe(
        self,
        topic: str,
        value: Value = None,
        key: Key = None,
        timestamp: int | None = None,
        headers: Iterable[tuple[str, bytes | str | None]] = (),
    ) -> None:
        """Process one record. topic: an entry of the file or a name on the log. timestamp: in ms, by default the clock's.

        Raises TopicError for a topic that is not read, SerdeError if key or value can't be encoded, ProcessingError.
        """
        row = {
            "topic": self._entries.get(topic, topic),
            "key": key,
            "value": value,
            "timestamp": timestamp,
            "headers": _headers(headers),
        }
        try:
            self._keep(self._driver.pipe(row))
        finally:
            # What was written before a failure can still be read.
            self._keep(self._driver.printed())

    def advance_wall_clock(self, by: int | str) -> None:
        """Advance the clock by a duration ("5s", or milliseconds): wall-clock timers fire. Raises ConfigError."""
        self._keep(self._driver.advance(durations.parse(by)))

    def read(self, topic: str) -> list[Record]:
        """Return the records written to a topic since the last call, in order. Raises UsageError for an unknown topic."""
        name = self._entries.get(topic, topic)
        if topic not in self._entries and name not in self._unread and name not in self._entries.values():
            raise UsageError(
                f"nothing is written to a topic {topic!r}; the file has {', '.join(sorted(self._entries))}"
            )
        return list(self._unread.pop(name, ()))

    @property
    def stores(self) -> Mapping[str, list[tuple[Key, Value]]]:
        """The rows (key, value) of every store by its name, those in caches included, in byte order of keys."""
        return _Stores({name: list(store.rows()) for name, store in self._driver.opened().items()})

    @property
    def dropped(self) -> int:
        """The number of records dropped so far (dropped-records-total)."""
        return self._driver.dropped

    def close(self) -> None:
        """Close processors and stores; what processors forward meanwhile can still be read."""
        try:
            self._keep(self._driver.finish())
        finally:
            self._driver.close()

    def __enter__(self) -> TopologyDriver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._driver.close()

    def _keep(self, written: Iterable[Any]) -> None:
        # With RecordObjects a record is (topic, Record) instead of a JSON object.
        for topic, record in written:
            self._unread[topic].append(record)


class _Stores(dict[str, list[tuple[Key, Value]]]):
    """The rows of stores by name. Raises UnknownStoreError for a store that the topology does not have."""

    def __missing__(self, name: str) -> list[tuple[Key, Value]]:
        hint = did_you_mean(str(name), self, f"the topology has {listed(self)}")
        raise UnknownStoreError(f"there is no store {name!r}{hint}")


def _headers(headers: Iterable[tuple[str, bytes | str | None]]) -> Headers | None:
    pairs: Headers = []
    for header in headers:
        try:
            name, value = header
        except (TypeError, ValueError):
            raise SerdeError(f"a header is a pair (name, bytes or text), not {header!r}") from None
        pairs.append((name, value.encode() if isinstance(value, str) else value))
    return pairs or None


# The output of a topology for given records, as a table.


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
            *([cell if len(cell) <= _LONGEST else f"{cell[: _LONGEST - 1]}…" for cell in row] for row in rows),
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
    """Run a plan over records, or over a file of JSON Lines.

    Raises UsageError for a file that can't be read, and the errors of Driver.pipe.
    """
    with Driver(plan) as driver:
        if isinstance(records, str | Path):
            try:
                lines = Path(records).read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"{records}: {getattr(error, 'strerror', None) or error}") from error
            output = list(run_lines(driver, lines, str(records)))
        else:
            output = [
                written
                for number, record in enumerate(records, 1)
                for written in pipe_at(driver, record, f"record {number}")
            ]
        return TriedRecords([*output, *driver.finish()], driver.stores())
