"""Conformance cases through a real broker and the embedded log give the records that `try` gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.cases import inputs, on_log, rows, tried, wait_until_quiet, written
from tests.broker.support import Log, finish, kill
from tests.conformance_cases import as_json, assert_same_records

# Inputs are there before the start. No left or outer stream join: live, Java too looks for unmatched records once a
# second only, `try` at every record.
AT_ONCE = [
    "map-key-and-value",
    "own-steps",
    "calls-of-python",
    "tumbling-late-records",
    "session-merges",
    "stream-join-inner",
    "stream-table-join",
    "table-join-outer",
    "suppress-tumbling-final",
]
# Where records go through the log in between, what else has arrived by then matters: one record after the other.
ONE_BY_ONE = ["foreign-key-join-left"]


@pytest.mark.broker
@pytest.mark.parametrize("case", AT_ONCE)
def test_at_once_through_the_broker(case: str, kafka: Log, tmp_path: Path) -> None:
    at_once(case, kafka, tmp_path)


@pytest.mark.parametrize("case", AT_ONCE)
def test_at_once_through_the_embedded_log(case: str, embedded: Log, tmp_path: Path) -> None:
    at_once(case, embedded, tmp_path)


@pytest.mark.broker
@pytest.mark.parametrize("case", ONE_BY_ONE)
def test_one_by_one_through_the_broker(case: str, kafka: Log, tmp_path: Path) -> None:
    one_by_one(case, kafka, tmp_path)


@pytest.mark.parametrize("case", ONE_BY_ONE)
def test_one_by_one_through_the_embedded_log(case: str, embedded: Log, tmp_path: Path) -> None:
    one_by_one(case, embedded, tmp_path)


def at_once(case: str, log: Log, folder: Path) -> None:
    app = on_log(case, folder, log)
    records = inputs(case)
    log.write(rows(app, records))
    done = app.run()
    assert (done.code, done.out) == (0, "")
    expected = tried(app, records)
    assert expected
    assert_same_records(as_json(expected), as_json(written(app)))


def one_by_one(case: str, log: Log, folder: Path) -> None:
    app = on_log(case, folder, log, commit_interval_ms=5, poll_ms=10, linger_ms=0)
    records = inputs(case, as_given=True)
    process = app.start()
    try:
        for row in rows(app, records):
            log.write([row])
            wait_until_quiet(app)
        process.terminate()
        (done,) = finish([process])
    finally:
        kill([process])
    assert (done.code, done.out) == (0, "")
    assert_same_records(as_json(tried(app, records)), as_json(written(app)))
