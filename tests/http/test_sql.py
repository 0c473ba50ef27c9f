"""SQL over HTTP: the rows of all pages of a store, mistakes at their places, and limits."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from streamkit.http import sql_endpoint
from streamkit.runtime.operations.sql_query import Limits
from streamkit.transport.embedded import EmbeddedTransport
from tests.http.support import USERS, processed, request, served, write_shop


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Iterator[str]:
    """The address of an application that has processed everything."""
    folder = tmp_path_factory.mktemp("shop")
    log = EmbeddedTransport(folder / "log")
    write_shop(log)
    with served(folder, log) as (address, _):
        processed(address, 3 * len(USERS))
        yield address
    log.close()


def test_stores_are_tables(shop, monkeypatch, tmp_path):
    # A module beside the topology takes the place of no other one.
    (tmp_path / "decimal.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    # Pages of seven rows: their places go on from one to the next.
    monkeypatch.setattr(sql_endpoint, "MOST_ROWS", 7)
    sql = 'SELECT count(*) AS n, min(window_start) AS first FROM "per-window"'
    page = request(shop, "/stores/per-window/all", limit=1000).json
    found = request(shop, "/sql", query=sql).json
    assert found == {"columns": ["n", "first"], "rows": [[len(page["rows"]), "1970-01-01T00:00:00Z"]], "more": False}
    sql = "SELECT key, value FROM counts ORDER BY key LIMIT 2"
    assert request(shop, "/sql", query=sql).json["rows"] == [["user-00", 3], ["user-01", 3]]


@pytest.mark.parametrize("name", ["per-session", "prices", "countries"])
def test_stores_of_each_kind_have_all_their_rows(shop, name):
    kind = "sessions" if name == "per-session" else "all"
    rows = request(shop, f"/stores/{name}/{kind}", limit=1000).json["rows"]
    assert request(shop, "/sql", query=f'SELECT count(*) FROM "{name}"').json["rows"] == [[len(rows)]]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT valu FROM counts", "query:1:8: there is no column 'valu'; did you mean 'value'?"),
        ("SELECT 1 FROM count", "query:1:15: there is no store or topic 'count'; did you mean 'counts'?"),
        ("SELECT " + "NOT " * 900 + "true", "query:1:1: the query is nested too deeply"),
        ("DROP TABLE counts", "query:1:1: expected one SELECT statement: a query can't change or open anything"),
        ("SELECT * FROM '/etc/passwd'", "there is no store or topic '/etc/passwd'"),
    ],
)
def test_mistakes_are_at_their_places(shop, sql, message):
    answer = request(shop, "/sql", query=sql)
    assert answer.status == 400
    assert message in answer.json["error"]


def test_a_query_is_bounded(shop, monkeypatch):
    monkeypatch.setattr(sql_endpoint, "LIMITS", Limits(rows=2, read=10, result=100))
    few = request(shop, "/sql", query="SELECT * FROM range(5)").json
    assert (len(few["rows"]), few["more"]) == (2, True)
    answer = request(shop, "/sql", query="SELECT repeat('x', 1000)")
    assert (answer.status, "the result has more than" in answer.json["error"]) == (400, True)
    answer = request(shop, "/sql", query="SELECT * FROM counts")
    expected = "store counts has more than 10 rows; streamkit query --sql has higher limits"
    assert (answer.status, answer.json["error"]) == (400, expected)


def test_one_query_runs_at_a_time(shop):
    with sql_endpoint._running:
        answer = request(shop, "/sql", query="SELECT 1")
    assert (answer.status, "another SQL query runs" in answer.json["error"]) == (503, True)
    assert request(shop, "/sql", query="SELECT 1").json["rows"] == [[1]]


def test_without_the_extra_one_line_names_it(shop, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    answer = request(shop, "/sql", query="SELECT 1")
    assert answer.status == 501
    assert answer.json["error"].startswith("SQL needs duckdb: ")
    assert "[sql]" in answer.json["error"]
