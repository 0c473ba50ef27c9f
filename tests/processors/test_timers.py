"""Punctuators: when they fire, with what, how they end, and what their failures do."""

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
      - process: {call: "user_code:Ticker", value_serde: json%s}
    to: out
"""

TICKER = """
from streamkit.record import Record

class Ticker:
    def init(self, context):
        self.context = context
        self.timer = context.schedule(%(interval)s, "%(kind)s", self.tick)
        self.ticks = 0

    def tick(self, timestamp):
        self.ticks += 1
        c = self.context
        c.forward(Record("tick", [timestamp, c.topic, c.partition, c.offset, c.headers], timestamp))
        if self.ticks == %(last)s:
            self.timer.cancel()

    def process(self, record):
        if record.value == "stop":
            self.timer.cancel()
"""


def ticker(folder: Path, interval: str, kind: str, last: int = 1000, on_error: str = "", body: str = TICKER) -> Running:
    code = body % {"interval": interval, "kind": kind, "last": last}
    return Running(folder, code, STEP % on_error, "json")


def ticks(found: list[tuple]) -> list[int]:
    """The arguments of timers; each record has the time and the empty context of its timer."""
    assert all(row[2] == [row[3], None, -1, -1, []] for row in found), found
    return [row[3] for row in found]


def test_stream_time_fires_at_the_first_record_and_then_at_aligned_times(tmp_path: Path) -> None:
    running = ticker(tmp_path, "10", "stream_time")
    assert ticks(running.send("k", "a", 25)) == [25]
    assert ticks(running.send("k", "a", 29)) == []
    assert ticks(running.send("k", "a", 30)) == [30]
    assert ticks(running.send("k", "a", 20)) == []
    # However many intervals passed: once.
    assert ticks(running.send("k", "a", 75)) == [75]
    assert ticks(running.send("k", "a", 80)) == [80]
    assert ticks(running.advance(1000)) == []


def test_wall_clock_fires_an_interval_after_the_start(tmp_path: Path) -> None:
    running = ticker(tmp_path, '"10s"', "wall_clock")
    assert ticks(running.send("k", "a", 99_999)) == []
    assert ticks(running.advance(9_999)) == []
    assert ticks(running.advance(1)) == [10_000]
    assert ticks(running.advance(25_000)) == [35_000]
    assert ticks(running.advance(4_999)) == []
    assert ticks(running.advance(1)) == [40_000]


@pytest.mark.parametrize("kind", ["stream_time", "wall_clock"])
def test_a_timer_can_be_cancelled_by_itself(tmp_path: Path, kind: str) -> None:
    running = ticker(tmp_path, "PT0.01S".join('""'), kind, last=2)
    found = []
    for _ in range(5):
        found += running.advance(10)
        found += running.send("k", "a", running.driver.clock)
    assert ticks(found) == [10, 20]


def test_a_timer_can_be_cancelled_by_a_record(tmp_path: Path) -> None:
    running = ticker(tmp_path, "10", "wall_clock")
    assert ticks(running.advance(10)) == [10]
    running.send("k", "stop")
    assert ticks(running.advance(10)) == []


def test_timers_fire_in_the_order_of_their_times(tmp_path: Path) -> None:
    module = """
        from streamkit.record import Record

        class Ticker:
            def init(self, context):
                for each, interval in (("slow", 30), ("fast", 20), ("other", 20)):
                    context.schedule(interval, "wall_clock", lambda t, each=each: [Record(each, t, t)])

            def process(self, record):
                pass
    """
    running = Running(tmp_path, module, STEP % "", "json")
    assert [row[1] for row in running.advance(60)] == ["fast", "other", "slow"]
    # What is due together fires in the order of Java's heap (tests/facts has more).
    assert [row[1] for row in running.advance(20)] == ["other", "fast"]


def test_a_timer_may_be_a_generator_and_schedule_another(tmp_path: Path) -> None:
    module = """
        from streamkit.record import Record

        class Ticker:
            def init(self, context):
                self.context = context

            def process(self, record):
                self.timer = self.context.schedule(5, "wall_clock", self.once)

            def once(self, timestamp):
                self.timer.cancel()
                yield Record("a", 1, timestamp)
                yield Record("b", 2, timestamp)
    """
    running = Running(tmp_path, module, STEP % "", "json")
    running.send("k", "x")
    running.send("k", "x")
    running.advance(4)
    assert running.advance(2) == [("out", "a", 1, 6), ("out", "b", 2, 6)]
    # The first one to fire has cancelled the second, and goes on.
    assert running.advance(5) == [("out", "a", 1, 11), ("out", "b", 2, 11)]


FAILING = TICKER.replace("self.ticks += 1", "raise ValueError('tock')")


@pytest.mark.parametrize("kind", ["stream_time", "wall_clock"])
def test_a_failing_timer_names_the_step(tmp_path: Path, kind: str) -> None:
    running = ticker(tmp_path, "10", kind, body=FAILING)
    move = running.advance if kind == "wall_clock" else lambda time: running.send("k", "a", time)
    with pytest.raises(ProcessingError) as caught:
        move(10)
    assert str(caught.value) == (
        f"{running.file}:14: pipeline p, step process: timer or flush at 10: ValueError: tock (user_code.py, line 11)"
    )


def test_a_failing_timer_may_be_passed_over(tmp_path: Path) -> None:
    running = ticker(tmp_path, "10", "wall_clock", on_error=", on_error: continue", body=FAILING)
    assert running.advance(10) == []
    assert running.advance(10) == []
    assert running.dropped == 2


def test_a_failing_timer_may_leave_a_dead_letter(tmp_path: Path) -> None:
    running = ticker(tmp_path, "10", "wall_clock", on_error=", on_error: {dead_letter: lost}", body=FAILING)
    [letter] = running.driver.advance(10)
    assert (letter["topic"], letter["key"], letter["value"], letter["timestamp"]) == ("lost", None, None, 10)
    headers = dict(map(tuple, letter["headers"]))
    assert headers["__streams.errors.exception"] == "ValueError"
    assert headers["__streams.errors.topic"] is None
    assert headers["__streams.errors.offset"] == "-1"


def test_a_commit_can_be_requested(tmp_path: Path) -> None:
    module = """
        class Ticker:
            def init(self, context):
                self.context = context

            def process(self, record):
                self.context.commit()
    """
    running = Running(tmp_path, module, STEP % "", "json")
    task = running.driver._task
    assert task is not None
    asked = []
    commit = running.driver._commit
    running.driver._commit = lambda: (asked.append(task.commit_requested), commit())  # type: ignore[method-assign,assignment]
    running.send("k", "a")
    assert asked[0]
    assert not task.commit_requested


def test_processors_begin_in_the_order_of_their_nodes(tmp_path: Path) -> None:
    # Java initialises them in the order of writing: first, below, beside. Of three timers due together its queue
    # fires the first, then the last. The function of `below` is written after that of `beside`.
    module = """
        from streamkit.record import Record

        class Timed:
            def init(self, context):
                self.context = context
                context.schedule(10, "wall_clock", self.tick)

            def tick(self, timestamp):
                self.context.forward(Record("k", type(self).__name__, timestamp))

            def process(self, record):
                yield record

        class First(Timed):
            def tick(self, timestamp):
                pass

        class Below(Timed): pass
        class Beside(Timed): pass
    """
    pipelines = """
        pipelines:
          first: {stream: in, steps: [process_values: {call: "user_code:First", value_serde: json}]}
          below: {from: first, steps: [process_values: {call: "user_code:Below", value_serde: json}], to: out}
          beside: {stream: in, steps: [process_values: {call: "user_code:Beside", value_serde: json}], to: out}
    """
    running = Running(tmp_path, module, pipelines, "json")
    assert [value for _, _, value, _ in running.advance(10)] == ["Beside", "Below"]
