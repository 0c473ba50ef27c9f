"""What replay remembers: every letter is put back once, whatever filters come in which order."""

from __future__ import annotations

import random

import pytest

from streamkit.errors import StreamkitError
from streamkit.record import TopicPartition
from streamkit.runtime.execution.dead_letters import PREFIX, DeadLetter, dead_letter
from streamkit.runtime.operations.dead_letter_replay import _decode, _encode, _Progress
from streamkit.transport.log_interface import CommittedOffset

PLACE = TopicPartition("dead", 0)


def put_back(offsets: list[int], wanted: set[int], committed: CommittedOffset | None, most: int | None = None):
    """One run over the letters at these offsets, as Replay does it: what it writes, and what it commits."""
    progress = _Progress(committed)
    written = []
    for offset in offsets:
        if offset < progress.floor:
            continue
        take = offset in wanted and not progress.done(offset) and most != len(written)
        progress.note(offset, take)
        written += [offset] * take
        if most is not None and most == len(written):
            break
    return written, progress.committed() if progress.changed else committed


@pytest.mark.parametrize("seed", range(200))
def test_any_order_of_filters_puts_every_letter_back_once(seed):
    draw = random.Random(seed)
    # Offsets with holes, as transactions leave them.
    offsets = sorted(draw.sample(range(60), 40))
    committed, done = None, []
    for _ in range(6):
        wanted = set(draw.sample(offsets, draw.randrange(20)))
        written, committed = put_back(offsets, wanted, committed, draw.choice([None, None, 3]))
        assert not set(written) & set(done)
        done += written
    written, committed = put_back(offsets, set(offsets), committed)
    assert sorted(done + written) == offsets
    assert committed is not None
    assert (committed.offset, committed.metadata) == (offsets[-1] + 1, "")


def test_ranges_survive_as_text():
    ranges = [[7, 9], [11, 11], [20, 400]]
    assert _decode(_encode(ranges, 3), 3) == [tuple(each) for each in ranges]
    assert _decode("AgAAAAAAAAPo", 3) == []
    assert _decode("not base64!", 3) == []


def test_more_than_a_broker_remembers_is_refused():
    draw = random.Random(1)
    at, ranges = 0, []
    for _ in range(5000):
        at += draw.randrange(2, 5000)
        ranges.append([at, at])
    with pytest.raises(StreamkitError, match="5000 separate places"):
        _encode(ranges, 0)


def test_a_letter_of_a_replayed_record_has_each_header_once():
    from streamkit.operators.core.task_services import FailedRecord

    first = dead_letter("dead", KeyError("a"), FailedRecord("in", 0, 1, 5, b"k", b"v", [("h", b"x")]), 100, "p.map")
    again = dead_letter("dead", KeyError("b"), FailedRecord("in", 0, 9, 5, b"k", b"v", first[4]), 200, "p.map")
    names = [name for name, _ in again[4]]
    assert len(names) == len(set(names))
    assert dict(again[4])[f"{PREFIX}offset"] == b"9"
    assert again[4][0] == ("h", b"x")


def test_java_s_letters_are_read():
    from streamkit.runtime.execution.dead_letters import read_dead_letter

    headers = [
        (f"{PREFIX}exception", b"org.apache.kafka.common.errors.SerializationException: Size of data is not 8"),
        (f"{PREFIX}message", b"Size of data is not 8"),
        (f"{PREFIX}topic", b"in"),
        (f"{PREFIX}partition", b"3"),
        (f"{PREFIX}offset", b"12"),
    ]
    assert read_dead_letter(PLACE, 4, (b"k", b"v", 5, headers)) == DeadLetter(
        PLACE, 4, "SerializationException", "Size of data is not 8", "", "in", 3, 12, 5, 5, b"k", b"v", []
    )


def test_letters_are_selected_by_the_time_of_the_failure():
    from streamkit.operators.core.task_services import FailedRecord
    from streamkit.plan import load
    from streamkit.runtime.execution.dead_letters import read_dead_letter
    from streamkit.runtime.records import RecordJson
    from streamkit_cli.commands.replay import LetterFilter

    def letter(failed_at: int) -> DeadLetter:
        record = FailedRecord("in", 0, 1, 5, b"k", b"v", None)
        return read_dead_letter(PLACE, 0, dead_letter("dead", KeyError("a"), record, failed_at, "p.map")[1:5])

    form = RecordJson(load("topologies/word-count/topology.yaml"))
    wanted = LetterFilter(form, "failed_at > 1", "1970-01-01T00:00:02Z", "1970-01-01T00:00:03Z")
    assert [time for time in (1999, 2000, 2999, 3000) if wanted(letter(time))] == [2000, 2999]
    assert letter(0).failed_at == 5
