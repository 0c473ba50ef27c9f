"""Punctuators, commits and failures of a task."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from streamkit.errors import DeserializationError, Position, ProcessingError, SerdeError
from streamkit.graph.physical_topology import OnError, StepRef
from streamkit.operators.core.task_services import FailedRecord
from streamkit.record import TopicPartition
from streamkit.runtime.execution import metadata
from streamkit.runtime.execution.dead_letters import dead_letter
from streamkit.runtime.execution.handlers import CONTINUE, Handlers, human_reason, shorten
from streamkit.transport.log_interface import CommittedOffset
from tests.runtime.fakes import Clock, FakeProgram, batch, make_task

IN = TopicPartition("in", 0)


def scheduled(kind: str, interval: int, fired: list[int]) -> FakeProgram:
    return FakeProgram(init=lambda rt: rt.schedule(0, interval, kind, fired.append))


def test_stream_time_punctuators_start_at_0_and_catch_up_once():
    fired: list[int] = []
    task = make_task(scheduled("stream_time", 10, fired))
    for time in (25, 29, 30, 55):
        task.add(batch("in", [time], first_offset=time))
        task.process(1)
    assert fired == [25, 30, 55]


def test_stream_time_punctuators_fire_right_after_the_record_that_makes_them_due():
    fired: list[tuple[int, int]] = []
    program = FakeProgram(
        init=lambda rt: rt.schedule(0, 10, "stream_time", lambda t: fired.append((t, len(rt.output))))
    )
    task = make_task(program)
    task.add(batch("in", [1, 5, 12, 13, 31, 32]))
    assert task.process(100) == 6
    assert fired == [(1, 1), (12, 3), (31, 5)]


def test_no_punctuation_before_the_first_record():
    fired: list[int] = []
    task = make_task(scheduled("stream_time", 10, fired))
    assert not task.punctuate()
    assert fired == []


def test_wall_clock_punctuators_start_an_interval_from_now():
    fired: list[int] = []
    clock = Clock(5)
    task = make_task(scheduled("wall_clock", 10, fired), clock)
    for now in (14, 15, 47, 54, 55):
        clock.now = now
        task.punctuate()
    assert fired == [15, 47, 55]
    assert task.commit_needed


def test_a_punctuator_may_cancel_itself():
    fired: list[int] = []
    clock = Clock(0)

    def init(rt):
        def once(time):
            fired.append(time)
            timer.cancel()

        timer = rt.schedule(0, 10, "wall_clock", once)

    task = make_task(FakeProgram(init=init), clock)
    clock.now = 10
    assert task.punctuate()
    clock.now = 20
    assert not task.punctuate()
    assert fired == [10]


def test_a_failing_punctuator_goes_to_the_handler():
    def fail(time):
        raise ValueError("no luck")

    program = FakeProgram(init=lambda rt: rt.schedule(0, 10, "wall_clock", fail))
    clock = Clock(0)
    strict = make_task(program, clock)
    lenient = make_task(program, clock, handlers=Handlers(processing=CONTINUE))
    clock.now = 10
    with pytest.raises(ProcessingError, match="no luck"):
        strict.punctuate()
    assert lenient.punctuate()
    assert lenient.dropped_total == 1


@pytest.mark.parametrize(
    ("time", "times", "text"),
    [
        (1000, {}, "AgAAAAAAAAPo"),
        (-1, {}, "Av//////////"),
        (10, {"key1": 1, "k2": 2}, None),
    ],
)
def test_metadata(time, times, text):
    encoded = metadata.encode(time, times)
    assert text is None or encoded == text
    assert metadata.decode(encoded) == (time, times)


@pytest.mark.parametrize("text", ["", "AQ==", "not base64!", "CQAAAAAAAAPo"])
def test_metadata_that_makes_no_sense_is_unknown(text):
    assert metadata.decode(text) == (-1, {})


def test_metadata_of_version_1_has_a_time():
    assert metadata.decode("AQAAAAAAAAPo") == (1000, {})


def test_offsets_are_those_of_the_next_record():
    task = make_task(FakeProgram())
    task.add(batch("in", [1, 8, 3], first_offset=10))
    task.process(2)
    assert task.prepare_commit(lambda tp: 99) == {IN: CommittedOffset(12, metadata.encode(8))}
    task.process(1)
    assert task.prepare_commit(lambda tp: 99)[IN].offset == 99
    task.post_commit()
    assert task.prepare_commit(lambda tp: 99) == {}


def test_times_come_back_from_committed_offsets():
    task = make_task(FakeProgram())
    task.start({IN: CommittedOffset(5, metadata.encode(500, {"close": 7}))})
    assert task.stream_time() == 500
    assert task.processor_metadata == {"close": 7}


def test_changed_processor_metadata_goes_to_all_inputs():
    program = FakeProgram(("a", "b"))
    task = make_task(program)
    task.add(batch("a", [1]))
    task.set_lags({TopicPartition("b", 0): 0})
    task.process(1)
    task.processor_metadata["n"] = 4
    offsets = task.prepare_commit(lambda tp: 1)
    assert {tp.topic for tp in offsets} == {"a", "b"}
    assert metadata.decode(offsets[TopicPartition("b", 0)].metadata) == (-1, {"n": 4})


def test_a_commit_request_ends_the_round():
    program = FakeProgram(on_record=lambda rt, value, time: rt.request_commit() if value == b"0" else None)
    task = make_task(program)
    task.add(batch("in", [1]))
    task.add(batch("in", [2], first_offset=1))
    assert task.process(10) == 1
    assert task.commit_requested


ORIGIN = StepRef("words", "filter", Position("orders.yaml", 12, 9))
RECORD = FailedRecord("orders", 2, 17, 5, b"k", b'{"a": 1}', None, "k", {"a": 1})


def failing_task(on_error: OnError | None, **handlers: str):
    node = SimpleNamespace(name="KSTREAM-FILTER-1", origin=ORIGIN, on_error=on_error)
    return make_task(FakeProgram(nodes=(node,)), handlers=Handlers(**handlers))


def test_a_failure_is_one_line_with_all_facts():
    with pytest.raises(ProcessingError) as caught:
        failing_task(None).on_error(0, KeyError("amount"), RECORD)
    assert str(caught.value) == (
        "orders.yaml:12: pipeline words, step filter: topic orders, partition 2, offset 17: "
        "field 'amount' is missing (key k, value {'a': 1})"
    )
    assert isinstance(caught.value.__cause__, KeyError)


def test_continue_drops_and_counts():
    for task in (failing_task(OnError("continue")), failing_task(None, processing=CONTINUE)):
        task.on_error(0, KeyError("amount"), RECORD)
        assert (task.dropped_total, task.output) == (1, [])


def test_the_step_wins_over_the_application():
    with pytest.raises(ProcessingError):
        failing_task(OnError("fail"), processing=CONTINUE).on_error(0, KeyError("x"), RECORD)


def test_a_dead_letter_has_the_original_bytes_and_kip_1034s_headers():
    task = failing_task(OnError("dead_letter", "dlq"))
    task.on_error(0, ZeroDivisionError("division by zero"), RECORD)
    (row,) = task.output
    assert row[:4] == ("dlq", b"k", b'{"a": 1}', 5)
    headers = dict(row[4])
    names = ("exception", "message", "stacktrace", "topic", "partition", "offset")
    assert list(headers) == [*(f"__streams.errors.{name}" for name in names), "__streamkit.errors.step"]
    assert headers["__streams.errors.exception"] == b"ZeroDivisionError"
    assert headers["__streams.errors.message"] == b"division by zero"
    assert headers["__streams.errors.topic"] == b"orders"
    assert headers["__streams.errors.partition"] == b"2"
    assert headers["__streams.errors.offset"] == b"17"


def test_a_dead_letter_names_the_module_of_an_exception():
    row = dead_letter("dlq", SerdeError("not JSON"), RECORD, 0)
    assert dict(row[4])["__streams.errors.exception"] == b"streamkit.errors.SerdeError"


def test_undecodable_records_fail_or_are_dropped_by_the_handler():
    record = FailedRecord("orders", 0, 3, 5, b"k", b"{", None)
    with pytest.raises(DeserializationError, match=r"topic orders, partition 0, offset 3: not JSON \(key k, value {\)"):
        failing_task(None).on_deserialization_error(0, SerdeError("not JSON"), record)
    task = failing_task(None, deserialization=CONTINUE)
    task.on_deserialization_error(0, SerdeError("not JSON"), record)
    assert task.dropped_total == 1


def test_a_failure_outside_any_node_names_the_record():
    def boom(rt, value, time):
        raise RuntimeError("bug")

    task = make_task(FakeProgram(on_record=boom))
    task.add(batch("in", [1]))
    with pytest.raises(ProcessingError, match="task 0_0: topic in, partition 0, offset 0: RuntimeError: bug"):
        task.process(1)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError("amount"), "field 'amount' is missing"),
        (ZeroDivisionError("integer modulo by zero"), "division by zero"),
        (TypeError("'NoneType' object is not subscriptable"), "a field is read from an absent value (null)"),
        (ValueError("bad\nvalue"), "bad value"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_reasons_are_for_people(error, text):
    assert human_reason(error) == text


def test_records_are_shortened():
    assert shorten(b"x" * 1_000_000) == "x" * 199 + "…"
    assert shorten(b"\xff\x00") == r"b'\xff\x00'"
    assert shorten(None) == "null"
