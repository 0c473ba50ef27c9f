"""Which records a task takes next, with which timestamps, and when it waits."""

from __future__ import annotations

import pytest

from streamkit.errors import DeserializationError, ProcessingError
from streamkit.record import RecordBatch, TopicPartition
from streamkit.runtime.execution.handlers import Handlers
from streamkit.runtime.execution.queues import Idling, Run
from tests.runtime.fakes import Clock, FakeProgram, batch, make_task

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def test_a_lonely_queue_hands_over_a_whole_batch():
    program = FakeProgram()
    task = make_task(program)
    task.add(batch("in", [5, 3, 9]))
    assert task.process(100) == 3
    assert program.seen == [("in", [0, 1, 2])]
    assert task.stream_time() == 9


def test_a_run_ends_where_another_head_is_older():
    program = FakeProgram(("a", "b"))
    task = make_task(program)
    task.add(batch("a", [1, 2, 5, 6]))
    task.add(batch("b", [3, 4, 7]))
    task.set_lags({A: 0, B: 0})
    assert task.process(100) == 7
    assert program.seen == [("a", [0, 1]), ("b", [0, 1]), ("a", [2, 3]), ("b", [2])]


def test_equal_times_go_by_topic_name():
    program = FakeProgram(("b", "a"))
    task = make_task(program)
    task.add(batch("b", [1, 1]))
    task.add(batch("a", [1, 1]))
    task.set_lags({A: 0, B: 0})
    task.process(100)
    assert program.seen == [("a", [0, 1]), ("b", [0, 1])]


def test_only_heads_are_compared():
    # b's second record is older than a's head, but hidden behind b's first.
    program = FakeProgram(("a", "b"))
    task = make_task(program)
    task.add(batch("a", [5, 6]))
    task.add(batch("b", [7, 1]))
    task.set_lags({A: 0, B: 0})
    task.process(100)
    assert program.seen == [("a", [0, 1]), ("b", [0, 1])]


def test_a_limit_cuts_a_run():
    program = FakeProgram()
    task = make_task(program)
    task.add(batch("in", [1, 2, 3]))
    assert [task.process(2), task.process(2), task.process(2)] == [2, 1, 0]


def test_waits_while_an_empty_partition_lags():
    task = make_task(FakeProgram(("a", "b")))
    task.add(batch("a", [1]))
    assert task.process(10) == 0  # the lag of b is unknown
    task.set_lags({B: 3})
    assert task.process(10) == 0
    task.set_lags({B: 0})
    assert task.process(10) == 1


def test_never_waits_with_idling_off():
    task = make_task(FakeProgram(("a", "b")), idling=Idling(-1))
    task.add(batch("a", [1]))
    assert task.process(10) == 1


def test_waits_for_the_idle_time_at_lag_0():
    clock = Clock(1000)
    task = make_task(FakeProgram(("a", "b")), clock, idling=Idling(50))
    task.add(batch("a", [1]))
    task.set_lags({B: 0})
    assert task.process(10) == 0
    clock.now = 1049
    assert task.process(10) == 0
    clock.now = 1050
    assert task.process(10) == 1


def test_data_from_the_empty_partition_restarts_the_wait():
    clock = Clock(0)
    task = make_task(FakeProgram(("a", "b")), clock, idling=Idling(50))
    task.add(batch("a", [1, 9]))
    task.set_lags({B: 0})
    assert task.process(10) == 0
    clock.now = 40
    task.add(batch("b", [2]))
    assert task.process(10) == 2
    assert task.process(10) == 0
    clock.now = 89
    assert task.process(10) == 0
    clock.now = 90
    assert task.process(10) == 1


def test_an_invalid_timestamp_fails_after_what_came_before():
    program = FakeProgram()
    task = make_task(program)
    task.add(batch("in", [4, -1, 5]))
    assert task.process(1) == 1
    with pytest.raises(ProcessingError, match="topic in, partition 0, offset 1: the timestamp -1 is negative"):
        task.process(10)
    assert program.seen == [("in", [0])]


@pytest.mark.parametrize("failing", range(5))
def test_a_failing_record_is_found_where_offsets_do_not_ascend(failing: int) -> None:
    # A batch job sorts records by key.
    offsets = [7, 2, 9, 1, 3]
    program = FakeProgram()
    task = make_task(program)
    columns = batch("in", [-1 if at == failing else 5 for at in range(5)]).columns
    task.add(RecordBatch("in", 0, columns._replace(offsets=offsets)))
    with pytest.raises(ProcessingError, match=f"offset {offsets[failing]}: the timestamp -1 is negative"):
        task.process(10)
    assert [offset for _, seen in program.seen for offset in seen] == offsets[:failing]


def test_a_run_ends_where_offsets_do_not_ascend() -> None:
    partition = TopicPartition("in", 0)
    columns = batch("in", [1, 2, 3, 4]).columns._replace(offsets=[7, 2, 9, 1])
    run = Run([(partition, columns, 4)])
    run.begin(0)
    assert run.time_at(("in", 0, 7)) == 1
    run.end_at(("in", 0, 2))
    assert [rest.offsets for _, rest, _ in run.rest] == [[9, 1]]


def test_log_and_skip_drops_and_still_commits():
    program = FakeProgram(policies={"in": "log_and_skip"})
    task = make_task(program)
    task.add(batch("in", [-1, -1]))
    assert task.process(10) == 0
    assert task.dropped_total == 2
    offsets = task.prepare_commit(lambda partition: 2)
    assert {tp: offset.offset for tp, offset in offsets.items()} == {TopicPartition("in", 0): 2}


def test_partition_time_replaces_invalid_timestamps():
    task = make_task(FakeProgram(policies={"in": "use_partition_time"}))
    task.add(batch("in", [7, -1, 3, -5]))
    task.process(10)
    assert [row[3] for row in task.output] == [7, 7, 3, 7]


def test_partition_time_must_be_known():
    task = make_task(FakeProgram(policies={"in": "use_partition_time"}))
    task.add(batch("in", [-1]))
    with pytest.raises(ProcessingError, match="the partition has no time yet"):
        task.process(1)


def test_wallclock_ignores_the_records_own_time():
    task = make_task(FakeProgram(policies={"in": "wallclock"}), Clock(77))
    task.add(batch("in", [-1, 5]))
    task.process(10)
    assert [row[3] for row in task.output] == [77, 77]


def test_an_extractor_gives_times_drops_negatives_and_fails_at_the_head():
    def extract(keys, values, timestamps, headers, offsets, partition):
        return [10, -3, KeyError("at"), 12]

    task = make_task(FakeProgram(extractors={"in": extract}))
    task.add(batch("in", [0, 0, 0, 0]))
    assert task.process(1) == 1
    assert (task.output[0][3], task.dropped_total) == (10, 1)
    with pytest.raises(DeserializationError, match="offset 2: the timestamp expression failed: field 'at' is missing"):
        task.process(10)


def test_a_commit_has_the_dead_letters_of_exactly_the_records_before_its_offset():
    """A dead letter ahead of the committed offset would be written again by the next owner, also under exactly-once."""

    def extract(keys, values, timestamps, headers, offsets, partition):
        return [KeyError("at") if offset in (0, 2, 4) else offset for offset in offsets]

    handlers = Handlers(deserialization="continue", dead_letter_topic="dead")
    task = make_task(FakeProgram(extractors={"in": extract}), handlers=handlers)
    task.add(batch("in", [0] * 5))
    assert [(row[0], row[2]) for row in task.output] == [("dead", b"0")]
    task.process(1)
    committed = task.prepare_commit(lambda partition: 5)
    assert [(row[0], row[2]) for row in task.output] == [("dead", b"0"), ("out", b"1"), ("dead", b"2")]
    assert [each.offset for each in committed.values()] == [3]
    task.post_commit()
    task.process(1)
    committed = task.prepare_commit(lambda partition: 5)
    assert [(row[0], row[2]) for row in task.output[3:]] == [("out", b"3"), ("dead", b"4")]
    assert [each.offset for each in committed.values()] == [5]


def test_stream_time_is_exact_within_a_run():
    seen = []
    program = FakeProgram(on_record=lambda rt, value, time: seen.append(rt.stream_time()))
    task = make_task(program)
    task.add(batch("in", [5, 3, 9, 8]))
    task.process(10)
    assert seen == [5, 5, 9, 9]
