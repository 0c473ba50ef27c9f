"""Stores of processors: the four types, what they answer, their changelogs, and wrong uses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import ProcessingError, StateError, TopologyError
from streamkit.runtime.driver import Driver
from tests.processors.support import Running

STEP = """
stores:
  s: {%s}
pipelines:
  p:
    stream: in
    steps:
      - process: {call: "user_code:work", stores: [s], value_serde: json}
    to: out
"""

EVALUATE = """
def plain(found):
    if isinstance(found, list) or hasattr(found, "__next__"):
        return [plain(each) for each in found]
    if isinstance(found, tuple):
        return [plain(each) for each in found]
    if hasattr(found, "start"):
        return [found.key, found.start, found.end]
    return found

def work(record, context):
    s = context.store("s")
    yield record.replace(value=plain(eval(record.value, {"s": s})))
"""


class Store:
    """A store behind a processor that evaluates the record's value."""

    def __init__(self, folder: Path, options: str):
        self.running = Running(folder, EVALUATE, STEP % options, "json")

    def __call__(self, code: str, timestamp: int = 0) -> Any:
        [row] = self.running.send("k", code, timestamp)
        return row[2]

    def rows(self) -> list:
        return self.running.driver.stores()["s"]


PERSISTENT = pytest.mark.parametrize("more", ["", ", persistent: false", ", caching: true", ", logging: false"])


@PERSISTENT
def test_key_value(tmp_path: Path, more: str) -> None:
    s = Store(tmp_path, "type: key_value, value: long" + more)
    assert s("s.get('a')") is None
    assert s("s.put('a', 1)") is None
    assert s("s.put_if_absent('a', 2)") == 1
    assert s("s.put_if_absent('b', 2)") is None
    assert s("[s.put('c', 3), s.put('ab', 4), s.get('ab')]") == [None, None, 4]
    assert s("s.range('ab', 'b')") == [["ab", 4], ["b", 2]]
    assert s("s.range('ab', 'b', reverse=True)") == [["b", 2], ["ab", 4]]
    assert s("s.range(None, 'ab')") == [["a", 1], ["ab", 4]]
    assert s("s.range('b', None)") == [["b", 2], ["c", 3]]
    assert s("s.range('z', 'a')") == []
    assert s("s.prefix('a')") == [["a", 1], ["ab", 4]]
    assert s("s.prefix('a', reverse=True)") == [["ab", 4], ["a", 1]]
    assert s("s.all()") == [["a", 1], ["ab", 4], ["b", 2], ["c", 3]]
    assert s("s.all(reverse=True)")[0] == ["c", 3]
    assert s("s.count()") == 4
    assert s("s.delete('a')") == 1
    assert s("s.delete('a')") is None
    assert s("[s.put('c', None), s.get('c')]") == [None, None]
    assert s("s.count()") == 2
    assert s.rows() == [["ab", 4], ["b", 2]]


@PERSISTENT
def test_rows_may_be_deleted_while_they_are_read(tmp_path: Path, more: str) -> None:
    s = Store(tmp_path, "type: key_value, value: long" + more)
    s("[s.put(each, 1) for each in 'abc']")
    assert s("[s.delete(key) for key, _ in s.all()]") == [1, 1, 1]
    assert s("s.count()") == 0


@PERSISTENT
def test_window(tmp_path: Path, more: str) -> None:
    s = Store(tmp_path, "type: window, window_size: 10ms, retention: 1m, value: string" + more)
    s("[s.put('a', 'one', 0), s.put('a', 'two', 10), s.put('ab', 'x', 10), s.put('a', 'three', 20)]")
    assert s("s.fetch('a', 10)") == "two"
    assert s("s.fetch('a', 11)") is None
    assert s("s.fetch('a', 0, 10)") == [[0, "one"], [10, "two"]]
    assert s("s.fetch('a', 5, 100, reverse=True)") == [[20, "three"], [10, "two"]]
    assert s("s.fetch_all(10, 20)") == [[["a", 10, 20], "two"], [["a", 20, 30], "three"], [["ab", 10, 20], "x"]] or s(
        "s.fetch_all(10, 20)"
    ) == [[["a", 10, 20], "two"], [["ab", 10, 20], "x"], [["a", 20, 30], "three"]]
    assert len(s("s.all()")) == 4
    assert s("s.put('a', None, 10)") is None
    assert s("s.fetch('a', 0, 100)") == [[0, "one"], [20, "three"]]


def test_windows_expire_by_the_latest_start(tmp_path: Path) -> None:
    s = Store(tmp_path, "type: window, window_size: 10ms, retention: 1m, persistent: false, value: string")
    s("[s.put('a', 'x', 0), s.put('a', 'y', 59_999)]")
    assert s("s.fetch('a', 0)") == "x"
    s("s.put('a', 'y', 60_000)")
    assert s("s.fetch('a', 0)") is None
    before = s.running.dropped
    s("s.put('a', 'late', 0)")
    assert s.running.dropped == before + 1


@PERSISTENT
def test_session(tmp_path: Path, more: str) -> None:
    s = Store(tmp_path, "type: session, retention: 1m, value: long" + more)
    s("[s.put('a', 0, 5, 1), s.put('a', 20, 30, 2), s.put('b', 4, 4, 3)]")
    assert s("s.fetch('a')") == [[["a", 0, 5], 1], [["a", 20, 30], 2]]
    assert s("s.fetch('a', reverse=True)") == [[["a", 20, 30], 2], [["a", 0, 5], 1]]
    assert s("s.find('a', 5, 19)") == [[["a", 0, 5], 1]]
    assert s("s.find('a', 6, 20)") == [[["a", 20, 30], 2]]
    assert s("s.find('a', 31, 100)") == []
    s("s.remove('a', 0, 5)")
    assert s("s.fetch('a')") == [[["a", 20, 30], 2]]


def test_a_search_of_cached_sessions_from_a_segment_before_the_epoch_fails_as_in_kafka_streams(tmp_path: Path) -> None:
    options = "type: session, retention: 3m, value: long"
    for number, (more, lowest) in enumerate(((", caching: true", -89_999), ("", -500_000))):
        (tmp_path / str(number)).mkdir()
        s = Store(tmp_path / str(number), options + more)
        s("s.put('a', 0, 5, 1)")
        assert s(f"s.find('a', {lowest}, 9)") == [[["a", 0, 5], 1]]
    (tmp_path / "continues").mkdir()
    step = STEP % f"{options}, caching: true"
    running = Running(tmp_path / "continues", EVALUATE, step, "json", "processing.exception.handler: continue")
    # A segment is 90 s long (CachingSessionStore).
    assert running.send("k", "s.find('a', -90_000, 9)") == []
    assert running.dropped == 1
    assert running.send("k", "s.find('a', -89_999, 9)")[0][2] == []


def test_a_versioned_store_answers_as_of_a_time(tmp_path: Path) -> None:
    s = Store(tmp_path, "type: versioned, history: 1m, value: string")
    s("[s.put('a', 'one', 10), s.put('a', 'three', 30), s.put('a', 'two', 20)]")
    assert s("s.get('a')") == ["three", 30]
    assert s("s.get('a', 25)") == ["two", 20]
    assert s("s.get('a', 9)") is None
    assert s("s.delete('a', 40)") == ["three", 30]
    assert s("s.get('a')") is None
    assert s("s.get('a', 39)") == ["three", 30]


def changelog(s: Store, monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    rows: list[tuple] = []
    task = s.running.driver._task
    assert task is not None
    settle = s.running.driver._settle
    monkeypatch.setattr(
        s.running.driver,
        "_settle",
        lambda: (rows.extend(row for row in task.output if row[0].endswith("changelog")), settle()),
    )
    return rows


def test_what_is_written_gets_into_the_changelog_at_the_time_of_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = Store(tmp_path, "type: key_value, value: long")
    rows = changelog(s, monkeypatch)
    s("s.put('a', 1)", 50)
    s("[s.put('a', 2), s.delete('a')]", 20)
    eight = (2).to_bytes(8, "big")
    name = "app-s-changelog"
    assert [row[:4] for row in rows] == [
        (name, b"a", (1).to_bytes(8, "big"), 50),
        (name, b"a", eight, 20),
        (name, b"a", None, 20),
    ]


def test_a_cache_writes_the_last_value_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s = Store(tmp_path, "type: key_value, value: long, caching: true")
    rows = changelog(s, monkeypatch)
    s("[s.put('a', 1), s.put('b', 1), s.put('a', 2)]", 50)
    assert [row[:4] for row in rows] == [
        ("app-s-changelog", b"b", (1).to_bytes(8, "big"), 50),
        ("app-s-changelog", b"a", (2).to_bytes(8, "big"), 50),
    ]


def test_no_logging_no_changelog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s = Store(tmp_path, "type: key_value, value: long, logging: false")
    rows = changelog(s, monkeypatch)
    s("s.put('a', 1)")
    assert rows == []


WRONG = {
    "a window method of a key-value store": (
        "type: key_value, value: long",
        "s.fetch('a', 0)",
        "store 's' is a key_value store and has no 'fetch'; it has all, count, delete, get, prefix, put, put_if_absent, range",
    ),
    "a key-value method of a window store": (
        "type: window, window_size: 1s, retention: 1m",
        "s.get('a')",
        "store 's' is a window store and has no 'get'; it has all, fetch, fetch_all, put",
    ),
    "a value of the wrong type": (
        "type: key_value, value: long",
        "s.put('a', 'text')",
        "store 's', value: serde long takes a whole number, not text: 'text'",
    ),
    "a key of the wrong type": (
        "type: key_value, key: long, value: long",
        "s.get('a')",
        "store 's', key: serde long takes a whole number, not text: 'a'",
    ),
    "no key": ("type: key_value", "s.put(None, 1)", "store 's': a key must not be null"),
    "no time": (
        "type: window, window_size: 1s, retention: 1m",
        "s.put('a', 1, 'now')",
        "store 's': 'now' is no time; expected milliseconds",
    ),
    "arguments of another type of store": (
        "type: window, window_size: 1s, retention: 1m",
        "s.put('a', 1)",
        "missing 1 required positional argument: 'start'",
    ),
    "too many arguments": ("type: key_value", "s.put('a', 0, 5, 1)", "takes 3 positional arguments but 5 were given"),
}


@pytest.mark.parametrize("caching", ["", ", caching: true"])
@pytest.mark.parametrize("case", WRONG)
def test_a_store_used_the_wrong_way(tmp_path: Path, case: str, caching: str) -> None:
    options, code, message = WRONG[case]
    s = Store(tmp_path, options + caching)
    with pytest.raises(ProcessingError) as caught:
        s(code)
    text = str(caught.value)
    assert message in text
    assert text.startswith(f"{s.running.file}:16: pipeline p, step process: topic in-topic, partition 0, offset 0: ")
    assert "\n" not in text


def test_the_handlers_decide_about_a_wrong_use(tmp_path: Path) -> None:
    rest = STEP.replace("value_serde: json", "value_serde: json, on_error: continue")
    running = Running(tmp_path, EVALUATE, rest % "type: key_value", "json")
    assert running.send("k", "s.fetch('a', 0)") == []
    assert running.dropped == 1
    assert running.send("k", "1") == [("out", "k", 1, 0)]


TABLES = """
stores:
  s: {type: key_value, value: long}
pipelines:
  counts:
    stream: more
    steps:
      - group_by_key
      - count: counts
  names:
    global_table: names
    store: names
  p:
    stream: in
    steps:
      - process: {call: "user_code:work", stores: [%s], value_serde: json}
    to: out
"""


def test_a_step_may_read_the_store_of_an_aggregation(tmp_path: Path) -> None:
    code = "def work(record, context):\n    yield record.replace(value=context.store('counts').get('k'))\n"
    running = Running(tmp_path, code, TABLES.replace("global_table: names", "global_table: lost") % "counts", "json")
    running.send("k", "x", topic="more")
    running.send("k", "x", topic="more")
    assert running.send("k", "x")[0][2] == 2


GLOBAL = """
pipelines:
  names:
    global_table: more
    store: names
  p:
    stream: in
    steps:
      - process: {call: "user_code:work", value_serde: json}
    to: out
"""


def test_global_tables_can_be_read_without_being_named_but_not_written(tmp_path: Path) -> None:
    code = """
        def work(record, context):
            names = context.store("names")
            if record.value == "put":
                names.put("k", "other")
            yield record.replace(value=[names.get("k"), names.count()])
    """
    running = Running(tmp_path, code, GLOBAL, "json")
    running.send("k", "Ada", topic="more")
    assert running.send("k", "x")[0][2] == ["Ada", 1]
    with pytest.raises(ProcessingError, match="store 'names' is kept from its topic; processors can only read it"):
        running.send("k", "put")


def test_two_steps_may_share_a_store(tmp_path: Path) -> None:
    code = """
        def write(record, context):
            context.store("s").put(record.key, record.value)
            yield record

        def read(record, context):
            yield record.replace(value=context.store("s").get(record.key))
    """
    rest = """
        stores:
          s: {type: key_value, value: string}
        pipelines:
          w:
            stream: in
            steps:
              - process_values: {call: "user_code:write", stores: [s], value_serde: string}
              - process_values: {call: "user_code:read", stores: [s], value_serde: json}
            to: out
    """
    running = Running(tmp_path, code, rest, "json")
    assert running.send("k", "x")[0][2] == "x"
    assert len(running.driver.plan.sub_topologies) == 1


def test_a_store_without_a_definition(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="nothing"):
        Running(tmp_path, EVALUATE, (STEP % "type: key_value").replace("stores: [s]", "stores: [nothing]"), "json")


def test_a_store_in_a_timer_has_the_time_of_the_timer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
        class work:
            def init(self, context):
                self.s = context.store("s")
                context.schedule(10, "wall_clock", self.tick)

            def tick(self, timestamp):
                self.s.put("t", timestamp)

            def process(self, record):
                pass
    """
    running = Running(tmp_path, code, STEP % "type: key_value", "json")
    s = Store.__new__(Store)
    s.running = running
    rows = changelog(s, monkeypatch)
    running.advance(25)
    assert rows == [("app-s-changelog", b"t", json.dumps(25).encode(), 25, None, 0)]


def test_internal_stores_are_refused(tmp_path: Path) -> None:
    rest = """
        pipelines:
          p:
            stream: in
            steps:
              - join: {with: {stream: more}, value: left, within: 1s, store: j, value_serde: string}
              - process: {call: "user_code:work", stores: [j-this-join-store], value_serde: json}
            to: out
    """
    with pytest.raises((StateError, TopologyError, ProcessingError), match="j-this-join-store"):
        Running(tmp_path, EVALUATE, rest, "json")


RESTORED = {
    "type: key_value, value: long": "[s.put('a', 1), s.put('b', 2), s.delete('a'), s.put('c', 3)]",
    "type: window, window_size: 10ms, retention: 1h, value: long": "[s.put('a', 1, 0), s.put('b', 2, 7), s.put('a', 3, 0)]",
    "type: session, retention: 1h, value: long": "[s.put('a', 0, 5, 1), s.remove('a', 0, 5), s.put('a', 0, 9, 2)]",
    "type: versioned, history: 1h, value: long": "[s.put('a', 1, 10), s.put('a', 3, 30), s.put('a', 2, 20), s.delete('b', 5)]",
}


@pytest.mark.parametrize("more", ["", ", persistent: false", ", caching: true"])
@pytest.mark.parametrize("options", RESTORED)
def test_stores_are_restored_from_their_changelogs(tmp_path: Path, options: str, more: str) -> None:
    if "versioned" in options:
        more = ""
    s = Store(tmp_path, options + more)
    s(RESTORED[options])
    assert s.rows()
    again = Driver(s.running.driver.plan, s.running.driver.remains)
    assert again.stores()["s"] == s.rows()


def test_without_logging_nothing_is_restored(tmp_path: Path) -> None:
    s = Store(tmp_path, "type: key_value, value: long, logging: false")
    s("s.put('a', 1)")
    assert Driver(s.running.driver.plan, s.running.driver.remains).stores()["s"] == []
