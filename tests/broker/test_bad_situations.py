"""What goes wrong around `run` on a real broker: one clear line, a documented exit code, nothing lost."""

from __future__ import annotations

import json
import os
import signal
import struct
from pathlib import Path

import pytest

from streamkit.state.engines.open_maps import DEFAULT_ENGINE, open_map
from streamkit.state.store_offsets import StoreOffsets, decode_offsets
from tests.broker.kafka_broker import Broker
from tests.broker.support import App, Log, application, finish, kill, until
from tests.cli.support import assert_one_clear_line

pytestmark = pytest.mark.broker

UPPER = """\
topics:
  words: {topic: "{a}words", key: string, value: string}
  loud: {topic: "{a}loud", key: string, value: string, partitions: 1}
pipelines:
  shout:
    stream: words
    steps:
      - map_values: {value: value.upper(), value_serde: string}
    to: loud
"""
DEAD_LETTERS = """\
topics:
  words: {topic: "{a}words", key: string, value: string}
  loud: {topic: "{a}loud", key: string, value: string, partitions: 1}
  dead: {topic: "{a}dead", key: bytes, value: bytes, partitions: 1}
pipelines:
  shout:
    stream: words
    steps:
      - map_values: {value: "{'a': 1}[value]", value_serde: integer, on_error: {dead_letter: dead}}
      - map_values: {value: str(value), value_serde: string}
    to: loud
"""
DOUBLE = UPPER.replace("value: string", "value: long").replace(
    "{value: value.upper(), value_serde: string}", "{value: value * 2, value_serde: long}"
)
COUNT = """\
topics:
  words: {topic: "{a}words", key: string, value: string}
  counts: {topic: "{a}counts", key: string, value: long, partitions: 1}
pipelines:
  words:
    stream: words
    steps: [group_by_key, {count: counts}, to_stream]
    to: counts
"""


def filled(app: App, *values: bytes | None, partitions: int = 1) -> App:
    """The application, its input topic and these values in partition 0."""
    topic = app.topic("words")
    app.log.create(topic, partitions)
    app.log.write((topic, b"k", value, 100 + n, [("h", b"x")], 0) for n, value in enumerate(values))
    return app


def number(value: int) -> bytes:
    return struct.pack(">q", value)


def values(app: App, name: str = "loud") -> list[bytes | None]:
    return [raw.value for raw in app.log.read(app.topic(name))]


def test_a_missing_input_topic(kafka: Log, tmp_path: Path) -> None:
    app = application(tmp_path, kafka, "upper", UPPER)
    assert_one_clear_line(app.run(), 1, app.topic("words"), "partitions", app.path)


def test_a_missing_output_topic(kafka: Log, tmp_path: Path) -> None:
    app = application(tmp_path, kafka, "upper", UPPER.replace(", partitions: 1}", "}"))
    done = filled(app, b"a").run()
    loud, cure = app.topic("loud"), "`partitions`"
    assert done.code == 1
    warned, failed = [line for line in done.err.splitlines() if loud in line]
    assert "output topics are missing" in warned
    assert "Unknown topic or partition; create the topic" in failed
    assert cure in warned
    assert cure in failed


def test_an_input_topic_with_another_partition_count(kafka: Log, tmp_path: Path) -> None:
    text = UPPER.replace("value: string}", "value: string, partitions: 3}", 1)
    app = filled(application(tmp_path, kafka, "upper", text), b"a", partitions=2)
    assert_one_clear_line(app.run(), 1, app.topic("words"), "2", "3")


def test_an_internal_topic_with_another_partition_count(kafka: Log, tmp_path: Path) -> None:
    app = filled(application(tmp_path, kafka, "count", COUNT), b"a")
    kafka.create(f"{app.application}-counts-changelog", 4)
    assert_one_clear_line(app.run(), 1, f"{app.application}-counts-changelog", "4", "1")


def test_sides_that_are_not_co_partitioned(kafka: Log, tmp_path: Path) -> None:
    text = """\
topics:
  words: {topic: "{a}words"}
  users: {topic: "{a}users"}
  out: {topic: "{a}out", partitions: 1}
pipelines:
  joined:
    stream: words
    steps:
      - join: {with: {table: users}, value: left}
    to: out
"""
    app = filled(application(tmp_path, kafka, "join", text), partitions=2)
    kafka.create(app.topic("users"), 3)
    assert_one_clear_line(app.run(), 1, "co-partitioned", f"{app.topic('users')}=3", f"{app.topic('words')}=2")


def test_a_record_that_does_not_decode_ends_the_run_and_is_not_lost(kafka: Log, tmp_path: Path) -> None:
    app = filled(application(tmp_path, kafka, "double", DOUBLE), number(1), b"short", number(2))
    for _ in range(2):
        assert_one_clear_line(app.run(), 1, app.topic("words"), "partition 0", "offset 1", "8 bytes")
    done = app.run("--set", "deserialization.exception.handler=continue")
    assert done.code == 0
    assert "dropped 1 record" in done.err
    # At least once: what came before the failure may stand there again.
    assert values(app)[-1] == number(4)
    assert set(values(app)) == {number(2), number(4)}
    # The record that was skipped at the end counts as read, too.
    kafka.write([(app.topic("words"), b"k", b"short", 200, None, 0)])
    assert app.run("--set", "deserialization.exception.handler=continue").code == 0
    assert kafka.read_so_far(app.application, app.topic("words")) == 4


def test_a_failing_step_writes_dead_letters(kafka: Log, tmp_path: Path) -> None:
    app = filled(application(tmp_path, kafka, "dead", DEAD_LETTERS), b"a", b"b", b"a")
    assert app.run().code == 0
    assert values(app) == [b"1", b"1"]
    (dead,) = kafka.read(app.topic("dead"))
    assert (dead.key, dead.value, dead.timestamp) == (b"k", b"b", 101)
    headers = dict(dead.headers)
    assert headers["__streams.errors.exception"] == b"KeyError"
    assert headers["__streams.errors.offset"] == b"1"


def test_each_handler_of_a_failing_step(kafka: Log, tmp_path: Path) -> None:
    app = filled(application(tmp_path, kafka, "upper", UPPER), None, b"a")
    done = app.run()
    assert_one_clear_line(done, 1, f"{app.path}:", "shout", "map_values", app.topic("words"), "offset 0")
    assert app.run("--set", "processing.exception.handler=continue").code == 0
    assert values(app) == [b"A"]


def test_a_record_too_large_for_the_broker(kafka: Log, tmp_path: Path) -> None:
    app = filled(application(tmp_path, kafka, "upper", UPPER), b"a", b"x" * 300_000, b"b")
    kafka.create(app.topic("loud"), 1, **{"max.message.bytes": "290000"})
    assert_one_clear_line(app.run(), 1, app.topic("loud"), "too large")
    assert app.run("--set", "production.exception.handler=continue").code == 0
    assert set(values(app)) == {b"A", b"B"}


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_topic_that_takes_only_small_batches(kafka: Log, tmp_path: Path, guarantee: str) -> None:
    app = filled(application(tmp_path, kafka, "upper", UPPER), *(b"%0100d" % n for n in range(3000)))
    kafka.create(app.topic("loud"), 1, **{"max.message.bytes": "20000"})
    # The handler may drop no record because of the batch that it is in.
    done = app.run("--set", "production.exception.handler=continue", "--set", f"processing.guarantee={guarantee}")
    assert done.code == 0
    assert "takes only batches smaller than 262144 bytes (max.message.bytes)" in done.err
    assert list(dict.fromkeys(values(app))) == [b"%0100d" % n for n in range(3000)]


def test_no_handler_drops_records_of_changelogs(kafka: Log, tmp_path: Path) -> None:
    config = {"topic_max_message_bytes": 1000, "producer_batch_size": 1, "production_exception_handler": "continue"}
    app = application(tmp_path, kafka, "count", COUNT, **config)
    kafka.create(app.topic("words"), 1)
    kafka.write([(app.topic("words"), b"k" * 3000, b"v", 1, None, 0)])
    assert_one_clear_line(
        app.run(), 1, f"{app.application}-counts-changelog", "no handler drops records of a changelog"
    )


def test_a_record_that_was_damaged_on_the_brokers_disk(kafka: Log, broker: Broker, tmp_path: Path) -> None:
    app = filled(application(tmp_path, kafka, "upper", UPPER), b"amount=1000")
    (segment,) = (broker.folder / "data" / f"{app.topic('words')}-0").glob("*.log")
    segment.write_bytes(segment.read_bytes().replace(b"amount=1000", b"amount=9000"))
    assert_one_clear_line(app.run(), 1, app.topic("words"), "offset 0", "failed CRC32C check")
    assert values(app) == []


def test_a_state_directory_that_cannot_be_written(kafka: Log, tmp_path: Path) -> None:
    app = filled(application(tmp_path, kafka, "count", COUNT), b"a")
    for place in ("/proc/streamkit", "/dev/null/streamkit"):
        assert_one_clear_line(app.run("--set", f"state.dir={place}"), 1, place)


def test_a_damaged_checkpoint_of_an_older_streamkit(kafka: Log, tmp_path: Path) -> None:
    app = filled(application(tmp_path, kafka, "count", COUNT), b"a")
    assert app.run().code == 0
    checkpoint = app.tasks / "0_0" / ".checkpoint"
    checkpoint.write_text("0\nnonsense\n")
    # Stores hold their offsets: nothing depends on it, and Kafka Streams must not find it.
    assert app.run().code == 0
    assert not checkpoint.exists()
    checkpoint.with_name(".streamkit-checkpoint").rename(checkpoint)
    checkpoint.write_text("0\nnonsense\n")
    (app.tasks / "0_0" / ".streamkit-state").write_text(json.dumps({"engine": DEFAULT_ENGINE, "format": 1}))
    assert_one_clear_line(app.run(), 1, checkpoint, "damaged")


def test_an_offset_beyond_the_changelog_is_restored_from_the_beginning(kafka: Log, tmp_path: Path) -> None:
    app = filled(application(tmp_path, kafka, "count", COUNT), b"a")
    assert app.run().code == 0
    rows = open_map(DEFAULT_ENGINE, app.tasks / "0_0" / DEFAULT_ENGINE / "counts")
    rows.metadata = StoreOffsets(decode_offsets(rows.metadata or b"").owner, {0: 77}).encode()
    rows.commit()
    rows.close()
    kafka.write([(app.topic("words"), b"k", b"b", 200, None, 0)])
    done = app.run()
    assert done.code == 0
    assert f"goes up to offset 76 of {app.application}-counts-changelog-0, which ends at 1" in done.err
    assert "Traceback" not in done.err
    assert [int.from_bytes(value or b"") for value in values(app, "counts")] == [1, 2]


def test_two_processes_on_one_state_directory(kafka: Log, tmp_path: Path) -> None:
    app = filled(application(tmp_path, kafka, "upper", UPPER), b"a")
    first = app.start()
    try:
        until(lambda: kafka.read_so_far(app.application, app.topic("words")) == 1, "the first works")
        assert_one_clear_line(app.run(), 1, app.state)
        first.terminate()
        assert finish([first])[0].code == 0
    finally:
        kill([first])


def test_a_second_interrupt_ends_at_once(kafka: Log, tmp_path: Path) -> None:
    """The first asks to end in order, which a step that never ends prevents."""
    (tmp_path / "stuck.py").write_text(
        "import threading\n\ndef stuck(key, value):\n    print('stuck', flush=True)\n    threading.Event().wait()\n"
    )
    text = UPPER.replace("value: value.upper()", "value: {call: 'stuck:stuck'}")
    app = filled(application(tmp_path, kafka, "upper", text), b"a")
    process = app.start()
    try:
        assert process.stderr is not None
        assert "stuck\n" in process.stderr
        process.send_signal(signal.SIGINT)
        # A signal that comes while another is pending is lost, so until it has an effect.
        until(lambda: process.send_signal(signal.SIGINT) or process.poll() is not None, "the end")
        (done,) = finish([process])
    finally:
        kill([process])
    # By its own exit, or by one interrupt more while it was exiting.
    assert done.code in (130, -signal.SIGINT)
    assert "Traceback" not in done.err


def test_a_broker_that_restarts(kafka: Log, broker, tmp_path: Path) -> None:
    app = filled(application(tmp_path, kafka, "count", COUNT), *[b"a"] * 100)
    process = app.start()
    try:
        topic = app.topic("words")
        until(lambda: kafka.read_so_far(app.application, topic) == 100, "the first records")
        broker.restart()
        kafka.write((topic, b"k", b"b", 1000 + n, None, 0) for n in range(100))
        until(lambda: kafka.read_so_far(app.application, topic) == 200, "the records after the restart")
        process.terminate()
        (done,) = finish([process])
    finally:
        kill([process])
    assert done.code == 0
    assert "Traceback" not in done.err
    assert int.from_bytes(values(app, "counts")[-1] or b"") == 200


def test_nothing_is_printed_that_is_not_for_the_user(kafka: Log, tmp_path: Path) -> None:
    app = filled(application(tmp_path, kafka, "upper", UPPER), *[json.dumps(n).encode() for n in range(100)])
    done = app.run()
    assert (done.code, done.out, done.err) == (0, "", "")
    assert os.listdir(app.tasks)
