"""Global stores are restored through their processor, read-only stores from the bytes of their topic."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from streamkit.errors import InvalidTopologyError, ProcessingError
from streamkit.plan import load
from streamkit.plan.partitions import lay_out
from streamkit.record import TopicPartition
from streamkit.runtime.driver import Driver, run_lines
from streamkit.runtime.local.client import Application
from streamkit.runtime.operations.stopped_state import kept_stores
from tests.runtime.fake_log import FakeLog
from tests.runtime.topic_stores import PROCESSORS, TOPOLOGY


def folder_of(tmp_path: Path, topology: str = TOPOLOGY) -> Path:
    (tmp_path / "topology.yaml").write_text(topology)
    (tmp_path / "keepers.py").write_text(PROCESSORS)
    return tmp_path / "topology.yaml"


def run(path: Path, log: FakeLog, state: Path) -> str:
    """Run until idle; return what came out last."""
    Application(load(path, env={"DIR": str(state)}), log).run(until_idle=True, stop=threading.Event())
    return log.rows[TopicPartition("out", 0)][-1][2].decode()


def row(topic: str, key: str | None, value: str, time: int, partition: int = 0) -> tuple:
    return (topic, None if key is None else key.encode(), value.encode(), time, None, partition)


def test_what_is_on_the_log_goes_through_a_global_stores_processor(tmp_path: Path) -> None:
    path, log = folder_of(tmp_path), FakeLog({"rates": 2, "prices": 1, "words": 1, "out": 1})
    log.append([row("rates", "a", "one", 1), row("rates", "b", "two", 2, 1), row("rates", None, "none", 3)])
    log.append([row("prices", "a", "cheap", 1), row("words", "a", "?", 9)])
    # No record without a key restores; one that comes later would be processed.
    assert run(path, log, tmp_path / "first") == "ONE cheap! a,b"
    log.append([row("words", "a", "?", 9)])
    # What the store has is not processed again, whatever the checkpoint says, and nothing else came.
    (tmp_path / "first" / "app" / "global" / ".streamkit-checkpoint").unlink()
    assert run(path, log, tmp_path / "first") == "ONE cheap! a,b"
    log.append([row("rates", "c", "three", 10), row("words", "c", "?", 11)])
    # The rest is restored by a processor that has seen nothing yet.
    assert run(path, log, tmp_path / "first") == "THREE None c"
    log.append([row("words", "a", "?", 12)])
    # The bytes of the topic restore a read-only store, past its processor.
    assert run(path, log, tmp_path / "second") == "ONE cheap a,b,c"


def test_a_driver_continues_like_an_application(tmp_path: Path) -> None:
    plan = load(folder_of(tmp_path), env={"DIR": str(tmp_path)})
    lines = [
        '{"topic": "rates", "key": null, "value": "none", "timestamp": 0}',
        '{"topic": "rates", "key": "a", "value": "one", "timestamp": 0}',
    ]
    with Driver(plan) as driver:
        list(run_lines(driver, lines))
        assert driver.stores()["rates"] == [["a", "ONE"], ["seen", "None,a"]]
    with Driver(plan, driver.remains) as again:
        assert again.stores()["rates"] == [["a", "ONE"], ["seen", "a"]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("self.rates.put('a', 'b')", "store 'rates' is kept from its topic; processors can only read it"),
        ("self.prices.put('a', 'b')", "store 'prices' is kept from its topic; processors can only read it"),
        ("self.prices.delete('a')", "store 'prices' is kept from its topic; processors can only read it"),
    ],
)
def test_only_its_processor_writes_to_a_store(tmp_path: Path, line: str, message: str) -> None:
    path = folder_of(tmp_path, TOPOLOGY.replace("keepers:look", "writing:Write"))
    (tmp_path / "writing.py").write_text(
        "class Write:\n"
        "    def init(self, context): self.rates, self.prices = context.store('rates'), context.store('prices')\n"
        f"    def process(self, record): {line}\n"
    )
    with (
        Driver(load(path, env={"DIR": str(tmp_path)})) as driver,
        pytest.raises(ProcessingError, match=message),
    ):
        driver.pipe({"topic": "words", "key": "a", "value": "?", "timestamp": 0})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("context.schedule('1s', 'wall_clock', print)", "the processor of a global store has no timers"),
        ("context.stream_time", "the processor of a global store has no stream time"),
    ],
)
def test_what_a_global_stores_processor_can_not_ask_for(tmp_path: Path, body: str, message: str) -> None:
    path = folder_of(tmp_path, TOPOLOGY.replace("keepers:Rates", "asking:ask"))
    (tmp_path / "asking.py").write_text(f"def ask(record, context):\n    context.commit()\n    {body}\n")
    with Driver(load(path, env={"DIR": str(tmp_path)})) as driver, pytest.raises(ProcessingError, match=message):
        driver.pipe({"topic": "rates", "key": "a", "value": "1", "timestamp": 0})


def test_a_read_only_store_needs_a_partition_for_every_task_that_reads_it(tmp_path: Path) -> None:
    plan = load(folder_of(tmp_path, TOPOLOGY.replace("partitions: 1}", "}")), env={"DIR": str(tmp_path)})
    assert lay_out(plan, {"rates": 2, "prices": 3, "words": 3}).tasks == ((1, 0), (1, 1), (1, 2))
    with pytest.raises(
        InvalidTopologyError, match="store prices is restored from topic prices, which has 2 partitions"
    ):
        lay_out(plan, {"rates": 2, "prices": 2, "words": 3})


def test_a_processor_of_a_global_store_follows_the_handler_where_it_is_enabled(tmp_path: Path) -> None:
    """KIP-1270: processing.exception.handler alone does not hold for global stores."""
    config = "processing.exception.handler: continue, statestore"
    path = folder_of(tmp_path, TOPOLOGY.replace("statestore", config, 1))
    broken = {"topic": "rates", "key": "a", "value": None, "timestamp": 1}
    with pytest.raises(ProcessingError, match="upper"):
        Driver(load(path, env={"DIR": str(tmp_path)})).pipe(broken)
    enabled = f"processing.exception.handler.global.enabled: true, {config}"
    path = folder_of(tmp_path, TOPOLOGY.replace("statestore", enabled, 1))
    driver = Driver(load(path, env={"DIR": str(tmp_path)}))
    assert driver.pipe(broken) == []
    assert driver.stores()["rates"] == [["seen", "a"]]


JOINED = """streamkit: 1
application: app
config: {topology.optimization: all, deserialization.exception.handler: continue, state.dir: "${DIR}"}
defaults: {key: json, value: json}
topics:
  prices: {partitions: 1, timestamp: value.at}
  names: {partitions: 1, timestamp: value.at}
  out: {partitions: 1}
pipelines:
  prices: {table: prices, store: prices}
  names: {table: names, store: names}
  both:
    from: prices
    steps: [{join: {with: names, value: "[left.at, right.name]", value_serde: json}}, to_stream]
    to: out
"""


def test_a_table_is_restored_from_its_topic_as_it_was_processed(tmp_path: Path) -> None:
    path, log = folder_of(tmp_path, JOINED), FakeLog({"prices": 1, "names": 1, "out": 1})
    key = '{"a": 1}'
    log.append([row("prices", key, '{"at": 1000}', 5), row("prices", "{", '{"at": 1}', 5), row("prices", key, "{", 5)])
    log.append([row("prices", '{"a": 2}', '{"at": 9}', 5), row("prices", '{"a":  2}', "null", 5)])
    log.append([row("prices", key, '{"at": -1}', 5), row("names", key, '{"at": 10, "name": "b"}', 6)])
    assert run(path, log, tmp_path / "first") == '[1000,"b"]'
    log.append([row("names", name, '{"at": 20, "name": "c"}', 7) for name in ('{"a": 2}', key)])
    # The topic has this key as other bytes, values that do not decode, and other timestamps.
    assert run(path, log, tmp_path / "second") == '[1000,"c"]'
    assert [(row[1], row[2], row[3]) for row in log.rows[TopicPartition("out", 0)][-1:]] == [
        (b'{"a":1}', b'[1000,"c"]', 1000)
    ]
    plan = load(path, env={"DIR": str(tmp_path / "second")})
    verified = [
        store
        for number in ("first", "second")
        for store in kept_stores(tmp_path / number, verify=True, plan=plan, transport=log)
    ]
    assert [(store.compared, store.problem) for store in verified] == [(True, None)] * 4
