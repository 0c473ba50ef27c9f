"""Requests to an instance: what an answer, an error and no answer become for commands and for other instances."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from streamkit.errors import InstanceError, StoreUnavailableError, StreamkitError
from streamkit.http.json_client import INSTANCE, JsonClient
from streamkit.http.service import Peers
from streamkit_cli.remote import Connection
from tests.cli.support import LIMIT_S, streamkit
from tests.http.support import instance

ANSWERS = {
    "/found": (200, b'{"rows": []}'),
    "/text": (200, b"<html>"),
    "/missing": (404, b'{"error": "no such store"}'),
    "/unavailable": (503, b'{"error": "restoring"}'),
    "/forbidden": (401, b'{"error": "a token is needed"}'),
    "/broken": (500, b"oops"),
    "/bare": (418, b"{}"),
    "/moved": (307, b""),
    "/status": (200, b'{"instances": [{"threads": []}]}'),
    "/stores": (200, b"[1]"),
}


UNUSED = "127.0.0.1:1"


seen: list[tuple[str, str, str | None]] = []
"""Path, Host and Authorization of each request."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, body = ANSWERS[self.path.partition("?")[0]]
        seen.append((self.path, self.headers["Host"], self.headers["Authorization"]))
        self.send_response(status)
        if status == 307:
            self.send_header("Location", "/found")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    seen.clear()
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(LIMIT_S)


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/missing", 404, "no such store"),
        ("/unavailable", 503, "restoring"),
        ("/text", 200, "http://{address} answers 200 with something else than JSON"),
        ("/broken", 500, "http://{address} answers 500 with something else than JSON"),
        ("/bare", 418, "http://{address} answers 418"),
        ("/moved", 307, "http://{address} redirects to /found; if that is an instance, give its address"),
    ],
)
def test_an_error_has_the_status_and_the_text_of_the_answer(address: str, path: str, status: int, text: str) -> None:
    with pytest.raises(InstanceError) as caught:
        JsonClient(f"http://{address}/", None, 60).request(path)
    assert (caught.value.status, str(caught.value)) == (status, text.format(address=address))
    with pytest.raises(StreamkitError) as caught_by_command:
        Connection(f"http://{address}", None).get(path)
    assert str(caught_by_command.value) == text.format(address=address)


def test_an_answer_is_its_json(address: str) -> None:
    assert JsonClient(f"http://{address}", "token", 60).request("/found", {"key": "a b", "as_of": None}) == {"rows": []}


def test_no_answer_has_no_status() -> None:
    with pytest.raises(InstanceError, match="Connection refused") as caught:
        JsonClient(f"http://{UNUSED}", None, 60).request("/found")
    assert caught.value.status is None


def test_instances_that_do_not_answer_or_refuse_are_unavailable_to_others(address: str) -> None:
    peers = Peers(instance("a:1"), None, 1)
    assert peers.request(address, "/found", {}) == {"rows": []}
    for server, path, text in (
        (UNUSED, "/found", f"the instance at {UNUSED} does not answer: Connection refused"),
        (address, "/forbidden", f"the instance at {address} refuses this one: a token is needed"),
        (address, "/unavailable", "restoring"),
    ):
        with pytest.raises(StoreUnavailableError) as caught:
            peers.request(server, path, {})
        assert str(caught.value) == text
    with pytest.raises(InstanceError, match="no such store"):
        peers.request(address, "/missing", {})


def test_a_redirect_takes_the_token_nowhere(address: str) -> None:
    with pytest.raises(InstanceError, match="redirects to /found"):
        JsonClient(f"http://{address}", "s3cret", 60).request("/moved")
    assert [path for path, _, _ in seen] == ["/moved"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [(("status",), "/status without 'application'"), (("query",), "/stores of another form")],
)
def test_commands_name_what_is_no_application(arguments: tuple[str, ...], what: str, address: str) -> None:
    done = streamkit(arguments[0], f"http://{address}", *arguments[1:])
    assert done.code == 1
    expected = f"http://{address} is no application of streamkit, or of another version: it answers {what}"
    assert (done.out, done.err) == ("", f"streamkit: {expected}\n")


def test_another_service_at_the_address_of_an_instance_is_an_error_of_that_instance(address: str) -> None:
    with pytest.raises(
        InstanceError, match="is no application of streamkit, or of another version: it answers /status"
    ):
        Peers(instance("a:1"), None, 1).request(address, "/status", {}, shape=INSTANCE)


@pytest.mark.parametrize(
    ("own", "allowed", "host"),
    [
        ("127.0.0.1:1", "", "127.0.0.1"),
        ("127.0.0.1:1", "", "localhost"),
        ("somewhere.example:1", "127.0.0.0/8", "localhost"),
        ("somewhere.example:1", "localhost", "LOCALHOST"),
    ],
)
def test_instances_that_the_user_allows_get_the_token(own: str, allowed: str, host: str, address: str) -> None:
    peers, target = Peers(instance(own, allowed), "s3cret", 1), f"{host}:{address.partition(':')[2]}"
    assert peers.request(target, "/found", {}) == {"rows": []}
    assert seen == [("/found", target, "Bearer s3cret")]


@pytest.mark.parametrize(
    ("allowed", "announced", "reason"),
    [
        ("", "192.0.2.1:80", "http.peers lists neither 192.0.2.1 nor its network"),
        ("10.0.0.0/8,*.shop.example", "192.0.2.1:80", "http.peers lists neither 192.0.2.1 nor its network"),
        ("192.0.2.0/30", "192.0.2.4:80", "http.peers lists neither 192.0.2.4 nor its network"),
        ("", "[2001:db8::1]:80", "http.peers lists neither 2001:db8::1 nor its network"),
        ("*.example", "no.such.name.invalid:80", "does not answer"),
        ("", "a b:80", "which is no HOST:PORT"),
        ("*.shop.example", "192.0.2.1/.shop.example:80", "which is no HOST:PORT"),
        ("*.shop.example", "a@192.0.2.1:80/.shop.example:80", "which is no HOST:PORT"),
        ("*.shop.example", "shop.example:80", "does not answer"),
        ("shop.example", "a.shop.example:80", "does not answer"),
        ("", "192.0.2.1", "which is no HOST:PORT"),
        ("", "192.0.2.1:80/x", "which is no HOST:PORT"),
    ],
)
def test_addresses_that_a_member_only_announces_get_no_request(
    allowed: str, announced: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(JsonClient, "request", lambda client, *arguments: sent.append(client.url))
    with pytest.raises(StoreUnavailableError, match=re.escape(reason)):
        Peers(instance("a:1", allowed), "s3cret", 1).request(announced, "/status", {})
    assert sent == []


@pytest.mark.parametrize(
    ("allowed", "announced", "place"),
    [
        ("192.0.2.0/30", "192.0.2.3:80", "192.0.2.3:80"),
        ("2001:db8::/32", "[2001:db8::1]:80", "[2001:db8::1]:80"),
        ("192.0.2.9", "192.0.2.9:80", "192.0.2.9:80"),
        ("*.shop.example", "a-1.shop.example:80", "a-1.shop.example:80"),
        ("b.example", "b.example.:80", "b.example.:80"),
        ("", "own.example:81", "own.example:81"),
    ],
)
def test_networks_and_names_are_allowed(
    allowed: str, announced: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(JsonClient, "request", lambda client, *arguments: sent.append(client.url))
    Peers(instance("own.example:80", allowed), "s3cret", 1).request(announced, "/status", {})
    assert sent == [f"http://{place}"]
