"""A real application over the embedded log, served over HTTP."""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

from streamkit.config import Config
from streamkit.http.endpoint_app import HttpServer
from streamkit.plan import load
from streamkit.runtime.local.client import Application
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import NewTopic
from tests.broker.support import until
from tests.cli.support import LIMIT_S

SHOP = """\
streamkit: 1
application: shop
config:
  bootstrap.servers: embedded
  num.stream.threads: 2
  poll.ms: 10
topics:
  orders: {key: string, value: json, partitions: 2}
  prices: {key: string, value: long, partitions: 2}
  countries: {key: string, value: string, partitions: 1}
pipelines:
  prices: {table: prices, store: {name: prices, versioned: 1h}}
  countries: {global_table: countries, store: {name: countries}}
  counts:
    stream: orders
    steps: [group_by_key, {count: counts}]
  totals:
    stream: orders
    steps:
      - group_by: {key: "{'user': key}", key_serde: json}
      - count: by-user
  windows:
    stream: orders
    steps: [group_by_key, {window: {tumbling: 10s}}, {count: per-window}]
  sessions:
    stream: orders
    steps: [group_by_key, {window: {session: 5s}}, {count: per-session}]
  pairs:
    stream: orders
    steps:
      - join: {with: {stream: orders}, within: 1s, value: "[left, right]", store: pairs}
"""
USERS = [f"user-{number:02d}" for number in range(20)]


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def request(
    address: str, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, **query: Any
) -> Answer:
    connection = http.client.HTTPConnection(address, timeout=LIMIT_S)
    try:
        connection.request(method, f"{path}?{urlencode(query)}" if query else path, headers=dict(headers or {}))
        response = connection.getresponse()
        return Answer(
            response.status, {name.lower(): value for name, value in response.getheaders()}, response.read().decode()
        )
    finally:
        connection.close()


def instance(server: str, peers: str = "") -> Any:
    """Return as much of an application as `Peers` needs: its `application.server` and `http.peers`."""
    config = Config("shop", {"application.server": server, "http.peers": peers})
    return SimpleNamespace(plan=SimpleNamespace(config=config))


def write_shop(log: EmbeddedTransport) -> None:
    """Write three orders of each user at 0, 3 and 30 s, prices that change, and some countries."""
    admin = log.admin()
    admin.create_topics([NewTopic("orders", 2), NewTopic("prices", 2), NewTopic("countries", 1)])
    admin.close()
    rows: list[tuple] = [
        ("orders", user.encode(), b'{"n":1}', time + 1, None, None) for time in (0, 3000, 30_000) for user in USERS
    ]
    rows += [("prices", b"apple", (time).to_bytes(8, "big"), time, None, None) for time in (10, 20, 30)]
    rows += [("countries", code, name, 1, None, None) for code, name in ((b"de", b"Germany"), (b"fr", b"France"))]
    write(log, rows)


def write(log: EmbeddedTransport, rows: list[tuple]) -> None:
    """Write records to a log."""
    producer = log.producer()
    producer.send(rows)
    producer.flush()
    producer.close()


@contextmanager
def served(
    folder: Path,
    log: EmbeddedTransport,
    *,
    text: str = SHOP,
    token: str | None = None,
    host: str = "127.0.0.1",
    hosts: str | None = None,
    **config: Any,
) -> Iterator[tuple[str, Application]]:
    """Run a topology, and give its address and the application, once it is ready."""
    folder.mkdir(exist_ok=True)
    file = folder / "topology.yaml"
    file.write_text(text)
    server = HttpServer(host, 0, token, hosts)
    address = f"127.0.0.1:{server.port}"
    plan = load(file, overrides={"state.dir": str(folder / "state"), "application.server": server.address, **config})
    application = Application(plan, log)
    stop = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            application.run(stop=stop)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    server.start(application)
    thread.start()
    try:
        until(lambda: errors or request(address, "/ready").status == 200, "the application is ready")
        yield address, application
    finally:
        stop.set()
        thread.join(LIMIT_S)
        server.close()
    assert errors == []


def processed(address: str, count: int, headers: Mapping[str, str] | None = None) -> None:
    """Wait until the instances have processed so many orders, and as many of the repartition topic, and nothing is left.

    The lag alone does not show the records of the repartition topic: its ends are read once a second only.
    """

    def done() -> bool:
        instances = request(address, "/status", headers=headers).json["instances"]
        consumed = Counter[str]()
        for topic in (topic for each in instances for topic in each.get("topics", ())):
            consumed[topic["topic"]] += topic["consumed"]
        read = min(consumed["orders"], consumed["shop-by-user-repartition"])
        return read >= count and all(each.get("lag") == 0 for each in instances)

    until(done, f"{count} orders are processed")
