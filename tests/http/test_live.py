"""Records of topics, pushed changes, the last hour, and dead letters with their replay, over HTTP."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streamkit.http import acceptor
from streamkit.http.event_stream import MOST_STREAMS
from streamkit.http.history import LogEvents
from streamkit.transport import open_transport
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import NewTopic
from tests.broker.kafka_broker import Broker
from tests.broker.support import fresh, until
from tests.cli.support import LIMIT_S
from tests.http.support import SHOP, USERS, processed, request, served, write_shop
from tests.http.test_state import SLOW_TO_EXPIRE, write

LETTERS = """\
streamkit: 1
application: bills
config:
  bootstrap.servers: embedded
  poll.ms: 10
  processing.exception.handler: continue
  errors.dead.letter.queue.topic.name: bills-dead
topics:
  bills: {key: string, value: json, partitions: 1}
  bills-dead: {key: bytes, value: bytes, partitions: 1}
  paid: {key: string, value: json, partitions: 1}
pipelines:
  paid:
    stream: bills
    steps:
      - map_values: "{'cents': value.euros * 100}"
    to: paid
"""
TOKEN = {"Authorization": "Bearer s3cret"}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedTransport]:
    transport = EmbeddedTransport(tmp_path / "log")
    yield transport
    transport.close()


@pytest.fixture
def shop(tmp_path: Path, log: EmbeddedTransport) -> Iterator[str]:
    write_shop(log)
    # Changes are in changelogs once the caches are flushed, at a commit.
    with served(tmp_path / "a", log, **{"commit.interval.ms": 50}) as (address, _):
        processed(address, 3 * len(USERS))
        yield address


class Stream:
    """The events of an open stream."""

    def __init__(self, response: http.client.HTTPResponse):
        self._response = response

    def next(self, name: str) -> Any:
        """Return the data of the next event of this name."""
        deadline = time.monotonic() + LIMIT_S
        event = ""
        while time.monotonic() < deadline:
            line = self._response.readline().decode().rstrip("\n")
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: ") and event in (name, "problem"):
                assert event == name, line
                return json.loads(line[6:])
        raise AssertionError(f"no event {name}")


@contextmanager
def streamed(address: str, path: str, headers: dict[str, str] | None = None) -> Iterator[Stream]:
    connection = http.client.HTTPConnection(address, timeout=LIMIT_S)
    try:
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        assert response.getheader("content-type", "").startswith("text/event-stream")
        # The stream is at its place in the log once its first line has come.
        assert response.readline().startswith(b"retry:")
        yield Stream(response)
    finally:
        connection.close()


def order(log: EmbeddedTransport, user: str, timestamp: int = 40_000) -> None:
    producer = log.producer()
    producer.send([("orders", user.encode(), b'{"n":1}', timestamp, [("from", b"a test")], None)])
    producer.flush()
    producer.close()


def test_the_last_records_of_a_topic_come_decoded(shop: str) -> None:
    found = request(shop, "/topics/orders/records", limit=5).json
    assert found["complete"]
    assert len(found["records"]) == 5
    newest = found["records"][-1]
    assert newest["timestamp"] == 30_001
    assert newest["value"] == {"n": 1}
    assert newest["offset"] + 1 in [each["end"] for each in found["partitions"]]


def test_records_are_chosen_by_key_time_offset_and_partition(shop: str) -> None:
    def times(**query: Any) -> list[int]:
        return [each["timestamp"] for each in request(shop, "/topics/orders/records", **query).json["records"]]

    assert times(key="user-07") == [1, 3001, 30_001]
    assert times(key="user-07", **{"from": "3000", "to": "30000"}) == [3001]
    assert times(key="absent") == []
    # The first ones by time, of all partitions.
    assert times(offset=0, limit=len(USERS) + 1) == [1] * len(USERS) + [3001]
    first = request(shop, "/topics/orders/records", offset=2, partition=1, limit=3).json["records"]
    assert [(each["partition"], each["offset"]) for each in first] == [(1, 2), (1, 3), (1, 4)]


def test_internal_topics_are_read_too_and_unknown_ones_are_named(shop: str) -> None:
    names = {each["name"] for each in request(shop, "/topics").json["topics"]}
    assert {"orders", "counts-changelog", "by-user-repartition"} <= names

    def counted() -> list[int]:
        rows = request(shop, "/topics/counts-changelog/records", key="user-01").json["records"]
        return [each["value"] for each in rows]

    until(lambda: counted()[-1:] == [3], "the count is in the changelog")
    answer = request(shop, "/topics/order/records")
    assert (answer.status, "'orders'" in answer.text or "orders" in answer.text) == (404, True)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"limit": 501}, "limit"),
        ({"partition": 9}, "has 2 partitions"),
        ({"from": "soon"}, "from soon"),
        ({"from": "9" * 23}, "from 999"),
        ({"to": "9" * 5000}, "to 999"),
        ({"from": "1", "offset": 1}, "exclude each other"),
        ({"where": "True"}, "where"),
    ],
)
def test_what_makes_no_sense_is_refused(query: dict[str, Any], reason: str, shop: str) -> None:
    answer = request(shop, "/topics/orders/records", **query)
    assert answer.status == 400
    assert reason in answer.json["error"]


def test_large_values_are_left_out(shop: str, log: EmbeddedTransport) -> None:
    producer = log.producer()
    producer.send([("orders", b"big", json.dumps("x" * 100_000).encode(), 50_000, None, None)])
    producer.flush()
    producer.close()
    record = request(shop, "/topics/orders/records", key="big").json["records"][0]
    assert record["value"] is None
    assert "100,002 bytes" in record["error"]


def test_new_records_and_changes_are_pushed(shop: str, log: EmbeddedTransport) -> None:
    with (
        streamed(shop, "/topics/orders/changes") as records,
        streamed(shop, "/stores/counts/changes?key=user-03") as one,
        streamed(shop, "/stores/per-window/changes") as windows,
    ):
        order(log, "user-02")
        order(log, "user-03")
        record = records.next("record")
        assert (record["key"], record["value"], record["headers"]) == ("user-02", {"n": 1}, [["from", "a test"]])
        change = one.next("change")
        assert (change["key"], change["value"]) == ("user-03", 4)
        assert windows.next("change")["key"]["start"] == 40_000


def test_a_store_without_a_changelog_has_no_changes(tmp_path: Path, log: EmbeddedTransport) -> None:
    write_shop(log)
    text = SHOP.replace("{count: counts}", "{count: {store: {name: counts, logging: false}}}")
    with served(tmp_path / "a", log, text=text) as (address, _):
        answer = request(address, "/stores/counts/changes")
        assert (answer.status, "no changelog" in answer.text) == (400, True)
        assert request(address, "/stores/count/changes").status == 404


def test_a_stream_that_falls_behind_continues_at_the_end_and_reports_it(shop: str, log: EmbeddedTransport) -> None:
    with streamed(shop, "/topics/orders/changes?partition=0") as records:
        producer = log.producer()
        producer.send([("orders", b"many", b'{"n":1}', 60_000 + at, None, 0) for at in range(30_000)])
        producer.flush()
        producer.close()
        skipped = records.next("skipped")
        assert skipped["partitions"] == [0]
        assert skipped["offsets"] > 10_000


def test_a_client_that_reads_nothing_is_cut(tmp_path: Path, log: EmbeddedTransport) -> None:
    write_shop(log)
    # Long enough for the requests of the test itself, also where the machine is slow.
    config = {"http.idle.timeout.ms": 3000}
    with served(tmp_path / "a", log, **config) as (address, _), streamed(address, "/topics/orders/changes"):
        value = json.dumps("x" * 50_000).encode()
        producer = log.producer()
        for _ in range(10):
            producer.send([("orders", b"large", value, 60_000, None, 0) for _ in range(100)])
            producer.flush()

        def cut() -> bool:
            producer.send([("orders", b"large", value, 60_000, None, 0) for _ in range(100)])
            producer.flush()
            return 'streamkit_http_refused_total{reason="timeout"} 1.0' in request(address, "/metrics").text

        until(cut, "the stream is cut")
        producer.close()


@pytest.mark.broker
def test_topics_of_kafka_are_read_and_followed(tmp_path: Path, broker: Broker) -> None:
    application = fresh("live")
    topic = fresh("orders")
    text = SLOW_TO_EXPIRE.format(application=application, topic=topic)
    transport = open_transport(broker.address, None, str(tmp_path))
    try:
        admin = transport.admin()
        admin.create_topics([NewTopic(topic, 4)])
        admin.close()
        write(transport, topic, 40)
        with served(tmp_path / "a", transport, text=text) as (address, _):
            until(lambda: request(address, "/status").json["lag"] == 0, "all records are processed")
            found = request(address, f"/topics/{topic}/records", limit=30).json
            assert len(found["records"]) == 30
            assert [each["end"] for each in found["partitions"]] == [10] * 4
            assert len(request(address, f"/topics/{topic}/records", offset=4).json["records"]) == 24
            with (
                streamed(address, f"/topics/{topic}/changes?partition=1") as records,
                streamed(address, "/stores/counts/changes?key=k1") as changes,
            ):
                write(transport, topic, 4)
                record = records.next("record")
                assert (record["key"], record["partition"], record["offset"]) == ("k1", 1, 10)
                assert (changes.next("change"))["value"] == 2
    finally:
        transport.close()


def test_streams_are_limited_and_end_with_the_server(
    tmp_path: Path, log: EmbeddedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A server cuts after 2 s what goes on; here all streams have the time that they need to end.
    monkeypatch.setattr(acceptor, "_GRACE_SECONDS", LIMIT_S)
    write_shop(log)
    with served(tmp_path / "a", log) as (address, _):
        open_streams = [streamed(address, "/status/changes") for _ in range(MOST_STREAMS)]
        running = [each.__enter__() for each in open_streams]
        assert request(address, "/status/changes").status == 503
        # Other requests have threads of their own.
        assert request(address, "/status").status == 200
        open_streams[0].__exit__(None, None, None)
        until(lambda: request(address, "/status/changes", method="HEAD").status == 200, "a stream is free again")
        assert running[1].next("status")["application"] == "shop"
    assert running[2]._response.read() is not None
    for each in open_streams[1:]:
        each.__exit__(None, None, None)


def test_a_quiet_stream_ends_with_its_client(shop: str) -> None:
    host, port = shop.split(":")
    with socket.create_connection((host, int(port)), timeout=LIMIT_S) as connection:
        connection.sendall(f"GET /topics/countries/changes HTTP/1.1\r\nHost: {shop}\r\n\r\n".encode())
        found = b""
        while b"retry:" not in found:
            found += connection.recv(65_536)
        connection.shutdown(socket.SHUT_WR)
        ended = b""
        while b":\n\n" not in ended and (piece := connection.recv(65_536)):
            ended += piece
        # The next sign of life of a stream that goes on is a comment, ":".
        assert b":\n\n" not in ended


def test_status_and_history_are_pushed(shop: str) -> None:
    with streamed(shop, "/status/changes") as events:
        assert events.next("status")["instances"][0]["address"] == shop
        point = events.next("history")["instances"][0]["points"][-1]
    assert point["time"] % 5000 == 0
    assert (point["lag"], point["own_lag"], point["owned"]) == (0, 0, point["partitions"])
    assert point["memory"] > 10_000_000
    kept = request(shop, "/history").json["instances"][0]
    assert point in kept["points"]
    # Beside it there may be warnings, where the machine is slow.
    (rebalance,) = [each["text"] for each in kept["events"] if each["kind"] == "rebalance"]
    assert "6 active and 0 standby tasks" in rebalance


def test_equal_events_in_a_row_are_one() -> None:
    events = LogEvents()
    for text in ("the log does not respond", "the log does not respond", "it does"):
        events.handle(logging.LogRecord("streamkit", logging.WARNING, "", 0, text, None, None))
    assert [(each["text"], each["count"]) for each in events.list()] == [
        ("the log does not respond", 2),
        ("it does", 1),
    ]


def test_nodes_have_the_lines_of_their_steps(shop: str) -> None:
    nodes = request(shop, "/nodes").json["nodes"]
    grouped = [each for each in nodes.values() if each["step"] == "group_by"]
    assert grouped[0]["yaml"].splitlines()[0].startswith("- group_by: {key:")
    assert all(each["yaml"] for each in nodes.values())


@contextmanager
def bills(tmp_path: Path, log: EmbeddedTransport, token: str | None = None, *, letters: int = 2) -> Iterator[str]:
    """Run a topology whose step fails at two of three records, and give its address when there are so many letters."""
    with served(tmp_path / "a", log, text=LETTERS, token=token) as (address, _):
        producer = log.producer()
        rows = [("bills", b"ada", b'{"euros": 3}'), ("bills", b"bob", b"{}"), ("bills", b"cy", b"[]")]
        producer.send([(*row, at + 1, None, 0) for at, row in enumerate(rows)])
        producer.flush()
        producer.close()
        headers = TOKEN if token else {}
        until(
            lambda: request(address, "/dead-letters", headers=headers).json["total"] == letters,
            "two records have failed",
        )
        yield address


def test_dead_letters_have_their_reasons_and_are_replayed(tmp_path: Path, log: EmbeddedTransport) -> None:
    with bills(tmp_path, log) as address:
        found = request(address, "/dead-letters").json
        assert [letter["key"] for letter in found["letters"]] == ["cy", "bob"]
        assert sum(kind["count"] for kind in found["kinds"]) == 2
        letter = found["letters"][1]
        assert (letter["error"], letter["step"], letter["replayable"]) == ("KeyError", "paid.map_values", True)
        assert request(address, "/dead-letters/replay", method="POST", topic="bills-dead").status == 400
        answer = request(address, "/dead-letters/replay", method="POST", **letter["dead_letter"])
        assert answer.json == {"replayed": 1}
        gone = request(address, "/dead-letters/replay", method="POST", **{**letter["dead_letter"], "offset": 99})
        assert (gone.status, "@99 to replay" in gone.json["error"]) == (404, True)
        # The record fails again: there is a letter of the second failure, and the first one is gone.
        until(lambda: len(_offsets(address)) == 2, "the record has failed again")
        assert letter["dead_letter"]["offset"] not in _offsets(address)
        assert request(address, "/dead-letters/replay", method="POST").json["replayed"] >= 1


def _offsets(address: str) -> set[int]:
    return {each["dead_letter"]["offset"] for each in request(address, "/dead-letters").json["letters"]}


def test_a_replay_is_protected_as_all_requests_that_change_something(tmp_path: Path, log: EmbeddedTransport) -> None:
    with bills(tmp_path, log, token="s3cret") as address:
        other = {**TOKEN, "Origin": "http://elsewhere.example"}
        for path in ("/dead-letters/replay", "/pause", "/threads"):
            assert request(address, path, method="POST").status == 401
            assert request(address, path, method="POST", headers=other).status == 403
            assert request(address, path, method="POST", headers={**TOKEN, "Host": "elsewhere.example"}).status == 403
        assert request(address, "/dead-letters", headers=TOKEN).json["total"] == 2
        for path in ("/dead-letters", "/topics/bills/records", "/status/changes", "/history", "/nodes"):
            assert request(address, path).status == 401


def test_an_application_without_dead_letters_has_none(shop: str) -> None:
    found = request(shop, "/dead-letters").json
    assert (found["letters"], found["total"], found["topics"]) == ([], 0, [])
    assert request(shop, "/dead-letters/replay", method="POST").status == 400


def test_another_instance_is_paused_by_its_name(tmp_path: Path, log: EmbeddedTransport) -> None:
    write_shop(log)
    with served(tmp_path / "a", log) as (address, _), served(tmp_path / "b", log) as (other, second):
        until(lambda: len(request(address, "/status").json["instances"]) == 2, "both instances are known")
        assert request(address, "/pause", method="POST", instance=other).json == {"paused": True}
        assert second.paused
        assert request(address, "/resume", method="POST", instance=other).json == {"paused": False}
        assert len(request(address, "/threads", method="POST", instance=other).json["threads"]) == 3
        answer = request(address, "/pause", method="POST", instance="127.0.0.1:1")
        assert (answer.status, other in answer.text) == (400, True)
