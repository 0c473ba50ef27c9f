"""Requests to an instance: what an answer, an error and no answer become for commands and for other instances."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from streamkit.errors import InstanceError, StoreUnavailableError, StreamkitError
from streamkit.http.json_client import JsonClient
from streamkit.http.peers import Peers
from streamkit_cli.remote import Connection
from tests.cli.support import LIMIT_S

ANSWERS = {
    "/found": (200, b'{"rows": []}'),
    "/text": (200, b"<html>"),
    "/missing": (404, b'{"error": "no such store"}'),
    "/unavailable": (503, b'{"error": "restoring"}'),
    "/forbidden": (401, b'{"error": "a token is needed"}'),
    "/broken": (500, b"oops"),
    "/bare": (418, b"{}"),
}


UNUSED = "127.0.0.1:1"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, body = ANSWERS[self.path.partition("?")[0]]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
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
    peers = Peers(SimpleNamespace(), None, 1)
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
