"""`enrich`: results join records in their order; cache, retries, time-outs, threads, the event loop's end, and a stop."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from streamkit.errors import ProcessingError, StoppedError, TopologyError
from streamkit.operators.kernels.calls.lookups import LookupCache, LookupStep, cache_key
from streamkit.operators.kernels.calls.replays import HeldRecord
from streamkit.plan import load
from streamkit.record import Value
from streamkit.runtime.driver import Driver
from streamkit.runtime.execution.task import Task
from tests.calls.postgres_server import postgres_server
from tests.calls.support import batch, outcome, task_of, write

MODULE = """
    import asyncio
    import threading

    from streamkit import RetriableError

    CALLS = []

    async def later(value):
        CALLS.append(value)
        # The first calls answer last.
        for _ in range(50 - value):
            await asyncio.sleep(0)
        return value * 10

    def in_thread(value):
        assert "calls" in threading.current_thread().name
        return value * 10

    async def lists(values):
        CALLS.append(len(values))
        return [ValueError("seven") if value == 7 else value * 10 for value in values]

    async def busy(value):
        CALLS.append(value)
        if CALLS.count(value) <= value % 3:
            raise RetriableError("busy")
        return value

    async def fails(value):
        CALLS.append(value)
        raise ValueError("no")

    async def never(value):
        await asyncio.Event().wait()

    RELEASE = threading.Event()

    def stuck(value):
        if value == 2:
            RELEASE.wait()
        return value

    async def stops_loop(value):
        asyncio.get_running_loop().stop()
        await asyncio.Event().wait()

    async def exits(value):
        raise SystemExit(3)

    async def cancels(value):
        raise asyncio.CancelledError

    async def cancels_task(value):
        if value == 20:
            asyncio.current_task().cancel()
        return value

    async def cancels_and_waits(value):
        if value == 20:
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        return value

    def generated(values):
        return (value if value != 20 else {}["none"] for value in values)

    def array(key, value):
        import numpy
        found = numpy.zeros(2000, int)
        found[1000] = value
        return found

    def total(array):
        return int(array.sum())

    async def few(values):
        return values[1:]

    class Session:
        def __init__(self, mark: str):
            self.mark = mark

        async def init(self, context):
            self.loop, self.context = asyncio.get_running_loop(), context

        async def __call__(self, value):
            assert self.loop is asyncio.get_running_loop()
            return f"{self.mark}{value}"

        async def close(self):
            CALLS.append("closed")
"""
HEAD = """\
streamkit: 1
application: app
config: {CONFIG}
topics:
  in: {value: integer}
  out: {value: json}
  beside: {value: json}
  lost: {key: bytes, value: bytes}
pipelines:
"""
RECORDS = [(f"k{n % 3}".encode(), n.to_bytes(4, "big"), n) for n in range(40)]


def one_step(folder: Path, options: str, config: str = "client.id: a") -> Path:
    rest = f"  p: {{stream: in, steps: [{{enrich: {{{options}}}}}], to: out}}\n"
    return write(folder, HEAD.replace("CONFIG", config) + rest, MODULE)


def calls(file: Path) -> list[object]:
    from streamkit.expressions import load_object
    from streamkit.operators.core.parsed_values import CallRef

    found = load_object(CallRef("user_code", "CALLS", str(file.parent)))
    assert isinstance(found, list)
    return found


def values(file: Path, length: int = 40) -> list[object]:
    return [json.loads(row[2]) for row in outcome(file, RECORDS, length).get("out", [])]


def metrics(task: Task) -> dict[str, float]:
    return {each.name: each.count if each.kind == "timer" else each.number for each in task.metrics.view()}


@pytest.mark.parametrize("name", ["later", "in_thread"])
@pytest.mark.parametrize("length", [1, 7, 40])
def test_results_join_their_records_in_order(name: str, length: int, tmp_path: Path) -> None:
    file = one_step(tmp_path, f'call: "user_code:{name}", concurrency: 40')
    rows = outcome(file, RECORDS, length)["out"]
    assert [(row[1], json.loads(row[2]), row[3], row[4]) for row in rows] == [
        (key, n * 10, n, [("at", str(n).encode())]) for n, (key, _, _) in enumerate(RECORDS)
    ]


def test_argument_and_result_are_expressions(tmp_path: Path) -> None:
    options = 'call: "user_code:later", by: value % 3, value: "[key, value, result, offset, timestamp]"'
    assert values(one_step(tmp_path, options))[4] == ["k1", 4, 10, 4, 4]


def test_lists_of_arguments_and_a_failure_among_them(tmp_path: Path) -> None:
    file = one_step(tmp_path, 'call: "user_code:lists", batch: 16, on_error: continue')
    assert values(file) == [n * 10 for n in range(40) if n != 7]
    assert calls(file) == [16, 16, 8]


def test_equal_arguments_are_looked_up_once(tmp_path: Path) -> None:
    task = task_of(one_step(tmp_path, 'call: "user_code:later", by: value % 5, cache: {size: 5}, timeout: 1m'))
    for start in (0, 20):
        task.add(batch(RECORDS[start : start + 20], start))
        task.process(100)
    assert len(task.output) == 40
    found = metrics(task)
    assert (found["calls"], found["call"], found["cache_misses"], found["cache_hits"]) == (5, 5, 5, 35)
    task.close()


def test_a_cache_evicts_what_was_not_used_and_what_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("streamkit.operators.kernels.calls.lookups.time.monotonic", lambda: now[0])
    cache = LookupCache(2, 1000)
    cache.put("a", None)
    cache.put("b", 2)
    assert cache.get("a") == (None,)
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ((None,), None, (3,))
    now[0] = 1.0
    assert cache.get("a") is None


NESTED: list[Value] = []
for _ in range(3000):
    NESTED = [NESTED]
ITSELF: list[Value] = []
ITSELF.append(ITSELF)


def test_keys_of_a_cache_are_equal_for_equal_arguments_alone() -> None:
    arguments = [
        1,
        True,
        1.0,
        "1",
        b"1",
        None,
        0.0,
        -0.0,
        [],
        (),
        {},
        [[1], 2],
        [[1, 2]],
        [1, [2]],
        {"a": [1]},
        {"a": 1},
    ]
    keys = [cache_key(argument) for argument in [*arguments, NESTED, [NESTED]]]
    assert None not in keys
    assert len(set(keys)) == len(arguments) + 2
    assert cache_key({"a": [1, float("nan")]}) == cache_key({"a": [1, float("nan")]})
    assert [cache_key(argument) for argument in (object(), [object()], ITSELF, [0] * 20_000)] == [None] * 4


def test_arguments_of_other_types_are_looked_up_without_the_cache(tmp_path: Path) -> None:
    steps = (
        'map_values: {call: "user_code:array", value_serde: json}}, {enrich: {call: "user_code:total", cache: {size: 9}'
    )
    rest = f"  p: {{stream: in, steps: [{{{steps}}}}}], to: out}}\n"
    file = write(tmp_path, HEAD.replace("CONFIG", "client.id: a") + rest, MODULE)
    assert values(file) == list(range(40))


def test_failures_that_may_pass_are_repeated(tmp_path: Path) -> None:
    file = one_step(tmp_path, 'call: "user_code:busy", retries: 2, backoff: 1ms')
    task = task_of(file)
    task.add(batch(RECORDS[:9]))
    task.process(100)
    assert [json.loads(row[2]) for row in task.output] == list(range(9))
    assert metrics(task)["retries"] == 9
    task.close()


def test_other_failures_are_not_repeated_and_may_be_dropped(tmp_path: Path) -> None:
    file = one_step(tmp_path, 'call: "user_code:fails", retries: 5, on_error: {dead_letter: lost}')
    task = task_of(file)
    task.add(batch(RECORDS[:3]))
    task.process(100)
    assert [(row[0], row[1], row[2]) for row in task.output] == [("lost", *record[:2]) for record in RECORDS[:3]]
    assert (calls(file), metrics(task)["failures"]) == ([0, 1, 2], 3)
    task.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('call: "user_code:busy", retries: 1, backoff: 1ms', "offset 2: busy (key 'k2', value 2)"),
        ('call: "user_code:fails"', "offset 0: ValueError: no (user_code.py, line 32)"),
        ('call: "user_code:never", timeout: 50ms', "offset 0: never did not answer within 50 ms"),
        ('call: "user_code:exits"', "offset 0: exits raised SystemExit"),
        ('call: "user_code:cancels"', "offset 0: cancels was cancelled"),
        ('call: "user_code:few", batch: 9', "offset 0: few returned 8 results for 9 arguments; expected one for each"),
        ('call: "user_code:stops_loop"', "stops_loop: the event loop of the functions has ended: a function stopped"),
    ],
)
def test_failures_are_one_clear_line(options: str, message: str, tmp_path: Path) -> None:
    task = task_of(one_step(tmp_path, options))
    task.add(batch(RECORDS[:9]))
    with pytest.raises(ProcessingError) as caught:
        task.process(100)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "topology.yaml:10: pipeline p, step enrich: " in str(caught.value)
    task.close()


def test_a_loop_that_ends_loses_nothing_although_failures_are_dropped(tmp_path: Path) -> None:
    task = task_of(one_step(tmp_path, 'call: "user_code:stops_loop", on_error: continue, concurrency: 1'))
    task.add(batch(RECORDS[:40]))
    with pytest.raises(ProcessingError, match="the event loop of the functions has ended"):
        task.process(100)
    assert (task.dropped_total, task.commit_needed) == (0, False)
    task.close()


@pytest.mark.parametrize(
    ("options", "lost"),
    [
        ('call: "user_code:cancels_task"', [20]),
        ('call: "user_code:cancels_and_waits", concurrency: 1', [20]),
        ('call: "user_code:generated", concurrency: 1, batch: 4', [20, 21, 22, 23]),
    ],
)
def test_a_call_that_fails_in_another_way_costs_its_own_records_alone(
    options: str, lost: list[int], tmp_path: Path
) -> None:
    task = task_of(one_step(tmp_path, f"{options}, on_error: continue"))
    task.add(batch(RECORDS))
    while task.has_records():
        task.process(100)
    assert [json.loads(row[2]) for row in task.output] == [n for n in range(40) if n not in lost]
    assert (task.dropped_total, task.commit_needed) == (len(lost), True)
    task.close()


def test_a_failure_of_the_step_itself_is_one_of_each_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(step: LookupStep, records: Sequence[HeldRecord]) -> list[Value]:
        raise RecursionError("too deep")

    monkeypatch.setattr(LookupStep, "results", fails)
    task = task_of(one_step(tmp_path, 'call: "user_code:later", concurrency: 1, on_error: continue'))
    task.add(batch(RECORDS))
    while task.has_records():
        task.process(100)
    assert (task.output, task.dropped_total) == ([], 40)
    task.close()


def test_a_thread_that_is_stuck_blocks_no_other(tmp_path: Path) -> None:
    file = one_step(tmp_path, 'call: "user_code:stuck", timeout: 200ms, concurrency: 1, on_error: continue')
    assert values(file) == [n for n in range(40) if n != 2]


def test_a_stop_ends_the_wait_and_commits_nothing(tmp_path: Path) -> None:
    stopped = threading.Event()
    stopped.set()
    task = task_of(one_step(tmp_path, 'call: "user_code:never", timeout: 1s'), stopping=stopped.is_set)
    file = one_step(tmp_path, 'call: "user_code:never", timeout: 1s')
    assert file.exists()
    task._bound.replays._steps[0]._lookup._grace = 0.0  # type: ignore[union-attr, attr-defined]
    task.add(batch(RECORDS[:3]))
    with pytest.raises(
        StoppedError, match="stopped while calls were unanswered; they are repeated after the next start"
    ):
        task.process(100)
    assert (task.output, task.commit_needed) == ([], False)
    task.close()


def test_objects_of_a_class_live_on_the_loop(tmp_path: Path) -> None:
    file = one_step(tmp_path, 'call: "user_code:Session", with: {mark: m}')
    assert values(file)[:2] == ["m0", "m1"]
    assert calls(file) == ["closed"]


def loops() -> int:
    return sum(thread.name.endswith("-loop") for thread in threading.enumerate())


def test_tasks_of_a_thread_share_a_loop_that_ends_with_the_last(tmp_path: Path) -> None:
    before = loops()
    first, second = (task_of(one_step(tmp_path, 'call: "user_code:later"')) for _ in range(2))
    assert loops() == before + 1
    first.close()
    second.add(batch(RECORDS[:3]))
    second.process(10)
    assert len(second.output) == 3
    second.close()
    assert loops() == before


def test_where_the_order_would_mix_records_go_one_by_one(tmp_path: Path) -> None:
    rest = """\
  p: {stream: in, to: out}
  q: {from: p, steps: [{enrich: "user_code:later"}], to: out}
"""
    file = write(tmp_path, HEAD.replace("CONFIG", "client.id: a") + rest, MODULE)
    assert outcome(file, RECORDS, 40) == outcome(file, RECORDS, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('call: "user_code:later", cache: {ttl: 5m}', "'cache' of 'enrich' needs 'size'"),
        (
            'call: "user_code:later", cache: {size: 0}',
            "'size' of 'cache' of 'enrich' must be a whole number of at least 1",
        ),
        ('call: "user_code:later", timeout: 0', "'timeout' of 'enrich' must be at least 1 ms"),
        ('call: "user_code:later", retries: -1', "'retries' of 'enrich' must be a whole number of at least 0"),
        ('call: "user_code:later", value: resul', "unknown name 'resul'; did you mean 'result'?"),
        ('call: "user_code:Session"', "Session needs 'mark'"),
        ("timeout: 5s", "The step 'enrich' needs 'call'"),
    ],
)
def test_mistakes(options: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TopologyError) as caught:
        load(one_step(tmp_path, options))
    assert message in str(caught.value)


# -- Real services -------------------------------------------------------------------------------------------------


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


def test_try_gives_the_same(tmp_path: Path) -> None:
    file = one_step(tmp_path, 'call: "user_code:later"')
    with Driver(load(file)) as driver:
        found = [driver.pipe({"topic": "in", "key": "k", "value": n})[0]["value"] for n in range(3)]
    assert found == [0, 10, 20]
