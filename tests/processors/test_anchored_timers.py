"""Timers with a start: when they fire, as Kafka Streams 4.4.0 does on TopologyTestDriver (KIP-1146)."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamkit.errors import ProcessingError
from tests.processors.support import Running

STEP = """
pipelines:
  p:
    stream: in
    steps:
      - process: {call: "user_code:Anchored", value_serde: json}
    to: out
"""
CODE = """
from datetime import UTC, datetime
from streamkit.record import Record

class Anchored:
    def init(self, context):
        self.context = context
        self.made = not %(late)s
        if self.made:
            self.schedule()

    def schedule(self):
        self.context.schedule(20, "%(kind)s", lambda now: Record("tick", now, now), start=%(start)s)

    def process(self, record):
        if not self.made:
            self.made = True
            self.schedule()
"""
STREAM_TIMES = (90, 99, 105, 109, 110, 125, 126, 127, 131, 200, 213, 240, 250)
ADVANCES = (0, 2, 3, 10, 5, 2, 5, 20, 90, 7)
# The clock, whether the timer is made with the first record, its start, and what fires at each time.
FACTS = [
    ("stream_time", False, 0, [[90], [], [105], [], [], [125], [], [], [], [200], [], [240], []]),
    ("stream_time", False, 7, [[90], [], [], [109], [], [], [], [127], [], [200], [213], [240], [250]]),
    ("stream_time", False, 90, [[90], [], [], [], [110], [], [], [], [131], [200], [213], [240], [250]]),
    ("stream_time", False, 105, [[], [], [105], [], [], [125], [], [], [], [200], [213], [240], [250]]),
    ("stream_time", False, 130, [[], [], [], [], [], [], [], [], [131], [200], [213], [240], [250]]),
    ("stream_time", True, 0, [[], [], [105], [], [], [125], [], [], [], [200], [], [240], []]),
    ("stream_time", True, 7, [[], [], [], [109], [], [], [], [127], [], [200], [213], [240], [250]]),
    ("stream_time", True, 90, [[90], [], [], [], [110], [], [], [], [131], [200], [213], [240], [250]]),
    ("stream_time", True, 105, [[], [], [105], [], [], [125], [], [], [], [200], [213], [240], [250]]),
    ("stream_time", True, 130, [[], [], [], [], [], [], [], [], [131], [200], [213], [240], [250]]),
    ("wall_clock", False, 0, [[105], [], [], [120], [], [], [], [152], [242], []]),
    ("wall_clock", False, 7, [[105], [107], [], [], [], [127], [], [152], [242], [249]]),
    ("wall_clock", False, 90, [[105], [], [110], [], [], [], [132], [152], [242], []]),
    ("wall_clock", False, 105, [[105], [], [], [], [125], [], [], [152], [242], [249]]),
    ("wall_clock", False, 130, [[], [], [], [], [], [], [132], [152], [242], []]),
    ("wall_clock", True, 0, [[], [], [], [120], [], [], [], [152], [242], []]),
    ("wall_clock", True, 7, [[], [107], [], [], [], [127], [], [152], [242], [249]]),
    ("wall_clock", True, 90, [[], [], [110], [], [], [], [132], [152], [242], []]),
    ("wall_clock", True, 105, [[105], [], [], [], [125], [], [], [152], [242], [249]]),
    ("wall_clock", True, 130, [[], [], [], [], [], [], [132], [152], [242], []]),
]


def running(folder: Path, kind: str, late: bool, start: object) -> Running:
    return Running(folder, CODE % {"kind": kind, "late": late, "start": start}, STEP, "json")


def values(rows: list[tuple]) -> list[int]:
    return [row[2] for row in rows]


@pytest.mark.parametrize(("kind", "late", "start", "fired"), FACTS)
def test_calls_are_aligned_with_the_start(
    tmp_path: Path, kind: str, late: bool, start: int, fired: list[list[int]]
) -> None:
    app = running(tmp_path, kind, late, start)
    if kind == "stream_time":
        assert [values(app.send("k", "v", time)) for time in STREAM_TIMES] == fired
        return
    before = values(app.advance(105)) + values(app.send("k", "v", 0))
    first, *others = [values(app.advance(by)) for by in ADVANCES]
    assert [before + first, *others] == fired


def test_a_start_may_be_a_datetime(tmp_path: Path) -> None:
    app = running(tmp_path, "stream_time", False, "datetime(1970, 1, 1, 0, 0, 0, 105_000, UTC)")
    assert [values(app.send("k", "v", time)) for time in (90, 105, 110, 125)] == [[], [105], [], [125]]


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("-1", "schedule: the start -1 is before 1970"),
        ("datetime(2026, 1, 1)", "has no time zone"),
        ("'noon'", "the start is 'noon'; expected milliseconds since the epoch, or a datetime"),
    ],
)
def test_a_wrong_start_is_one_clear_line(tmp_path: Path, start: str, words: str) -> None:
    with pytest.raises(ProcessingError, match=words):
        running(tmp_path, "stream_time", False, start)
