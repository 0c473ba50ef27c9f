"""`streamkit query --sql`: stores and topics as tables, of a stopped and of a running application, and nothing else."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from streamkit.errors import ConfigError, LimitError, TopologyError
from streamkit.runtime.operations import sql_query
from streamkit.runtime.operations.sql_query import Limits, Row, SqlResult, SqlTable, run_sql
from streamkit.state.directory import StateDirectory
from streamkit.state.engines.open_maps import open_map
from streamkit.state.store_offsets import decode_offsets
from streamkit.transport.embedded import EmbeddedTransport
from tests.cli.support import Done, assert_one_clear_line, streamkit
from tests.http.support import SHOP, processed, served, write, write_shop

SALES = """\
streamkit: 1
application: sales
config: {{bootstrap.servers: "embedded:{folder}/log", state.dir: "{folder}/state"}}
topics:
  orders: {{key: string, value: json, partitions: 2}}
  users: {{key: string, value: json, partitions: 1}}
  prices: {{key: string, value: long, partitions: 1}}
  paid-orders: {{key: string, value: json, partitions: 1}}
pipelines:
  counts:
    stream: orders
    steps: [group_by_key, {{count: counts}}]
  hours:
    stream: orders
    steps: [group_by_key, {{window: {{tumbling: 1h}}}}, {{count: per-hour}}]
  last:
    stream: orders
    steps: [group_by_key, {{reduce: {{add: value, store: {{name: last, logging: false}}}}}}]
  users: {{table: users, store: users}}
  paid: {{stream: orders, steps: [filter: value.amount > 10], to: paid-orders}}
"""
ORDERS = [
    {"topic": "orders", "key": f"k{number % 2}", "value": {"amount": number * 5}, "timestamp": number * 30_000}
    for number in range(1, 5)
]
USERS = [{"topic": "users", "key": "k1", "value": {"name": "Ann"}, "headers": [["source", "web"]]}]


def lines(records: Iterable[dict[str, object]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an application that has processed its input, and stopped; another user came later."""
    folder = tmp_path_factory.mktemp("sales")
    path = folder / "sales.yaml"
    path.write_text(SALES.format(folder=folder))
    assert streamkit("topics", "create", path).code == 0
    assert streamkit("produce", path, stdin=lines([*ORDERS, *USERS])).code == 0
    assert streamkit("run", path, "--until-idle").code == 0
    late = [{"topic": "users", "key": "k2", "value": {"name": "Bob"}}]
    assert streamkit("produce", path, stdin=lines(late)).code == 0
    return path


def rows(done: Done) -> list[dict[str, object]]:
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_topics_have_columns_for_fields_and_places(stopped: Path):
    query = 'SELECT * EXCLUDE (partition, "offset") FROM orders ORDER BY timestamp LIMIT 1'
    first = {"key": "k1", "value_amount": 5, "timestamp": "1970-01-01T00:00:30Z", "headers": None}
    assert rows(streamkit("query", stopped, "--sql", query)) == [first]
    query = 'SELECT partition, "offset", headers[1].value AS source FROM topics.users ORDER BY 2'
    assert rows(streamkit("query", stopped, "--sql", query)) == [
        {"partition": 0, "offset": 0, "source": "web"},
        {"partition": 0, "offset": 1, "source": None},
    ]
    joined = (
        'SELECT count(*) AS n, sum(p.value_amount) AS total FROM "paid-orders" p JOIN orders USING (key, timestamp)'
    )
    assert rows(streamkit("query", stopped, "--sql", joined)) == [{"n": 2, "total": 35}]
    done = streamkit("query", stopped, "--sql", "SELECT value FROM prices", "--format", "csv")
    assert (done.code, done.out) == (0, "value\n")
    done = streamkit(
        "query", stopped, "--sql", "SELECT key, value_amount FROM orders", "--from", "90s", "--format", "text"
    )
    assert sorted(done.out.splitlines()) == ["KEY  VALUE_AMOUNT", "k0   20", "k1   15"]


def test_stores_of_a_stopped_application_come_from_their_changelogs(stopped: Path):
    done = streamkit("query", stopped, "--sql", "SELECT key, value FROM counts ORDER BY key")
    assert rows(done) == [{"key": "k0", "value": 2}, {"key": "k1", "value": 2}]
    assert "does not set application.server: stores are read as of the last commit" in done.err
    query = 'SELECT key, window_end - window_start AS size, value FROM "per-hour" ORDER BY key'
    found = rows(streamkit("query", stopped, "--sql", query))
    assert found == [{"key": key, "size": "1:00:00", "value": 2} for key in ("k0", "k1")]


def test_a_store_without_a_changelog_comes_from_the_state_directory(stopped: Path):
    done = streamkit("query", stopped, "--sql", "SELECT key, value_amount FROM last ORDER BY key")
    assert rows(done) == [{"key": "k0", "value_amount": 20}, {"key": "k1", "value_amount": 15}]
    with closing(StateDirectory(stopped.parent / "state", "sales")):
        done = streamkit("query", stopped, "--sql", "SELECT * FROM last")
        assert (done.code, "Another process" in done.err) == (1, True), done.err


def test_of_several_instances_each_has_the_stores_of_its_tasks(stopped: Path, tmp_path: Path):
    """A task that moved has left a copy in the directory of the other instance."""
    shutil.copytree(stopped.parent / "state" / "sales", tmp_path / "sales")
    (task,) = (path for path in (tmp_path / "sales").glob("*_1/*/last"))
    left, moved = task.parents[1], tmp_path / "instance-2" / "sales" / task.parents[1].name
    shutil.copytree(left, moved)
    note_inputs(task, {"orders-1": 1})
    select = ("--sql", "SELECT key, value_amount FROM last ORDER BY key", "--set", f"state.dir={tmp_path}")
    found = [{"key": "k0", "value_amount": 20}, {"key": "k1", "value_amount": 15}]
    assert rows(streamkit("query", stopped, *select)) == found
    shutil.rmtree(moved)
    done = streamkit("query", stopped, *select)
    assert (done.code, f"no state of the last commit: {task} has orders-1 up to 1;" in done.err) == (1, True), done.err
    note_inputs(task, {})
    shutil.copytree(left, moved)
    done = streamkit("query", stopped, *select)
    assert (done.code, "several states of the last commit" in done.err) == (1, True), done.err


def note_inputs(store: Path, inputs: dict[str, int]) -> None:
    """Set the input offsets up to which a store without a changelog is complete."""
    with closing(open_map(store.parent.name, store)) as opened:
        offsets = decode_offsets(opened.metadata or b"")
        offsets.inputs = inputs
        opened.metadata = offsets.encode()
        opened.commit()


def test_a_source_topic_that_is_a_changelog_counts_up_to_the_committed_offset(stopped: Path):
    done = streamkit("query", stopped, "--sql", "SELECT value_name FROM stores.users")
    assert rows(done) == [{"value_name": "Ann"}]
    done = streamkit("query", stopped, "--sql", "SELECT value_name FROM topics.users")
    assert rows(done) == [{"value_name": "Ann"}, {"value_name": "Bob"}]


def test_stores_of_a_running_application(tmp_path: Path):
    log = EmbeddedTransport(tmp_path / "log.sqlite")
    write_shop(log)
    with served(tmp_path / "shop", log, text=SHOP) as (address, _):
        processed(address, 60)
        sql = (
            'SELECT c.key, c.value, min(window_start) AS first FROM counts c JOIN "per-window" USING (key) GROUP BY ALL'
        )
        found = rows(streamkit("query", f"http://{address}", "--sql", f"{sql} ORDER BY 1 LIMIT 2"))
        assert found == [{"key": f"user-0{number}", "value": 3, "first": "1970-01-01T00:00:00Z"} for number in (0, 1)]
        assert rows(
            streamkit("query", f"http://{address}", "--sql", 'SELECT key_user FROM "by-user" ORDER BY 1 LIMIT 1')
        ) == [{"key_user": "user-00"}]
        # The file names the address, and the log of the application is another one.
        file = tmp_path / "shop" / "topology.yaml"
        served_at = ("--set", f"application.server={address}", "--set", f"state.dir={tmp_path / 'elsewhere'}")
        done = streamkit("query", file, "--sql", "SELECT count(*) AS n FROM stores.countries", *served_at)
        assert (rows(done), done.err) == ([{"n": 2}], "")
        done = streamkit("query", f"http://{address}", "--sql", "SELECT 1 FROM orders")
        assert_one_clear_line(done, 1, "--sql:1:15: there is no store or topic 'orders'")
    log.close()


def test_records_that_cannot_be_decoded_have_an_error(tmp_path: Path):
    file = tmp_path / "sales.yaml"
    file.write_text(SALES.format(folder=tmp_path))
    assert streamkit("topics", "create", file).code == 0
    log = EmbeddedTransport(tmp_path / "log")
    write(log, [("prices", b"apple", value, 1, None, None) for value in (bytes(7) + b"\x05", b"?", None)])
    log.close()
    query = 'SELECT key, value + 1 AS more, error FROM prices ORDER BY "offset"'
    good, bad, deleted = rows(streamkit("query", file, "--sql", query))
    assert good == {"key": "apple", "more": 6, "error": None}
    assert (bad["key"], bad["more"], str(bad["error"])[:7]) == ("apple", None, "value: ")
    assert deleted == {"key": "apple", "more": None, "error": None}


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (
            ("SELECT * FROM last", "--set", "state.dir=/nowhere"),
            1,
            "store last has no changelog, and /nowhere/sales has 0 of",
        ),
        (
            ("SELECT * FROM users",),
            1,
            "--sql:1:15: 'users' is the name of several tables; write topics.\"users\" or stores",
        ),
        (("SELECT * FROM orders", "--max-rows", 3), 1, "topic orders has more than 3 rows; --from and --to"),
        (("SELECT 1", "--timeout", "soon"), 2, "--timeout soon"),
        (("SELECT 1", "--reverse"), 2, "--sql excludes STORE, KEY"),
    ],
)
def test_what_cannot_be_done_is_reported(stopped: Path, options: tuple[object, ...], code: int, words: str):
    done = streamkit("query", stopped, "--sql", *options)
    assert done.code == code
    assert words in done.err.splitlines()[-1]
    assert done.out == ""


def test_a_cut_result_is_announced(stopped: Path):
    done = streamkit("query", stopped, "--sql", "SELECT * FROM range(9)", "--limit", 2)
    assert rows(done) == [{"range": 0}, {"range": 1}]
    assert done.err == "streamkit: these are the first 2 rows; --limit N prints more\n"


# -- Without a log -----------------------------------------------------------------------------------------------------


def table(name: str, *values: object, schema: str = "topics", **places: object) -> SqlTable:
    found: list[Row] = [{"key": f"k{at}", "value": value, **places} for at, value in enumerate(values)]  # type: ignore[dict-item]
    return SqlTable(schema, name, lambda _: found, tuple(places))


def run(sql: str, *tables: SqlTable, **limits: float) -> SqlResult:
    return run_sql(sql, tables, Limits(**limits))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "columns", "found"),
    [
        (({"a": 1}, {"b": "x"}, None), ["value_a", "value_b"], [[1, None], [None, "x"], [None, None]]),
        ((1, 2.5, None), ["value"], [[1.0], [2.5], [None]]),
        ((1, "x", [True]), ["value"], [["1"], ['"x"'], ["[true]"]]),
        (({"a": 1}, 2), ["value"], [['{"a":1}'], ["2"]]),
        (({"a": 1, "A": 2},), ["value"], [[{"a": 1, "A": 2}]]),
        ((2**70,), ["value"], [[str(2**70)]]),
        (({"a": [1, None]}, {"a": []}), ["value_a"], [[[1, None]], [[]]]),
        ((), ["value"], []),
    ],
)
def test_columns_of_values(values: tuple[object, ...], columns: list[str], found: list[list[object]]):
    result = run("SELECT * EXCLUDE (key) FROM t ORDER BY key", table("t", *values))
    assert (result.columns, result.rows) == (columns, found)


def test_times_that_no_timestamp_can_hold_stay_numbers():
    assert run("SELECT timestamp FROM t", table("t", 1, timestamp=1500)).rows == [["1970-01-01T00:00:01.500000Z"]]
    assert run("SELECT timestamp FROM t", table("t", 1, timestamp=2**62)).rows == [[2**62]]


def test_columns_of_the_same_name_are_numbered():
    result = run("SELECT a.key, b.key FROM a, b", table("a", 1), table("b", 2))
    assert result.columns == ["key", "key_1"]


def test_values_of_results_are_plain_data():
    assert run("SELECT TIMESTAMPTZ '2026-01-31 01:00:00+01'").rows == [["2026-01-31T00:00:00Z"]]
    sql = "SELECT 1.50, 'nan'::double, DATE '2026-01-31', '\\x01'::BLOB, {'a': [1]}"
    assert run(sql).rows == [[1.5, "NaN", "2026-01-31", {"base64": "AQ=="}, {"a": [1]}]]


NAMES = (table("orders", {"amount": 1}), table("per-minute", 2, schema="stores"))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("", "--sql:1:1: the query is empty; expected SELECT … FROM a store or topic"),
        ("SELECT '\udcff'", "--sql:1:1: the query is not UTF-8 text"),
        ("SELEC 1", '--sql:1:1: syntax error at or near "SELEC"'),
        ("SELECT *\nFROM 'ordes'", "--sql:2:6: there is no store or topic 'ordes'; did you mean 'orders'?"),
        ("SELECT 'é' FROM stores.x", "--sql:1:17: there is no store 'x'; known are per-minute"),
        ("SELECT * FROM per-minute", '; write a name such as per-minute in double quotes: "per-minute"'),
        ("SELECT value_amout FROM orders", "--sql:1:8: there is no column 'value_amout'; did you mean 'value_amount'?"),
        ("SELECT o.x FROM orders o", "--sql:1:8: there is no column 'x'; known are key, value_amount"),
        ("SELECT value.amount FROM orders", "there is no table 'value'; a field is a column of its own: value_amount"),
        ("SELECT key + 1 FROM orders", "--sql:1:12: No function matches"),
        ("SELECT " + "1, " * 80 + "nope FROM orders", "--sql:1:248: there is no column 'nope'"),
        ("SELECT 1; SELECT 2", "--sql:1:1: expected one SELECT statement"),
        ("SELECT " + "NOT " * 900 + "true", "--sql:1:1: the query is nested too deeply"),
        ("SELECT 1" + " " * 100_000, "--sql:1:1: the query has 100,008 characters; at most 100,000 are allowed"),
    ],
)
def test_mistakes_are_shown_at_their_place(sql: str, message: str):
    with pytest.raises(TopologyError) as raised:
        run(sql, *NAMES)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_names_of_with_clauses_are_no_tables():
    assert run("WITH q AS (SELECT key FROM Orders) SELECT * FROM q", *NAMES).rows == [["k0"]]
    counted = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT max(i) FROM n"
    assert run(counted).rows == [[3]]


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE orders",
        "INSERT INTO orders VALUES (1)",
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "ATTACH '{folder}/other.db'",
        "INSTALL httpfs",
        "LOAD json",
        "SET enable_external_access = true",
        "PRAGMA database_list",
        "SELECT * FROM read_csv('{folder}/in.csv')",
        "SELECT * FROM '{folder}/in.csv'",
        "SELECT * FROM read_text('{folder}/in.csv')",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT getenv('HOME')",
        "SELECT * FROM NAMES",
    ],
)
def test_a_query_reaches_nothing_else(tmp_path: Path, sql: str):
    (tmp_path / "in.csv").write_text("secret\n1\n")
    with pytest.raises(TopologyError):
        run(sql.format(folder=tmp_path), *NAMES)
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


@pytest.mark.parametrize(
    ("sql", "limits", "message"),
    [
        (
            "SELECT sum(a.range * b.range) FROM range(1000000000) a, range(1000000) b",
            {"seconds": 0.2},
            "more than 0.2 s",
        ),
        ('SELECT * FROM stores."per-minute", orders', {"read": 0}, "store per-minute has more than 0 rows; --max-rows"),
        ("SELECT * FROM orders", {"bytes": 10}, "topic orders: a query reads at most 0 MiB"),
        ("SELECT repeat('x', 2000000)", {"result": 1 << 20}, "the result has more than 1 MiB"),
        ("SELECT range(2000000000)", {}, "the query needs more than 1GB of memory"),
    ],
)
def test_a_query_has_bounds(sql: str, limits: dict[str, float], message: str):
    with pytest.raises(LimitError, match=message):
        run(sql, *NAMES, **limits)


def test_a_query_has_a_bound_of_memory(monkeypatch: pytest.MonkeyPatch):
    settings = [each.replace("1GB", "50MB") for each in sql_query._SETTINGS]
    monkeypatch.setattr(sql_query, "_SETTINGS", settings)
    with pytest.raises(LimitError, match="of memory; select fewer rows or columns"):
        run("SELECT list(range) FROM range(100000000)")


def test_without_the_extra_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ConfigError, match=r"SQL needs duckdb: .*install.*\[sql\]"):
        run("SELECT 1")
