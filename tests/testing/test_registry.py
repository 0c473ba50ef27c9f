"""Tests of topologies whose serdes ask a schema registry."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testing.support import failures

TOPOLOGY = """\
streamkit: 1
application: shop
topics:
  plain: {value: json}
  orders: {key: string, value: {avro: {file: order.avsc}}}
  stored: {key: string, value: {avro: {subject: stored-value}}}
  out: {key: string, value: {avro: {file: order.avsc}}}
  copies: {value: json}
pipelines:
  orders: {stream: orders, to: out}
  stored: {stream: stored, to: out}
  plain: {stream: plain, to: copies}
"""
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}
TESTS = """\
tests:
  writes:
    given: [{topic: orders, key: a, value: {n: 2}}]
    expect: {out: [{key: a, value: {n: 2}}]}
  asks:
    given:
      - {topic: stored, key: a, value: {n: 2}}
      - {topic: stored, key: a, value: {n: 3}}
    expect: {out: []}
  needs nothing:
    given: [{topic: plain, key: a, value: 1}]
    expect: {copies: [{key: a, value: 1}]}
"""


class Empty(http.server.BaseHTTPRequestHandler):
    """A registry without a schema, which notes what it is asked."""

    asked: list[str]

    def do_GET(self) -> None:
        self._answer({"error_code": 40401, "message": "Subject not found"}, 404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer({"id": 1}, 200)

    def _answer(self, body: dict[str, object], status: int) -> None:
        self.asked.append(f"{self.command} {self.path.partition('?')[0]}")
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments: object) -> None:
        """Log nothing."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER), encoding="utf-8")
    return tmp_path


@pytest.fixture
def registry() -> Iterator[tuple[str, list[str]]]:
    handler = type("Asked", (Empty,), {"asked": []})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", handler.asked
        finally:
            server.shutdown()
            thread.join()


def test_a_test_writes_nothing_to_the_registry(folder: Path, registry: tuple[str, list[str]]) -> None:
    url, asked = registry
    found = failures(folder, TESTS, TOPOLOGY, **{"schema.registry.url": url})
    assert [each for each in asked if not each.startswith("GET /subjects/stored-value")] == []
    assert len(found) == 1
    assert found[0].startswith("7:9: ")
    assert "subject stored-value: it has none" in found[0]


def test_a_registry_that_does_not_answer_fails_the_tests_that_ask_it(folder: Path) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Empty) as closed:
        url = f"http://127.0.0.1:{closed.server_port}"
    found = failures(folder, TESTS, TOPOLOGY, **{"schema.registry.url": url})
    assert len(found) == 1
    assert found[0].startswith("7:9: ")
    assert f"schema registry {url} doesn't answer" in found[0]
