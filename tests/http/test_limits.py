"""What a client may not do to the server: too many connections, too slow, too large, or no HTTP at all."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from streamkit.config import Config
from streamkit.http import acceptor, endpoint_app
from streamkit.http.acceptor import BODY_BYTES, HEAD_BYTES, Acceptor, Limits, Traffic
from streamkit.http.endpoint_app import HttpServer
from streamkit.http.json_client import JsonClient
from streamkit.http.service import Peers
from streamkit.plan import load
from streamkit.runtime.local.client import Application
from streamkit.transport.embedded import EmbeddedTransport
from tests.broker.support import until
from tests.cli.support import LIMIT_S
from tests.http.support import SHOP, instance, request

IDLE_MS = 1500
"""More than the time that passes on a slow machine until a client that has connected sends its request."""
SMUGGLED = (
    b"POST /pause HTTP/1.1\r\nHost: localhost\r\nLENGTH\r\n\r\n0\r\n\r\nPOST /pause HTTP/1.1\r\nHost: localhost\r\n\r\n"
)
"""A request in whose body, by one of two lengths, another request begins."""
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def serving(tmp_path, **config: object) -> Iterator[HttpServer]:
    """Serve an application that has not started, which answers probes and its documentation."""
    file = tmp_path / "topology.yaml"
    file.write_text(SHOP)
    made = HttpServer("127.0.0.1", 0)
    settings = {name.replace("_", "."): value for name, value in config.items()}
    overrides = {"state.dir": str(tmp_path / "state"), "application.server": made.address, **settings}
    made.start(Application(load(file, overrides=overrides), EmbeddedTransport(tmp_path / "log")))
    try:
        yield made
    finally:
        made.close()


@contextmanager
def client(to: HttpServer) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", to.port), timeout=LIMIT_S) as made:
        yield made


def answer(to: HttpServer, sent: bytes) -> bytes:
    """Return all that the server answers until it closes."""
    with client(to) as connection:
        connection.sendall(sent)
        return rest(connection)


def rest(connection: socket.socket) -> bytes:
    found = b""
    while piece := connection.recv(65_536):
        found += piece
    return found


def one_answer(connection: socket.socket) -> bytes:
    """Return the beginning of an answer after which the connection stays open."""
    connection.sendall(HEALTH)
    found = b""
    while not found.endswith(b"}\n"):
        piece = connection.recv(65_536)
        assert piece, found
        found += piece
    return found


def test_connections_beyond_the_limit_are_refused_at_once_and_those_that_are_open_go_on(tmp_path, caplog):
    with serving(tmp_path, http_max_connections=2) as to, client(to) as first, client(to) as second:
        first.sendall(HEALTH[:10])
        second.sendall(HEALTH[:10])
        until(lambda: to.traffic.open == 2, "both are open")
        refused = answer(to, b"")
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"2 connections are open" in refused
        assert refused.count(b"Connection: close") == 1
        first.sendall(HEALTH[10:])
        assert first.recv(65_536).startswith(b"HTTP/1.1 200 ")
        assert to.traffic.refused == {"connections": 1}
    # Reported once, at the next look or at the close.
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert lines == [f"http://{to.address} refused or cut connections: 1 beyond the limit"]


def test_a_connection_that_has_had_its_answer_makes_room(tmp_path):
    with serving(tmp_path, http_max_connections=2) as to, client(to) as first, client(to) as second:
        assert one_answer(first).startswith(b"HTTP/1.1 200 ")
        assert one_answer(second).startswith(b"HTTP/1.1 200 ")
        with client(to) as third:
            assert one_answer(third).startswith(b"HTTP/1.1 200 ")
            # The one that was silent for longest has gone, the other one goes on.
            assert rest(first) == b""
            assert one_answer(second).startswith(b"HTTP/1.1 200 ")
        assert to.traffic.refused == {}


@pytest.mark.parametrize(
    ("sent", "dripped", "reason"),
    [
        (b"", b"", "idle"),
        (b"GET /health HTTP/1.1\r\nX-Slow: ", b"a", "timeout"),
        (b"POST /pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n", b"a", "timeout"),
    ],
)
def test_what_takes_too_long_is_cut_however_steadily_bytes_come(tmp_path, sent, dripped, reason):
    with serving(tmp_path, http_idle_timeout_ms=IDLE_MS) as to, client(to) as connection:
        connection.sendall(sent)
        connection.settimeout(0.02)

        def ended() -> bool:
            try:
                connection.sendall(dripped)
                while connection.recv(65_536):
                    pass
            except TimeoutError:
                return False
            except ConnectionError:
                pass
            return True

        until(ended, "the server cuts the connection")
        until(lambda: to.traffic.refused == {reason: 1}, "it is counted")
        until(lambda: to.traffic.open == 0, "the connection is closed")


def test_a_pause_between_requests_is_no_fault_but_ends(tmp_path):
    with serving(tmp_path, http_idle_timeout_ms=IDLE_MS) as to, client(to) as connection:
        assert one_answer(connection).startswith(b"HTTP/1.1 200 ")
        assert rest(connection) == b""
        assert to.traffic.refused == {}


def test_clients_that_do_not_read_answers_are_disconnected(tmp_path):
    with serving(tmp_path, http_idle_timeout_ms=IDLE_MS) as to, client(to) as connection:
        connection.setblocking(False)
        page = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"

        def asked_enough() -> bool:
            try:
                connection.send(page * 100)
            except BlockingIOError:
                return to.traffic.refused["timeout"] == 1
            except ConnectionError:
                return True
            return False

        until(asked_enough, "the server stops reading and cuts the connection")
        until(lambda: to.traffic.refused == {"timeout": 1} and to.traffic.open == 0, "it is counted")
        assert request(to.address, "/health").status == 200


@pytest.mark.parametrize(
    ("sent", "status", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "malformed"),
        (b"GET /health\r\n\r\n", 400, "malformed"),
        (b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n", 431, "too_large"),
        (b"GET /health HTTP/1.1\r\n" + b"X-A: b\r\n" * 200_000, 431, "too_large"),
        (HEALTH[:-2] + b"X-A: " + b"b" * 2 * HEAD_BYTES + b"\r\n\r\n", 431, "too_large"),
        (b"POST /pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES + 1), 413, "too_large"),
        (SMUGGLED.replace(b"LENGTH", b"Content-Length: 5\r\nTransfer-Encoding: chunked"), 400, "malformed"),
        (SMUGGLED.replace(b"LENGTH", b"Transfer-Encoding: chunked\r\nContent-Length: 5"), 400, "malformed"),
        (SMUGGLED.replace(b"LENGTH", b"Transfer-Encoding: chunked").replace(b"1.1", b"1.0", 1), 400, "malformed"),
        (SMUGGLED.replace(b"LENGTH", b"Content-Length: 5\r\nContent-Length: 6"), 400, "malformed"),
    ],
    ids=["tls", "HTTP/0.9", "line", "headers", "header", "body", "two ends", "two ends, turned", "1.0", "two lengths"],
)
def test_what_is_no_request_or_too_large_is_answered_and_closed(tmp_path, caplog, sent, status, reason):
    with serving(tmp_path) as to:
        found = answer(to, sent)
        assert found.startswith(b"HTTP/1.1 %d " % status), found[:200]
        assert found.count(b"HTTP/1.1 %d " % status) == found.count(b"\r\n\r\n") == 1
        assert to.traffic.refused == {reason: 1}
        assert request(to.address, "/health").status == 200
    # A client's mistake is no warning, and no line for each.
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_a_body_without_a_length_has_the_same_limit(tmp_path):
    chunked = b"POST /pause HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serving(tmp_path) as to, client(to) as connection:
        connection.sendall(chunked)
        with pytest.raises(ConnectionError):
            until(lambda: connection.send(b"400\r\n" + b"a" * 1024 + b"\r\n") == 0, "the server stops reading")
        until(lambda: to.traffic.refused == {"too_large": 1} and to.traffic.open == 0, "it is cut")


def test_a_client_that_has_ended_its_side_gets_its_answer(tmp_path):
    with serving(tmp_path) as to:
        with client(to) as connection:
            connection.sendall(HEALTH)
            connection.shutdown(socket.SHUT_WR)
            assert rest(connection).startswith(b"HTTP/1.1 200 ")
        with client(to) as connection:
            connection.shutdown(socket.SHUT_WR)
            assert rest(connection) == b""


def test_the_port_that_the_system_chose_is_logged(tmp_path, caplog):
    with caplog.at_level(logging.INFO), serving(tmp_path) as to:
        assert f"the HTTP server listens at http://127.0.0.1:{to.port}/" in caplog.messages


def test_the_limit_follows_from_the_files_that_the_process_may_open(monkeypatch):
    config = Config("a")
    for files, found in ((None, (100, None)), (1024, (100, 768)), (256, (64, 192)), (3, (1, 3))):
        monkeypatch.setattr(acceptor, "open_files", lambda files=files: files)
        made = Limits.of(config)
        assert (made.connections, made.reserved, made.idle_seconds) == (*found, 10.0)


def test_the_last_descriptors_are_left_to_the_application(tmp_path, monkeypatch):
    # Every descriptor is in the reserve.
    monkeypatch.setattr(Limits, "of", lambda config: Limits(100, 10.0, 0))
    with serving(tmp_path) as to, client(to), client(to), client(to), client(to):
        until(lambda: to.traffic.open == acceptor.ALWAYS, "a few are taken all the same")
        assert b"short of file descriptors" in answer(to, b"")
        assert to.traffic.refused == {"descriptors": 1}


def test_without_descriptors_accepting_pauses(monkeypatch):
    listener = SimpleNamespace(fileno=lambda: 77, setblocking=lambda flag: None, accept=lambda: refuse())
    attempts = []

    def refuse() -> None:
        attempts.append(1)
        raise OSError(errno.EMFILE, "Too many open files")

    class Loop:
        """An event loop whose listening socket is always readable, as it is without descriptors."""

        reader = None

        def add_reader(self, number, call):
            self.reader = call

        def remove_reader(self, number):
            self.reader = None

        def time(self):
            return 0.0

        def call_later(self, seconds, call):
            return SimpleNamespace(cancel=lambda: None, seconds=seconds, call=call)

    loop = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    traffic = Traffic()
    made = Acceptor(SimpleNamespace(), listener, Limits(10, 10.0, None), traffic, "here")
    made.open()
    loop.reader()
    assert (loop.reader, attempts, traffic.refused) == (None, [1], {"descriptors": 1})
    made._timers["accept"].call()
    assert loop.reader is not None


def test_a_server_that_fails_is_started_again(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(endpoint_app, "_AGAIN_SECONDS", 0.01)
    calls: list[int] = []
    run = uvicorn.Server.run

    def failing(self, sockets=None):
        calls.append(1)
        if len(calls) == 1:
            raise MemoryError("no more\nof it")
        if len(calls) == 2:
            raise SystemExit(3)
        run(self, sockets)

    monkeypatch.setattr(uvicorn.Server, "run", failing)
    with serving(tmp_path) as to:
        assert request(to.address, "/health").status == 200
        found = [sample for family in text_string_to_metric_families(metrics_of(to)) for sample in family.samples]
        values = {(sample.name, sample.labels.get("reason")): sample.value for sample in found}
        assert values["streamkit_http_restarts_total", None] == 2
        assert values["streamkit_http_connections_limit", None] == 100
        assert values["streamkit_http_refused_total", "connections"] == 0
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert lines == [
        f"the server at http://{to.address} has ended (MemoryError: no more of it), and starts again in 0.01 s",
        f"the server at http://{to.address} has ended (SystemExit: 3), and starts again in 0.02 s",
    ]


def metrics_of(to: HttpServer) -> str:
    return request(to.address, "/metrics").text


def test_requests_that_wait_for_other_instances_delay_no_probe_and_no_instance(tmp_path, monkeypatch):
    monkeypatch.setattr(endpoint_app, "_THREADS", 1)
    asked, go_on = threading.Event(), threading.Event()

    def silent(self) -> list[str]:
        asked.set()
        assert go_on.wait(LIMIT_S)
        return []

    monkeypatch.setattr(Peers, "others", silent)
    with serving(tmp_path) as to, client(to) as waiting:
        waiting.sendall(HEALTH.replace(b"health", b"status"))
        assert asked.wait(LIMIT_S)
        assert request(to.address, "/health").status == 200
        assert request(to.address, "/status", scope="local").status == 200
        go_on.set()
        assert waiting.recv(65_536).startswith(b"HTTP/1.1 200 ")


def test_only_so_many_requests_to_other_instances_at_a_time(monkeypatch):
    monkeypatch.setattr("streamkit.http.service.TIMEOUT_SECONDS", 0.01)
    peers = Peers(instance("a:1", "b"), None, 1)
    inner = []

    def nested(client, path, parameters, method, shape):
        with pytest.raises(Exception, match="too many requests to other instances: b:1 is not asked") as caught:
            peers.request("b:1", "/status", {})
        inner.append(caught.value)
        return {}

    monkeypatch.setattr(JsonClient, "request", nested)
    assert peers.request("a:1", "/status", {}) == {}
    assert len(inner) == 1
    assert peers.request("a:1", "/status", {}) == {}
