"""Records through the extension: the same as through confluent-kafka alone, whose callbacks it leaves in place."""

from __future__ import annotations

import gc
import json
import logging
import os
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import kafka
import pytest
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as KafkaPartition

from streamkit.errors import ConfigError, ProductionError, TransportError
from streamkit.record import RecordBatch, TopicPartition
from streamkit.transport.kafka import KafkaTransport, native_client
from streamkit.transport.kafka.kafka_consumer import KafkaConsumer, NativeReader
from streamkit.transport.kafka.native_client import AUTO, OFF, SWITCH, create_consumer, create_producer
from streamkit.transport.log_interface import Producer
from tests.broker.kafka_broker import Broker
from tests.broker.support import until
from tests.contracts.records import attempts, create, numbered, produce, read
from tests.native.conftest import NOWHERE, QUIET
from tests.requirements import extension

_native = extension()
HEADERS = [None, [("a", b"1"), ("a", None), ("ä", b"")], [("b", b"\0")]]


@pytest.fixture
def transport(broker: Broker) -> KafkaTransport:
    return KafkaTransport(broker.address)


def columns(batches: list[RecordBatch]) -> dict[tuple[str, int], list[tuple]]:
    """The records by partition."""
    found: dict[tuple[str, int], list[tuple]] = {}
    for batch in batches:
        found.setdefault((batch.topic, batch.partition), []).extend(zip(*batch.columns, strict=True))
    return found


def test_both_ways_write_and_read_the_same(transport: KafkaTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = {way: create(transport, 7) for way in (AUTO, OFF)}
    expected: dict[tuple[str, int], list[tuple]] = {}
    for way, topic in topics.items():
        monkeypatch.setenv(SWITCH, way)
        rows = [
            (
                topic,
                None if each % 5 == 0 else b"key-%d" % (each % 90),
                None if each % 11 == 0 else b"" if each % 13 == 0 else b"value %d" % each,
                each,
                HEADERS[each % 3],
                each % 7 if each % 2 or each % 5 == 0 else None,
            )
            for each in range(5_000)
        ]
        produce(transport, rows)
    for way in (AUTO, OFF):
        monkeypatch.setenv(SWITCH, way)
        for topic in topics.values():
            consumer = transport.consumer(None)
            consumer.assign({TopicPartition(topic, number): 0 for number in range(7)})
            found = {number: rows for (_, number), rows in columns(read(consumer, 5_000)).items()}
            consumer.close()
            assert sum(map(len, found.values())) == 5_000
            assert found == (expected or found)
            expected = expected or found  # type: ignore[assignment]


def test_a_partition_that_was_removed_and_added_again_comes_once(transport: KafkaTransport) -> None:
    topic = create(transport, 2)
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    produce(transport, numbered(topic, 0, 2_000))
    consumer = transport.consumer(None)
    consumer.assign(dict.fromkeys(places, 0))
    for start in range(0, 1_000, 25):
        consumer.remove([places[0]])
        consumer.add({places[0]: start})
        found = columns(read(consumer, 2_000 - start))[topic, 0]
        assert [row[4] for row in found] == list(range(start, 2_000))
    consumer.close()


@pytest.mark.parametrize("way", [AUTO, OFF])
def test_rows_that_are_not_delivered_come_back(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, way)
    settings = {"producer": {"message.timeout.ms": "200", "linger.ms": "5", "enable.idempotence": "false"}}
    producer = KafkaTransport(NOWHERE, settings).producer()
    rows = [("words", b"k", b"v", 7, [("a", b"1"), ("b", None)], None), ("words", None, b"", 8, None, 3)]
    with pytest.raises(ProductionError, match=r"a record for topic words could not be written.*timed out") as caught:
        written(producer, rows)
    assert caught.value.retriable
    # librdkafka gives no timestamp of a record that failed, and confluent-kafka no headers.
    headers = [(way == AUTO and row[4]) or None for row in rows]
    assert caught.value.rows == [(*row[:3], None, kept, row[5]) for row, kept in zip(rows, headers, strict=True)]
    producer.close()


def test_one_row_of_many_that_is_refused_is_named_and_the_others_are_written(transport: KafkaTransport) -> None:
    topic = create(transport, 1)
    rows = [*numbered(topic, 0, 1_000)]
    rows[700] = (topic, b"large", bytes(2_000_000), 0, [("a", b"1")], 0)
    settings = {"producer": {"queue.buffering.max.messages": "100", "linger.ms": "0"}}
    producer = KafkaTransport(transport.bootstrap, settings).producer()
    with pytest.raises(ProductionError, match="too large") as caught:
        written(producer, rows)
    assert caught.value.rows == [rows[700]]
    producer.flush()
    producer.close()
    consumer = transport.consumer(None)
    consumer.assign({TopicPartition(topic, 0): 0})
    assert [row[1] for row in columns(read(consumer, 999))[topic, 0]] == [row[2] for row in rows if row[1] != b"large"]
    consumer.close()


def test_a_call_without_rows_writes_those_that_a_full_queue_did_not_take(transport: KafkaTransport) -> None:
    topic = create(transport, 1)
    settings = {"producer": {"queue.buffering.max.messages": "100", "linger.ms": "0"}}
    producer = KafkaTransport(transport.bootstrap, settings).producer()
    producer.send(numbered(topic, 0, 1_000))
    producer.send(())
    consumer = transport.consumer(None)
    consumer.assign({TopicPartition(topic, 0): 0})
    assert [row[4] for row in columns(read(consumer, 1_000))[topic, 0]] == list(range(1_000))
    consumer.close()
    producer.close()


def written(producer: Producer, rows: list[Any]) -> None:
    producer.send(rows)
    producer.flush()


@pytest.fixture
def write_odd(transport: KafkaTransport, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, list[Any]], None]:
    """Write a record with headers that librdkafka does not write or read."""
    # kafka-python writes headers without a value, but its checks of arguments refuse them.
    for name, found in (
        ("kafka.isinstance", lambda item, kind: isinstance(item, kind) or (item is None and kind is bytes)),
        ("producer_batch.len", lambda item: 0 if item is None else len(item)),
    ):
        monkeypatch.setattr(f"kafka.producer.{name}", found, raising=False)

    def write(topic: str, headers: list[Any]) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=transport.bootstrap, max_request_size=2_000_000)
        producer.send(topic, value=b"odd", key=b"k", partition=0, headers=headers).get(timeout=60)
        producer.close()

    return write


MANY = "it has more headers than librdkafka reads (100,000), or damaged ones"
NULL = "the name of a header contains a null character"


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([("a", b"")] * 100_001, MANY),
        ([("a\0b", b"1")], NULL),
        ([("a\0b", None)], NULL),
        ([("a", b"1"), ("a\0b", b"2")], NULL),
        ([("a\0b", None), ("a", None)], NULL),
        ([("", b"1"), ("\0", None)], NULL),
        ([(f"name-{each}", None) for each in range(300)] + [("name-7\0", b"")], NULL),
    ],
    ids=["many", "null", "no value", "before a twin", "after a twin", "empty", "among many"],
)
def test_headers_that_can_not_be_read_are_an_error_at_their_place(
    headers: list[tuple[str, bytes | None]],
    reason: str,
    transport: KafkaTransport,
    write_odd: Callable[[str, list[Any]], None],
) -> None:
    topic = create(transport, 1)
    produce(transport, numbered(topic, 0, 3))
    write_odd(topic, headers)
    produce(transport, numbered(topic, 4, 6))
    consumer = transport.consumer(None)
    consumer.assign({TopicPartition(topic, 0): 0})
    with pytest.raises(TransportError) as caught:
        read(consumer, 6)
    assert str(caught.value) == f"{topic} [0] could not be read: the record at offset 3: {reason}"
    consumer.close()


def test_as_many_headers_as_librdkafka_reads_come(
    transport: KafkaTransport, write_odd: Callable[[str, list[Any]], None]
) -> None:
    topic = create(transport, 1)
    many: list[tuple[str, bytes | None]] = [
        (f"{each % 7}", b"%d" % each if each % 3 else None) for each in range(5_000)
    ]
    write_odd(topic, many)
    write_odd(topic, [("a", b"")] * 70_000)
    consumer = transport.consumer(None)
    consumer.assign({TopicPartition(topic, 0): 0})
    found = columns(read(consumer, 2))[topic, 0]
    assert [row[3] for row in found] == [many, [("a", b"")] * 70_000]
    consumer.close()


@pytest.mark.parametrize("way", [AUTO, OFF])
def test_a_header_with_a_null_character_in_its_name_is_not_written(
    way: str, transport: KafkaTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, way)
    topic = create(transport, 1)
    rows = [*numbered(topic, 0, 3), (topic, b"k", b"v", 7, [("a\0b", b"1")], 0), *numbered(topic, 4, 6)]
    producer = transport.producer()
    with pytest.raises(ProductionError) as caught:
        written(producer, rows)
    text = f"a record for topic {topic} could not be written: the name of header 'a\\x00b' contains a null character"
    assert str(caught.value) == text
    assert caught.value.rows == [rows[3]]
    producer.close()


def test_partitions_that_do_not_exist_are_a_warning_and_run_no_callback_in_a_link(
    transport: KafkaTransport, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create(transport, 2)
    produce(transport, numbered(topic, 0, 5))
    consumer = transport.consumer(None)
    assert isinstance(consumer, KafkaConsumer)
    consumer.add({TopicPartition(topic, number): 0 for number in (0, 9)})
    assert isinstance(consumer._reader, NativeReader)
    with caplog.at_level(logging.WARNING):
        assert len(columns(read(consumer, 5))[topic, 0]) == 5
        for _ in attempts(lambda: "the warning"):
            consumer.poll(100, 50)
            if caplog.records:
                break
    assert f"{topic} [9]: desired partition is not available" in caplog.text
    consumer.close()


def test_the_client_s_callbacks_run_while_records_are_waited_for() -> None:
    statistics: list[dict[str, Any]] = []
    errors: list[KafkaError] = []
    lines: list[str] = []
    logger = logging.Logger("test")
    logger.addHandler(_Lines(lines))
    settings = {
        "bootstrap.servers": NOWHERE,
        "group.id": "group",
        "statistics.interval.ms": 20,
        "stats_cb": lambda text: statistics.append(json.loads(text)),
        "error_cb": errors.append,
    }
    client, link = create_consumer(settings, logger)
    assert link is not None
    reader = NativeReader(client, link)
    reader.forward([TopicPartition("words", 0)])
    for _ in attempts(lambda: f"{len(statistics)} statistics, {len(errors)} errors, {len(lines)} lines of log"):
        assert not reader.take(10, 0.05)[0]
        if statistics and errors and lines:
            break
    assert statistics[0]["type"] == "consumer"
    reader.close()
    client.close()


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]):
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


class _LateCancel:
    """A client and its link while the end of an earlier assignment cancels a forwarding: which queue gets what comes next."""

    def __init__(self, place: TopicPartition) -> None:
        self._place = place
        self._forwarded = False
        self._came = [(3, 6), (0, 3)]
        self._queues: dict[bool, list[range]] = {False: [], True: []}

    def _arrive(self) -> None:
        if self._came:
            self._queues[self._forwarded].append(range(*self._came.pop()))

    def consume(self, count: int, seconds: float) -> list[_Waiting]:
        found = [_Waiting(self._place, offset) for each in self._queues[False] for offset in each]
        self._queues[False].clear()
        self._arrive()
        return found

    def forward(self, topic: str, partition: int) -> None:
        self._forwarded = True

    def take(self, count: int, wait_ms: int) -> tuple[list[Any], list[Any]]:
        self._arrive()
        offsets = [offset for each in self._queues[True] for offset in each]
        self._queues[True].clear()
        none = [None] * len(offsets)
        return ([(*self._place, none, none, [1] * len(offsets), none, offsets, None)] if offsets else []), []


class _Waiting(NamedTuple):
    """A message in the client's queue."""

    place: TopicPartition
    at: int

    def topic(self) -> str:
        return self.place.topic

    def partition(self) -> int:
        return self.place.partition

    def offset(self) -> int:
        return self.at

    def key(self) -> None:
        pass

    value = headers = error = key

    def timestamp(self) -> tuple[int, int]:
        return 1, 1


def test_records_keep_their_order_although_a_forwarding_is_cancelled() -> None:
    late: Any = _LateCancel(TopicPartition("words", 0))
    reader = NativeReader(late, late)
    reader.forward([TopicPartition("words", 0)])
    late._forwarded = False
    found: list[int] = []
    while len(found) < 6:
        batches, _ = reader.take(100, 0)
        found += [offset for batch in batches for offset in batch.offsets]
    assert found == list(range(6))


def test_other_threads_run_while_a_link_waits(transport: KafkaTransport) -> None:
    topic = create(transport, 1)
    settings = {"bootstrap.servers": transport.bootstrap, "group.id": "group"}
    client, link = create_consumer(settings, QUIET)
    assert link is not None
    NativeReader(client, link).forward([TopicPartition(topic, 0)])
    client.assign([KafkaPartition(topic, 0, 0)])
    found: list[Any] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        found.append(link.take(10, 60_000))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    # If the link kept the interpreter, this would come after its wait, which would then have found nothing.
    produce(transport, numbered(topic, 0, 1))
    thread.join()
    assert [group[0] for group in found[0][0]] == [topic]
    client.close()


def test_memory_does_not_grow_with_records(transport: KafkaTransport) -> None:
    topic = create(transport, 3)
    rows = [(topic, b"key-%d" % each, b"v" * 30, each, HEADERS[each % 3], each % 3) for each in range(20_000)]
    places = [TopicPartition(topic, number) for number in range(3)]
    consumer, producer = transport.consumer(None), transport.producer()

    def turn() -> None:
        producer.send(rows)
        producer.flush()
        consumer.assign(dict.fromkeys(places, 0))
        for _ in attempts(lambda: "all records"):
            consumer.poll(5_000, 100)
            if all(consumer.position(place) >= 6_000 for place in places):
                break

    turn()
    gc.collect()
    tracemalloc.start()
    try:
        turn()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(5):
            turn()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # One object of each of 100,000 records that were written, or 90,000 that were read, would be 3 MB.
    assert grown < 200_000, grown
    consumer.close()
    producer.close()


def test_the_environment_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native_client.missing() == ""
    monkeypatch.setenv(SWITCH, OFF)
    assert native_client.missing() == f"{SWITCH} is off"
    consumer = KafkaTransport(NOWHERE).consumer(None)
    assert isinstance(consumer, KafkaConsumer)
    assert not isinstance(consumer._reader, NativeReader)
    consumer.close()
    monkeypatch.setenv(SWITCH, "no")
    with pytest.raises(ConfigError, match="STREAMKIT_NATIVE takes auto or off, not 'no'"):
        native_client.missing()


def no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setattr(_native, "__file__", str(tmp_path / "missing.so"))
    return "librdkafka refuses it"


def no_link(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    def refuse(client: object) -> None:
        raise LookupError("no client of librdkafka belongs to this object")

    monkeypatch.setattr(_native, "Consumer", refuse)
    monkeypatch.setattr(_native, "Producer", refuse)
    return "no client of librdkafka belongs"


@pytest.mark.parametrize("spoil", [no_library, no_link])
def test_what_is_not_as_expected_is_logged_once(
    spoil: Callable[[pytest.MonkeyPatch, Path], str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(native_client, "_use", native_client._Use())
    reason = spoil(monkeypatch, tmp_path)
    with caplog.at_level(logging.WARNING, native_client.log.name):
        client, link = create_consumer({"bootstrap.servers": NOWHERE, "group.id": "group"}, QUIET)
        _, other = create_producer({"bootstrap.servers": NOWHERE}, QUIET)
    assert (link, other) == (None, None)
    assert [record.name for record in caplog.records] == [native_client.log.name]
    assert reason in caplog.text
    assert reason in native_client.missing()
    client.close()


def test_closed_clients_that_are_not_freed_yet_are_freed_for_new_ones() -> None:
    class Owner:
        """A cycle with its client, as each consumer of the transport is."""

        def __init__(self) -> None:
            settings = {"bootstrap.servers": NOWHERE, "group.id": "group", "error_cb": self.ignore}
            self.client, link = create_consumer(settings, QUIET)
            if link is not None:
                link.close()
            self.client.close()

        def ignore(self, error: object) -> None:
            pass

    gc.disable()
    try:
        for _ in range(os.sysconf("SC_THREAD_KEYS_MAX")):
            Owner()
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("settings", "left"), [({}, 0), ({"linger.ms": "60000"}, 3), ({"queue.buffering.max.ms": "60000"}, 3)]
)
def test_hastened_rows_wait_as_long_as_the_user_has_set(
    settings: dict[str, str], left: int, transport: KafkaTransport
) -> None:
    topic = create(transport, 1)
    producer = KafkaTransport(transport.bootstrap, {"producer": settings}).producer()
    producer.send(numbered(topic, 0, 3))
    assert producer.hasten(10) is (left == 0)
    assert producer.queued() == left
    producer.flush()
    assert producer.queued() == 0
    producer.close()


def test_rows_that_wait_as_long_as_the_user_has_set_fail_while_the_caller_is_idle() -> None:
    producer = KafkaTransport(NOWHERE, {"producer": {"linger.ms": "5", "delivery.timeout.ms": "10"}}).producer()
    producer.send(numbered("out", 0, 1))
    # Nothing else is called before the next commit.
    with pytest.raises(ProductionError, match=r"out"):
        until(lambda: producer.hasten(0), "the error of a row")
    producer.close()
