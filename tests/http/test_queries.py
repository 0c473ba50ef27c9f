"""Interactive queries over HTTP: every type of store, pages, and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from streamkit import serdes
from streamkit.errors import QueryError
from streamkit.http.store_endpoints import key_bytes
from streamkit.transport.embedded import EmbeddedTransport
from tests.broker.support import until
from tests.cli.support import LIMIT_S
from tests.http.support import SHOP, USERS, processed, request, served, write, write_shop

HELD = """\
  held:
    stream: orders
    steps:
      - group_by_key
      - count: held-counts
      - suppress: {name: held, until: 1h}
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Iterator[str]:
    """The address of an application that has processed everything and has committed nothing: rows lie in the cache."""
    folder = tmp_path_factory.mktemp("shop")
    log = EmbeddedTransport(folder / "log")
    write_shop(log)
    with served(folder, log, **{"commit.interval.ms": 3_600_000}) as (address, _):
        processed(address, 3 * len(USERS))
        yield address
    log.close()


def pages(address: str, path: str, **query) -> list[dict]:
    """Return the rows of all pages."""
    rows: list[dict] = []
    after: dict[str, str] = {}
    while True:
        page = request(address, path, **query, **after).json
        rows += page["rows"]
        if page["next"] is None:
            return rows
        assert len(page["rows"]) == query["limit"]
        after = {"after": page["next"]}


def test_get_sees_what_is_only_in_the_cache(shop):
    row = request(shop, "/stores/counts/get", key="user-03").json
    assert (row["store"], row["key"], row["value"], row["timestamp"], row["stale"]) == (
        "counts",
        "user-03",
        3,
        30_001,
        False,
    )


@pytest.mark.parametrize("path", ["counts/all", "per-window/windows", "per-session/sessions"])
def test_read_committed_sees_nothing_before_the_first_commit(shop, path):
    assert pages(shop, f"/stores/{path}", limit=100, isolation="read_committed") == []
    assert pages(shop, f"/stores/{path}", limit=100, isolation="read_uncommitted")


def test_an_unknown_isolation_is_refused(shop):
    answer = request(shop, "/stores/counts/all", isolation="serializable")
    assert answer.status == 400
    assert "expected read_committed or read_uncommitted" in answer.text


def test_headers_are_refused_where_no_store_keeps_them(shop):
    answer = request(shop, "/stores/counts/get?key=user-03&headers=true")
    assert answer.status == 400
    assert "store counts keeps no headers" in answer.text


def test_keys_in_the_json_form_of_their_serde(shop):
    row = request(shop, "/stores/by-user/get", key='{"user": "user-05"}').json
    assert (row["key"], row["value"]) == ({"user": "user-05"}, 3)


@pytest.mark.parametrize("reverse", [False, True])
def test_all_in_pages_over_all_tasks(shop, reverse):
    rows = pages(shop, "/stores/counts/all", limit=7, reverse=str(reverse).lower())
    assert [row["key"] for row in rows] == sorted(USERS, reverse=reverse)
    assert {row["partition"] for row in rows} == {0, 1}


def test_range_and_prefix(shop):
    query = {"from": "user-03", "to": "user-06"}
    assert [row["key"] for row in pages(shop, "/stores/counts/range", limit=2, **query)] == USERS[3:7]
    assert [row["key"] for row in pages(shop, "/stores/counts/prefix", limit=4, prefix="user-1")] == USERS[10:]


def test_windows_of_a_key_and_of_all(shop):
    rows = pages(shop, "/stores/per-window/windows", limit=1, key="user-01")
    assert [(row["key"], row["value"]) for row in rows] == [
        ({"key": "user-01", "start": 0, "end": 10_000}, 2),
        ({"key": "user-01", "start": 30_000, "end": 40_000}, 1),
    ]
    late = {"from": 10_000, "to": 30_000}
    assert [row["key"]["key"] for row in pages(shop, "/stores/per-window/windows", limit=6, **late)] == USERS


def test_sessions_are_read_by_key_and_by_time(shop):
    rows = pages(shop, "/stores/per-session/sessions", limit=1, key="user-02")
    assert [(row["key"]["start"], row["key"]["end"], row["value"]) for row in rows] == [
        (1, 3001, 2),
        (30_001, 30_001, 1),
    ]
    early = {"to": 5000}
    assert sorted(row["key"]["key"] for row in pages(shop, "/stores/per-session/sessions", limit=9, **early)) == USERS


def test_versions_and_values_as_of_a_time(shop):
    assert request(shop, "/stores/prices/get", key="apple").json["value"] == 30
    assert request(shop, "/stores/prices/get", key="apple", as_of=25).json["value"] == 20
    assert request(shop, "/stores/prices/get", key="apple", as_of=5).status == 404
    assert [row["value"] for row in pages(shop, "/stores/prices/versions", limit=2, key="apple")] == [30, 20, 10]


def test_global_tables_and_internal_stores(shop):
    assert request(shop, "/stores/countries/get", key="de").json["value"] == "Germany"
    assert [row["value"] for row in pages(shop, "/stores/countries/all", limit=1)] == ["Germany", "France"]
    stores = {store["name"]: store for store in request(shop, "/stores").json["stores"]}
    join = next(name for name, store in stores.items() if store["type"] == "join_window")
    assert stores[join]["queries"] == ["all"]
    # Earlier rows are older than the join can reach back.
    assert sorted(row["key"]["key"] for row in pages(shop, f"/stores/{join}/all", limit=7)) == USERS


@pytest.mark.parametrize(
    ("path", "query", "status", "text"),
    [
        ("/stores/counts/get", {"key": "nobody"}, 404, "store counts has no key nobody"),
        ("/stores/cuonts/get", {"key": "a"}, 404, "shop has no store cuonts; did you mean 'counts'?"),
        ("/stores/counts/windows", {}, 400, "it answers get, range, prefix, all, not windows"),
        ("/stores/counts/get", {}, 400, "get needs the parameter key"),
        ("/stores/counts/all", {"limit": "many"}, 400, "limit is 'many'; expected a whole number"),
        ("/stores/counts/all", {"limit": 5000}, 400, "limit is 5000; expected 1 to 1000"),
        ("/stores/counts/all", {"reverse": "perhaps"}, 400, "reverse is 'perhaps'; expected true or false"),
        ("/stores/counts/all", {"after": "!"}, 400, "after is '!'; expected the `next` of a page"),
        ("/stores/counts/all", {"scope": "world"}, 400, "scope is 'world'; expected application or local"),
        ("/stores/counts/all", {"lmit": 5}, 400, "there is no parameter 'lmit'; known: limit"),
        ("/stores/counts/all", {"partition": 7, "scope": "local"}, 503, "no running task for partition 7 here"),
        ("/stores/prices/get", {"key": "apple", "as_of": "x"}, 400, "as_of is 'x'; expected a whole number"),
        ("/nothing", {}, 404, "there is nothing at /nothing; /api lists the endpoints"),
    ],
)
def test_what_is_refused(shop, path, query, status, text):
    answer = request(shop, path, **query)
    assert answer.status == status
    assert text in answer.json["error"]


def test_stores_in_memory_with_commits_by_their_bytes_and_rows_with_headers(tmp_path):
    log = EmbeddedTransport(tmp_path / "log")
    write_shop(log)
    write(log, [("countries", b"fr", b"France", 2, [("from", b"a list"), ("none", None)], None)])
    settings = {
        "commit.interval.ms": 3_600_000,
        "statestore.cache.max.bytes": 0,
        "default.interactive.query.isolation.level": "read_committed",
        "enable.transactional.statestores": True,
        "statestore.uncommitted.max.bytes": 1,
        "dsl.store.format": "HEADERS",
    }
    text = SHOP.replace("count: counts", "count: {store: {name: counts, persistent: false}}") + HELD
    with served(tmp_path, log, text=text, **settings) as (address, _):
        processed(address, 3 * len(USERS))

        def committed() -> bool:
            return request(address, "/stores/counts/get", key="user-03").json.get("value") == 3

        # Nothing else commits within the hour.
        until(committed, "a commit by the bytes of uncommitted writes")
        rows = [
            (row["key"], row["value"], row["headers"])
            for row in request(address, "/stores/countries/all?headers=true").json["rows"]
        ]
        # In Java, too, the setting has no effect on stores that are not transactional.
        held = sorted(row["key"] for row in pages(address, "/stores/held-store/all", limit=100))
        found = request(
            address, "/sql", query='SELECT key FROM "held-store" JOIN counts USING (key) ORDER BY key'
        ).json["rows"]
        refused = request(address, "/stores/held-store/all", isolation="read_committed")
    assert (held, found) == (USERS, [[user] for user in USERS])
    assert refused.status == 400
    assert "store held-store is a suppress store, which has no state of its last commit" in refused.json["error"]
    assert rows == [("de", "Germany", []), ("fr", "France", [["from", "a list"], ["none", None]])]
    log.close()


def test_reads_while_records_are_processed(tmp_path):
    log = EmbeddedTransport(tmp_path / "log")
    write_shop(log)
    # A small cache, so that entries leave it all the time.
    config = {"commit.interval.ms": 100, "statestore.cache.max.bytes": 4000}
    with served(tmp_path / "a", log, **config) as (address, _):
        failures: list[str] = []
        stop = threading.Event()

        def ask(path: str, **query) -> None:
            seen: dict[str, int] = {}
            while not stop.is_set():
                answer = request(address, path, **query)
                rows = answer.json.get("rows", [answer.json])
                keys = [row.get("key") for row in rows]
                counts = {str(row["key"]): row["value"] for row in rows if "value" in row}
                if answer.status != 200 or len(counts) != len(keys):
                    failures.append(answer.text)
                elif any(counts.get(key, 0) < count for key, count in seen.items()):
                    failures.append(f"{path}: {seen} before {counts}")
                seen = counts

        asking = [
            threading.Thread(target=ask, args=("/stores/counts/all",), kwargs={"limit": 100}),
            threading.Thread(target=ask, args=("/stores/counts/get",), kwargs={"key": "user-01"}),
            threading.Thread(target=ask, args=("/stores/per-window/windows",), kwargs={"limit": 1000}),
        ]
        processed(address, 3 * len(USERS))
        for thread in asking:
            thread.start()
        producer = log.producer()
        rounds = 60
        for number in range(rounds):
            producer.send([("orders", user.encode(), b"{}", 30_002 + number, None, None) for user in USERS])
            producer.flush()
        producer.close()
        processed(address, (3 + rounds) * len(USERS))
        stop.set()
        for thread in asking:
            thread.join(LIMIT_S)
        assert failures == []
        assert request(address, "/stores/counts/get", key="user-01").json["value"] == 3 + rounds
    log.close()


@pytest.mark.parametrize(
    ("spec", "text", "value"),
    [
        ("json", "true", True),
        ("json", "1", 1),
        ("json", "1.0", 1.0),
        ("json", "-0.0", -0.0),
        ("json", '"1"', "1"),
        ("json", '{"b": 2, "a": 1}', {"b": 2, "a": 1}),
        ("double", "0", 0.0),
        ("double", "-0.0", -0.0),
        ("double", "NaN", float("nan")),
        ("string", "cafe\u0301", "cafe\u0301"),
        ("boolean", "true", True),
    ],
)
def test_a_key_is_queried_by_its_own_bytes(spec: str, text: str, value: object) -> None:
    serde = serdes.parse(spec)
    assert key_bytes(serde, text) == serde.encode(value)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("long", "true"),
        ("long", "1.5"),
        ("boolean", "1"),
        ("double", "true"),
        pytest.param("long", "[" * 5_000, id="deeper than JSON is read"),
    ],
)
def test_a_key_of_another_kind_is_refused(spec: str, text: str) -> None:
    with pytest.raises(QueryError):
        key_bytes(serdes.parse(spec), text)


def test_all_pages_of_one_partition(shop):
    """Rows of other partitions must not take the places of its rows."""
    rows = pages(shop, "/stores/counts/all", limit=100)
    assert {row["partition"] for row in rows} == {0, 1}
    for number in (0, 1):
        wanted = [row for row in rows if row["partition"] == number]
        assert pages(shop, "/stores/counts/all", limit=2, partition=number) == wanted
