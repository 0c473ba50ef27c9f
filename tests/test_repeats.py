"""Lines of a log that repeat are counted; nothing that differs is hidden, and nothing gets lost in the count."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable

import pytest

from streamkit.repeats import Repeats
from streamkit_cli.command_process import JsonLines


class Lines(logging.Handler):
    """Keeps what it is given, formatted."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.added = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.lines.append(self.format(record))
        except Exception:
            self.handleError(record)
        self.added.set()

    def take(self) -> list[str]:
        found, self.lines = self.lines, []
        return found


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def inner() -> Lines:
    return Lines()


@pytest.fixture
def repeats(inner, clock) -> Repeats:
    return Repeats(inner, same=3, distinct=20, clock=clock)


@pytest.fixture
def log(repeats) -> logging.Logger:
    made = logging.Logger("a.b", logging.DEBUG)
    made.addHandler(repeats)
    return made


def test_the_first_lines_are_written_and_the_rest_is_counted_once_a_minute(log, inner, clock):
    def fail(times: int) -> None:
        for _ in range(times):
            log.warning("%s fails", "disk")

    fail(3)
    assert inner.take() == ["disk fails"] * 3
    fail(2_142)
    assert inner.take() == []
    clock.now = 60.0
    log.info("something else")
    assert inner.take() == ["disk fails … 2,142 more times in 60 s", "something else"]
    # It goes on: the count is all that is written of it.
    fail(5)
    assert inner.take() == []
    clock.now = 120.0
    fail(1)
    assert inner.take() == ["disk fails … 5 more times in 60 s"]
    clock.now = 180.0
    log.info("something else")
    assert inner.take() == ["disk fails … 1 more times in 60 s", "something else"]
    # It has not come for as long as that: it is news again.
    clock.now = 240.0
    fail(4)
    assert inner.take() == ["disk fails"] * 3


def test_a_count_comes_by_itself_and_at_the_close(inner, clock):
    # The timer is real; by this clock no time passes between two lines.
    repeats = Repeats(inner, same=1, seconds=0.05, clock=clock)
    log = logging.Logger("a")
    log.addHandler(repeats)

    def fail(times: int) -> None:
        for _ in range(times):
            log.error("fails")

    fail(2)
    while len(inner.lines) < 2:
        inner.added.clear()
        if len(inner.lines) < 2:
            assert inner.added.wait(60)
    assert inner.take() == ["fails", "fails … 1 more times in 1 s"]
    slow = Repeats(inner, same=1, clock=clock)
    log.handlers = [slow]
    fail(8)
    slow.close()
    slow.close()
    assert inner.take() == ["fails", "fails … 7 more times in 1 s"]


def test_places_levels_and_loggers_are_counted_apart(repeats, inner):
    logs = [logging.Logger("a"), logging.Logger("b")]
    for each in logs:
        each.addHandler(repeats)
    for _ in range(4):
        for each in logs:
            each.info("same")
            each.info("same")
            each.warning("same")
    assert len(inner.take()) == 2 * 3 * 3
    repeats.count()
    assert inner.take() == ["same … 1 more times in 1 s"] * 6


def test_different_texts_of_one_place_are_written_until_they_are_too_many(log, inner, clock):
    def tell(numbers: range) -> None:
        for number in numbers:
            log.warning("record %d is given up", number)

    tell(range(20))
    assert inner.take() == [f"record {number} is given up" for number in range(20)]
    tell(range(20, 5000))
    tell(range(1))
    log.warning("of another place")
    assert inner.take() == ["record 0 is given up", "of another place"]
    clock.now = 61.0
    tell(range(100))
    assert inner.take() == [
        "record 4999 is given up … and 4,980 different lines like this in 61 s",
        "record 0 is given up",
        "record 1 is given up",
    ]
    clock.now = 122.0
    log.info("end")
    assert inner.take() == ["record 99 is given up … and 98 different lines like this in 61 s", "end"]
    clock.now = 183.0
    tell(range(20))
    assert len(inner.take()) == 20


def test_exceptions_count_by_type_and_text_and_a_count_has_no_traceback(log, inner, clock):
    def fail(error: Exception) -> None:
        try:
            raise error
        except Exception:
            log.exception("request failed\n")

    for _ in range(9):
        fail(OSError(24, "Too many open files"))
        fail(ValueError("-1\nis wrong"))
    found = inner.take()
    assert len(found) == 6
    assert [line for line in found if "Traceback" not in line] == []
    clock.now = 60.0
    log.info("end")
    assert inner.take() == [
        "request failed: OSError: [Errno 24] Too many open files … 6 more times in 60 s",
        "request failed: ValueError: -1 … 6 more times in 60 s",
        "end",
    ]


def test_critical_lines_are_always_written_and_long_ones_quoted_in_part(log, inner, repeats):
    for _ in range(9):
        log.critical("the end")
        log.error("x" * 5000)
    assert [line[:7] for line in inner.take()].count("the end") == 9
    repeats.count()
    (line,) = inner.take()
    assert len(line) < 600
    assert line.endswith("x… … 6 more times in 1 s")


def test_a_count_in_json_has_the_form_of_the_other_lines(log, inner, repeats):
    repeats.setFormatter(JsonLines())
    for _ in range(5):
        log.warning("disk %r", "a")
    lines = [json.loads(line) for line in inner.take()]
    repeats.count()
    (count,) = map(json.loads, inner.take())
    assert count.keys() == lines[0].keys()
    assert (count["level"], count["logger"], count["message"]) == ("warning", "a.b", "disk 'a' … 2 more times in 1 s")


def test_arguments_that_do_not_fit_are_the_other_handlers_business(log, inner, capsys):
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    for _ in range(5):
        log.warning("%d", "text")
        log.warning("%s", "text", exc_info=Broken())
    assert "--- Logging error ---" in capsys.readouterr().err
    assert "Logging error" not in "".join(inner.lines)


def test_no_line_of_several_threads_is_lost(log, inner, clock):
    start = threading.Barrier(8)

    def run(tell: Callable[[], None]) -> None:
        start.wait()
        for _ in range(500):
            tell()

    def fail() -> None:
        log.warning("fails")

    threads = [threading.Thread(target=run, args=(fail,)) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    clock.now = 60.0
    log.info("end")
    written = inner.take()
    (count,) = [line for line in written if "more times" in line]
    found = re.search(r"… ([\d,]+) more", count)
    assert found is not None
    assert written.count("fails") + int(found[1].replace(",", "")) == 8 * 500
