"""The extension with any arguments: it returns, or raises an exception of Python, and keeps no reference."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.support import LIMIT_S
from tests.requirements import extension

_native = extension()
UNDELIVERED = """
import gc, logging, sys
from streamkit.transport.kafka.native_client import create_producer

# The broker is simulated in the process. Its thread has the rows, and waits with them.
settings = {"test.mock.num.brokers": 1, "bootstrap.servers": "simulated", "linger.ms": 60_000}
client, link = create_producer(settings, logging.getLogger())
client.list_topics("words", timeout=30)
assert link.send([("words", b"k", bytes(100), None, [("a", b"")], 0)] * 2_000, 0) == (2_000, 0)
for name in sys.argv[1:]:
    del globals()[name]
    gc.collect()
print("ended")
"""
"""A program that drops a producer with rows that were not delivered, in the order of its arguments."""
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
BYTES = st.none() | st.binary(max_size=50)
HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3)
TOPICS = st.sampled_from(["words", "counts"]) | st.text(max_size=300)
ROW = st.tuples(
    TOPICS, BYTES, BYTES, st.none() | st.integers(-2, 2**63 - 1), HEADERS, st.none() | st.integers(-1, 2**31 - 1)
)
REFUSALS = (TypeError, ValueError, OverflowError)
many = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@many
@given(arguments=st.lists(ANYTHING, max_size=3))
@pytest.mark.parametrize("name", ["take", "forward", "close"])
def test_a_consumer_refuses_what_it_can_not_use(
    consumer: tuple[Consumer, Any], name: str, arguments: list[Any]
) -> None:
    if name == "take" and len(arguments) == 2 and isinstance(arguments[1], int):
        arguments[1] = min(arguments[1], 1)
    with suppress(*REFUSALS, RuntimeError):
        getattr(consumer[1], name)(*arguments)


@many
@given(
    rows=st.lists(ROW | ANYTHING | st.tuples(*[ANYTHING] * 6), max_size=5) | ANYTHING,
    first=st.integers(-1, 7) | ANYTHING,
)
def test_a_producer_refuses_what_it_can_not_use(producer: tuple[Producer, Any], rows: Any, first: Any) -> None:
    with suppress(*REFUSALS):
        producer[1].send(rows, first)
    with suppress(*REFUSALS):
        producer[1].begin(rows)
    producer[1].finish()


@many
@given(arguments=st.lists(ANYTHING | BYTES, max_size=5))
@pytest.mark.parametrize(
    "name", ["unused", "measured", "count_in_entry", "merge", "big_number", "murmur3_128", "in_order"]
)
def test_functions_of_values_refuse_what_they_can_not_use(name: str, arguments: list[Any]) -> None:
    with suppress(*REFUSALS):
        getattr(_native, name)(*arguments)


@pytest.mark.parametrize("size", [None, (), (1, 2, 3), (1, "2"), (1, -1), (1, -(2**70)), (1, 2**70)])
def test_an_invalid_size_is_left_to_python(size: object) -> None:
    value = ["x" * 300]
    assert _native.measured([value], {id(value): size}) is None  # type: ignore[dict-item]


@pytest.mark.parametrize("kind", [_native.Consumer, _native.Producer])
@given(client=ANYTHING | st.builds(object))
@many
def test_only_clients_with_the_plug_in_have_a_link(kind: Any, client: object) -> None:
    with pytest.raises(LookupError):
        kind(client)


def test_a_client_of_the_other_kind_and_a_second_link_are_refused(
    consumer: tuple[Consumer, Any], producer: tuple[Producer, Any]
) -> None:
    for kind in (_native.Consumer, _native.Producer):
        for client, _ in (consumer, producer):
            with pytest.raises(LookupError):
                kind(client)


def test_a_library_that_is_not_loaded_is_refused() -> None:
    # The table is filled once; a later call changes nothing.
    assert _native.load("/nowhere") == _native.load(sys.executable)
    with pytest.raises(TypeError):
        _native.load(7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="null"):
        _native.load("a\0b")


def test_a_closed_client_raises(consumer: tuple[Consumer, Any], producer: tuple[Producer, Any]) -> None:
    consumer[0].close()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="closed"):
            consumer[1].take(1, 1)
        with pytest.raises(RuntimeError, match="closed"):
            consumer[1].forward("words", 0)
        consumer[1].close()
    producer[1].send([("words", None, None, None, None, None)], 0)
    producer[1].close()
    with pytest.raises(RuntimeError, match="closed"):
        producer[1].send([("words", None, None, None, None, None)], 0)
    assert producer[1].failures() == []


def test_links_outlive_their_clients_and_clients_their_links(producer: tuple[Producer, Any]) -> None:
    client, link = producer
    link.send([("words", b"k", b"v", 1, [("a", None)], None)] * 10, 0)
    del producer, client
    gc.collect()
    link.send([("words", b"k", b"v", 1, None, None)], 0)
    assert link.failures() == []


@pytest.mark.parametrize("order", [("link", "client"), ("client", "link")])
def test_rows_that_fail_as_their_client_is_destroyed_use_no_freed_memory(order: tuple[str, str]) -> None:
    # Freed memory is overwritten at once (glibc), so that its use ends the process.
    overwriting = {"GLIBC_TUNABLES": "glibc.malloc.perturb=165:glibc.malloc.tcache_count=0"}
    ended = subprocess.run(
        [sys.executable, "-c", UNDELIVERED, *order],
        env={**os.environ, **overwriting},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert (ended.returncode, ended.stdout) == (0, "ended\n"), ended.stderr


def test_rows_before_a_wrong_one_are_written(producer: tuple[Producer, Any]) -> None:
    client, link = producer
    rows: list[Any] = [("words", b"k", b"v", each, None, None) for each in range(1500)]
    before = len(client)
    with pytest.raises(TypeError, match="a value is bytes or None, not str"):
        link.send([*rows, ("words", b"k", "text", 0, None, None)], 0)
    # Its length counts log lines of the lost connection too.
    assert len(rows) <= len(client) - before < len(rows) + 500
    assert link.send(rows, 500) == (1500, 0)
    assert len(rows) + 1000 <= len(client) - before < len(rows) + 1500


def test_a_row_that_librdkafka_refuses_is_named(producer: tuple[Producer, Any]) -> None:
    row = ("words", b"k", b"v", 1, [("name", b"value")], None)
    place, code = producer[1].send([row, row, ("words", b"k", bytes(2_000_000), 1, [("a", b"")], None), row], 0)
    assert (place, code) == (2, 10)  # MSG_SIZE_TOO_LARGE
    assert producer[1].send([("t" * 600, b"k", b"v", 1, None, None)], 0)[0] == 0
    # Its error is that of the call, and none of a delivery.
    assert producer[1].failures() == []


def test_a_thread_hands_rows_over_up_to_one_that_is_refused(producer: tuple[Producer, Any]) -> None:
    client, link = producer
    row, before = ("words", b"k", b"v", 1, [("name", b"value")], None), len(client)
    assert link.begin([row] * 2000)
    assert link.finish() == (2000, 0)
    assert link.finish() == (0, 0)
    assert link.begin([*[row] * 1500, ("words", b"k", bytes(2_000_000), 1, [("a", b"")], None), row])
    with pytest.raises(RuntimeError, match="earlier rows are not finished"):
        link.begin([row])
    assert link.finish() == (1500, 10)  # MSG_SIZE_TOO_LARGE
    # Its length counts log lines of the lost connection too.
    assert 3500 <= len(client) - before < 4000
    assert not link.begin([row, ("words", b"k", "text", 0, None, None)])
    link.close()
    assert link.begin([row])
    with pytest.raises(RuntimeError, match="closed"):
        link.finish()


def test_no_reference_is_kept(producer: tuple[Producer, Any]) -> None:
    topic, key, value, header = "".join(["wor", "ds"]), bytes([1, 2, 3]), bytes([4, 5]), bytes([6, 7, 8])
    name, time, place = "".join(["na", "me"]), 10**15, int("300")
    pair = (name, header)
    headers = [pair]
    row = (topic, key, value, time, headers, place)
    wrong = (topic, key, value, time, [pair, 7], place)
    objects = [topic, key, value, header, name, time, place, pair, headers, row, wrong]
    producer[1].send([row], 0)
    before = [sys.getrefcount(each) for each in objects]
    for _ in range(1000):
        producer[1].send([row, row], 0)
        with pytest.raises(TypeError):
            producer[1].send([row, wrong], 0)
        assert producer[1].begin([row, row])
        assert producer[1].finish() == (2, 0)
        assert not producer[1].begin([row, wrong])
    assert [sys.getrefcount(each) for each in objects] == before


def test_functions_of_values_keep_no_reference() -> None:
    value: list[Any] = ["".join(["x"] * 300), {"a": b"".join([b"b"] * 9)}]
    odd = [value, {7}]
    texts = [b"".join([b"1"] * 18), None]
    objects = [value, value[0], value[1], odd, texts, texts[0]]
    before = [sys.getrefcount(each) for each in objects]
    for _ in range(1000):
        known: dict[int, tuple[object, int]] = {}
        assert _native.measured(value, known) == (8 * 2 + 300 + 8 * 2 + 1 + 9, 5)
        assert _native.measured(odd, known) is None
        assert known.keys() == {id(value)}
        assert _native.merge(value[1], {"a": value[0]}) == {"a": value[0]}
        assert not _native.big_number(texts)
        assert _native.in_order({b"1": texts[0], texts[0]: None}) == ([b"1", texts[0]], [texts[0], None])
        known.clear()
    assert [sys.getrefcount(each) for each in objects] == before


def test_a_second_take_at_the_same_time_is_refused(consumer: tuple[Consumer, Any]) -> None:
    refused: list[str] = []
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            try:
                consumer[1].take(10, 100)
            except RuntimeError as error:
                refused.append(str(error))
                ended.set()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    ended.wait(LIMIT_S)
    ended.set()
    for thread in threads:
        thread.join()
    assert refused
    assert set(refused) == {"another thread takes records from this consumer"}
    assert consumer[1].take(1, 0) == ([], [])


def test_a_header_whose_name_has_a_null_character_is_refused(producer: tuple[Producer, Any]) -> None:
    row = ("words", b"k", b"v", 1, [("name", b"value")], None)
    wrong = ("words", b"k", b"v", 1, [("a", b""), ("b\0c", b"")], None)
    assert producer[1].send([row, wrong, row], 0) == (1, -186)  # _INVALID_ARG
    assert not producer[1].begin([row, wrong])


def test_threads_may_share_a_link(producer: tuple[Producer, Any], consumer: tuple[Consumer, Any]) -> None:
    rows = [("words", b"k", b"v", 1, None, None)] * 100
    before = len(producer[0])
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for each in range(50):
                producer[1].send(rows, 0)
                consumer[1].forward("words", each)
                # One thread at a time takes records.
                with suppress(RuntimeError):
                    consumer[1].take(10, 1)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(producer[0]) >= before + 4 * 50 * len(rows)
