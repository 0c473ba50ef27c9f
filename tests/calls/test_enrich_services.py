"""`enrich` with a real HTTP service and a real PostgreSQL."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tests.calls.lookups_under_test import HEAD, values
from tests.calls.postgres_server import postgres_server
from tests.calls.support import write
from tests.cli.support import assert_one_clear_line, streamkit


class Prices(BaseHTTPRequestHandler):
    """Answers /NAME with its price; the first request for tea finds the service busy."""

    busy: ClassVar[list[str]] = ["/tea"]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        status = 503 if self.path in self.busy else 200
        if status == 503:
            self.busy.remove(self.path)
        body = json.dumps({"price": len(self.path)}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def price_service() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Prices)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


HTTP_MODULE = """
    import httpx

    from streamkit import RetriableError

    class Prices:
        def __init__(self, url: str):
            self.url = url

        async def init(self, context):
            self.client = httpx.AsyncClient(base_url=self.url, trust_env=False)

        async def __call__(self, product):
            answer = await self.client.get(f"/{product}")
            if answer.status_code == 503:
                raise RetriableError("the service is busy")
            return answer.raise_for_status().json()["price"]

        async def close(self):
            await self.client.aclose()
"""


@pytest.mark.process
def test_a_service_over_http(tmp_path: Path) -> None:
    with price_service() as url:
        rest = f"""\
  p:
    stream: in
    steps:
      - map_values: {{value: "'tea' if value % 2 else 'coffee'", value_serde: string}}
      - enrich: {{call: "user_code:Prices", with: {{url: "{url}"}}, retries: 3, backoff: 1ms, cache: {{size: 10, ttl: 1h}}, value: "[value, result]"}}
    to: out
"""
        file = write(tmp_path, HEAD.replace("CONFIG", "client.id: a") + rest, HTTP_MODULE)
        assert values(file) == [["tea", 4] if n % 2 else ["coffee", 7] for n in range(40)]


POSTGRES_MODULE = """
    import asyncpg

    class Customers:
        def __init__(self, host: str):
            self.host = host

        async def init(self, context):
            self.pool = await asyncpg.create_pool(host=self.host, user="postgres", database="postgres")

        async def __call__(self, ids):
            rows = await self.pool.fetch("SELECT id, name FROM customers WHERE id = ANY($1)", ids)
            names = {row["id"]: row["name"] for row in rows}
            return [names.get(id) for id in ids]

        async def close(self):
            await self.pool.close()
"""
TABLE = (
    "CREATE TABLE customers (id int, name text); INSERT INTO customers SELECT n, 'c' || n FROM generate_series(0, 29) n"
)


@pytest.mark.process
def test_a_table_in_postgres(tmp_path: Path) -> None:
    asyncpg = pytest.importorskip("asyncpg")
    import asyncio

    async def prepare(host: str) -> None:
        connection = await asyncpg.connect(host=host, user="postgres", database="postgres")
        await connection.execute(TABLE)
        await connection.close()

    with postgres_server() as host:
        asyncio.run(prepare(host))
        step = f'{{enrich: {{call: "user_code:Customers", with: {{host: "{host}"}}, batch: 16, value: "[value, result]"}}}}'
        text = HEAD.replace("CONFIG", "client.id: a") + f"  p: {{stream: in, steps: [{step}], to: out}}\n"
        file = write(tmp_path, text, POSTGRES_MODULE)
        assert values(file) == [[n, f"c{n}" if n < 30 else None] for n in range(40)]


@pytest.mark.process
def test_a_database_that_is_absent_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("asyncpg")
    step = f'{{enrich: {{call: "user_code:Customers", with: {{host: "{tmp_path}/gone"}}, batch: 16}}}}'
    config = f"state.dir: {tmp_path}/state"
    text = HEAD.replace("CONFIG", config) + f"  p: {{stream: in, steps: [{step}], to: out}}\n"
    file = write(tmp_path, text, POSTGRES_MODULE)
    assert streamkit("produce", file, "in", stdin='{"value": 1}\n').code == 0
    done = streamkit("run", file, "--until-idle")
    assert_one_clear_line(done, 1, f"{file}:10: pipeline p, step enrich: the processor can't start: FileNotFoundError")
    assert "to go on without it" not in done.err
