"""Dead letters of every handler on the real broker and the embedded log, and putting them back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.broker.support import App, Log, application
from tests.cli.support import assert_one_clear_line, streamkit

pytestmark = pytest.mark.broker

TEXT = """\
topics:
  orders: {topic: "{a}orders", key: string, value: json, partitions: 3}
  rates: {topic: "{a}rates", key: string, value: json, partitions: 1}
  dead: {topic: "{a}dead", key: bytes, value: bytes, partitions: 1}
pipelines:
  rate:
    stream: orders
    steps:
      - set_headers: {headers: {seen: "'yes'"}}
      - map_values: {value: 100 / value.n}
    to: rates
"""
GOOD, ZERO, BROKEN = b'{"n":4}', b'{"n":0}', b'{"n":'


@pytest.fixture(params=["kafka", "embedded"])
def log(request: pytest.FixtureRequest) -> Log:
    return request.getfixturevalue(request.param)


def app_with(log: Log, folder: Path, text: str = TEXT, **config: object) -> App:
    """An application with a dead-letter topic whose handlers continue."""
    settings = {
        "deserialization.exception.handler": "continue",
        "processing.exception.handler": "continue",
        **{name.replace("_", "."): value for name, value in config.items()},
    }
    app = application(folder, log, "rates", text, **settings)
    text = app.path.read_text().replace(
        "config:\n", f"config:\n  errors.dead.letter.queue.topic.name: {app.topic('dead')}\n"
    )
    app.path.write_text(text)
    for name, partitions in (("orders", 3), ("rates", 1), ("dead", 1)):
        log.create(app.topic(name), partitions)
    return app


def fill(app: App, topic: str | None = None) -> None:
    """Of seven orders in partition 1, two that do not decode and two that fail."""
    values = [GOOD, BROKEN, ZERO, GOOD, ZERO, BROKEN, GOOD]
    topic = topic or app.topic("orders")
    app.log.write((topic, b"k%d" % n, value, 1000 + n, [("h", b"%d" % n)], 1) for n, value in enumerate(values))


def replay(app: App, *options: object) -> list[dict]:
    done = streamkit("replay", app.path, "--format", "json", *options)
    assert (done.code, done.err) == (0, "")
    return [json.loads(line) for line in done.out.splitlines()]


def offsets(letters: list[dict]) -> list[int]:
    return [letter["offset"] for letter in letters]


def test_letters_are_put_back_once(log: Log, tmp_path: Path) -> None:
    app = app_with(log, tmp_path, processing_guarantee="exactly_once_v2")
    fill(app)
    assert app.run().code == 0
    dead = log.read(app.topic("dead"), committed_only=True)
    assert [(raw.key, raw.value, raw.timestamp, raw.headers[0]) for raw in dead] == [
        (b"k%d" % n, value, 1000 + n, ("h", b"%d" % n)) for n, value in ((1, BROKEN), (2, ZERO), (4, ZERO), (5, BROKEN))
    ]
    assert offsets(replay(app)) == [1, 2, 4, 5]
    assert offsets(replay(app, "--where", "error == 'ZeroDivisionError' and step == 'rate.map_values'")) == [2, 4]
    times = [letter["failed_at"] for letter in replay(app)]
    assert min(times) > 1_600_000_000_000
    assert offsets(replay(app, "--since", min(times), "--until", max(times) + 1, "--limit", 1)) == [1]
    assert offsets(replay(app, "--until", min(times))) == offsets(replay(app, "--since", max(times) + 1)) == []
    # A dry run has changed nothing.
    assert len(log.read(app.topic("orders"))) == 7

    assert offsets(replay(app, "--where", "error[0] == 'Z' and value.n == 0", "--execute", "--limit", 1)) == [2]
    assert offsets(replay(app, "--execute")) == [1, 4, 5]
    assert replay(app, "--execute") == []
    back = log.read(app.topic("orders"), committed_only=True)[7:]
    assert [(raw.partition, raw.key, raw.value, raw.timestamp, raw.headers) for raw in back] == [
        (1, b"k%d" % n, value, 1000 + n, [("h", b"%d" % n)])
        for n, value in ((2, ZERO), (1, BROKEN), (4, ZERO), (5, BROKEN))
    ]
    assert offsets(replay(app, "--again")) == [1, 2, 4, 5]


def test_the_table_counts_kinds(embedded: Log, tmp_path: Path) -> None:
    app = app_with(embedded, tmp_path)
    # Too long for any screen: in a pipe no place is cut.
    long = app.topic("orders-" + "x" * 180)
    app.path.write_text(app.path.read_text().replace(f'"{app.topic("orders")}"', f'"{long}"'))
    embedded.create(long, 3)
    fill(app, long)
    assert app.run().code == 0
    done = streamkit("replay", app.path)
    assert done.code == 0
    assert "2  ZeroDivisionError at rate.map_values" in done.out
    assert f" {long}-1@4 " in done.out
    assert f"{app.topic('dead')}-0@3 " in done.out
    assert "4 dead letters; nothing was written: --execute puts them back" in done.out
    assert "4 put back" in streamkit("replay", app.path, "--execute").out


def test_a_record_that_the_log_refuses_becomes_a_dead_letter(log: Log, tmp_path: Path) -> None:
    text = TEXT.replace("    to: rates", "    to: {route: \"'{a}rates' if value != 50 else '{a}nowhere'\"}")
    app = app_with(
        log, tmp_path, text, production_exception_handler="continue", producer_linger_ms=0,
        # Not the time of delivery, which records of a topic that exists may need on a slow machine.
        producer_topic_metadata_propagation_max_ms=1000,
    )  # fmt: skip
    topic = app.topic("orders")
    log.write((topic, b"k", b'{"n":%d}' % n, 1000 + n, None, 0) for n in (1, 2, 4))
    done = app.run()
    assert done.code == 0
    assert app.topic("nowhere") in done.err
    assert [raw.value for raw in log.read(app.topic("rates"))] == [b"100.0", b"25.0"]
    (letter,) = log.read(app.topic("dead"))
    assert (letter.key, letter.value) == (b"k", b"50.0")
    assert dict(letter.headers)["__streams.errors.topic"] == app.topic("nowhere").encode()
    (shown,) = replay(app)
    assert not shown["replayable"]
    log.create(app.topic("nowhere"), 1)
    replay(app, "--execute")
    assert [raw.value for raw in log.read(app.topic("nowhere"), committed_only=True)] == [b"50.0"]


def test_mistakes_are_one_line(embedded: Log, tmp_path: Path) -> None:
    plain = application(tmp_path, embedded, "plain", TEXT)
    assert_one_clear_line(streamkit("replay", plain.path), 1, plain.path, "dead.letter")
    app = app_with(embedded, tmp_path)
    assert_one_clear_line(streamkit("replay", app.path, "--where", "erro == 1"), 2, "--where:1:1", "'error'")
    assert_one_clear_line(streamkit("replay", app.path, "--since", "noon"), 2, "--since noon")
