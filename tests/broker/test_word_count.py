"""Word count of 100,000 lines through a real broker: stopped, killed, restored; read by Java."""

from __future__ import annotations

import signal
import struct
import subprocess
from pathlib import Path

import pytest

from streamkit.runtime.execution.metadata import decode
from streamkit.serdes.partitioner import partition as partition_of
from streamkit.state.directory import read_checkpoint
from tests.broker.kafka_broker import VERSION, jars
from tests.broker.support import LIMIT_S, App, Log, finish, kill, until
from tests.broker.word_count import LINES, feed, latest, lines, truth, truth_of, word_count
from tests.cli.support import streamkit

pytestmark = pytest.mark.broker

HALF = LINES // 2
EXTRA = "one extra line of never seen words"


def interrupted(app: App, number: signal.Signals, part: float = 0.2) -> int:
    """Start, and send a signal once a part of the lines is committed; return how many lines were, at the end."""
    process = app.start()
    topic = app.topic("lines")
    before = app.log.read_so_far(app.application, topic)
    try:
        enough = before + int(LINES * part)
        until(
            lambda: app.log.read_so_far(app.application, topic) >= enough or process.poll() is not None,
            "lines are committed",
        )
        process.send_signal(number)
        (done,) = finish([process])
    finally:
        kill([process])
    assert done.err == ""
    assert done.code == (0 if number is signal.SIGTERM else -number)
    # A killed process has not left its group.
    app.log.remove_members(app.application)
    return app.log.read_so_far(app.application, topic)


def assert_idle(app: App) -> None:
    done = app.run()
    assert (done.code, done.out, done.err) == (0, "", "")
    assert app.log.read_so_far(app.application, app.topic("lines")) == sum(app.log.ends(app.topic("lines")))


@pytest.fixture(scope="module")
def counted(broker, tmp_path_factory) -> App:
    """A word count that was stopped in the middle and then went on to the end."""
    log = Log(broker.address)
    app = word_count(tmp_path_factory.mktemp("counted"), log)
    feed(app, lines()[:HALF])
    assert interrupted(app, signal.SIGTERM) > 0
    # Not before: a process that is faster than the test would read everything.
    feed(app, lines()[HALF:], HALF)
    assert_idle(app)
    yield app
    log.close()


def test_a_clean_stop_in_the_middle_changes_nothing(counted: App) -> None:
    found = counted.log.read(counted.topic("counts"))
    assert latest(found) == truth_of()
    assert latest(counted.log.read(f"{counted.application}-counts-changelog")) == truth_of()
    # One more run has nothing to do.
    assert_idle(counted)
    assert len(counted.log.read(counted.topic("counts"))) == len(found)


def test_partitions_and_times_are_those_of_java(counted: App) -> None:
    for record in counted.log.read(counted.topic("counts")):
        assert record.partition == partition_of(record.key, 2)
        assert record.headers == []
        assert 1000 <= record.timestamp < 1000 + LINES
    changelog = counted.log.read(f"{counted.application}-counts-changelog")
    assert {(raw.partition, raw.key) for raw in changelog} == {
        (partition_of(w.encode(), 2), w.encode()) for w in truth_of()
    }


def test_internal_topics_are_named_and_configured_as_in_java(counted: App) -> None:
    own = f"{counted.application}-"
    assert counted.log.topics(own) == {"counts-repartition": 2, "counts-changelog": 2}
    repartition = counted.log.config(own + "counts-repartition")
    assert repartition["cleanup.policy"] == "delete"
    assert repartition["segment.bytes"] == "52428800"
    assert repartition["retention.ms"] == "-1"
    assert repartition["message.timestamp.type"] == "CreateTime"
    changelog = counted.log.config(own + "counts-changelog")
    assert changelog["cleanup.policy"] == "compact"
    assert changelog["message.timestamp.type"] == "CreateTime"


def test_committed_offsets_carry_the_partition_time(counted: App) -> None:
    committed = counted.log.committed(counted.application, counted.topic("lines"))
    assert {number: decode(text) for number, (_, text) in committed.items()} == {
        number: (1000 + LINES - 2 + number, {}) for number in (0, 1)
    }


def test_checkpoints_are_in_the_format_of_java(counted: App) -> None:
    changelog = f"{counted.application}-counts-changelog"
    ends = counted.log.ends(changelog)
    for number in (0, 1):
        text = (counted.tasks / f"1_{number}" / ".streamkit-checkpoint").read_text()
        assert text == f"0\n1\n{changelog} {number} {ends[number] - 1}\n"


def test_javas_consumer_reads_the_counts(counted: App, tmp_path: Path) -> None:
    total = sum(counted.log.ends(counted.topic("counts")))
    command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*"]
    command += ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", counted.log.address]
    command += ["--topic", counted.topic("counts"), "--from-beginning", "--max-messages", str(total)]
    # The older name works in newer versions too, which say so on stdout.
    option = "--property" if VERSION.startswith("4.1") else "--formatter-property"
    deserializers = "org.apache.kafka.common.serialization."
    command += [option, "print.key=true", "--key-deserializer", f"{deserializers}StringDeserializer"]
    command += ["--value-deserializer", f"{deserializers}LongDeserializer"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    # Counts only grow, and the consumer's order over partitions is its own.
    found: dict[str, int] = {}
    for line in done.stdout.splitlines():
        word, count = line.split("\t")
        found[word] = max(int(count), found.get(word, 0))
    assert found == truth_of()


def test_killed_in_the_middle_and_restored(kafka: Log, tmp_path: Path) -> None:
    app = word_count(tmp_path, kafka)
    feed(app, lines()[:HALF])
    assert interrupted(app, signal.SIGKILL) > 0
    # Once from what the killed process left on disk, and once from the changelog alone.
    feed(app, lines()[HALF:], HALF)
    assert interrupted(app, signal.SIGKILL, 0.1) > 0
    # Not before: a line that is counted and not committed at a kill counts twice.
    feed(app, [EXTRA], LINES)
    rename = app.state.rename(tmp_path / "gone")
    assert rename.is_dir()
    assert_idle(app)
    found = latest(kafka.read(app.topic("counts")))
    assert found == latest(kafka.read(f"{app.application}-counts-changelog"))
    assert found.keys() == truth([*lines(), EXTRA]).keys()
    assert [(word, count) for word, count in truth_of().items() if found[word] < count] == []
    # At least once: only lines in flight at a kill count twice.
    assert sum(found.values()) < 2 * sum(truth_of().values())
    assert {word: found[word] for word in EXTRA.split()} == dict.fromkeys(EXTRA.split(), 1)


def test_restoring_reads_only_what_came_after_the_checkpoint(kafka: Log, tmp_path: Path) -> None:
    app = word_count(tmp_path, kafka)
    feed(app, lines()[:2000])
    assert_idle(app)
    changelog = f"{app.application}-counts-changelog"
    before = kafka.ends(changelog)
    # What another process would have written since.
    fake = "of-another-process"
    number = partition_of(fake.encode(), 2)
    kafka.write([(changelog, fake.encode(), struct.pack(">q", 7), 5, None, number)])
    feed(app, [fake])
    done = streamkit("--verbose", "run", app.path, "--until-idle")
    assert done.code == 0
    assert latest(kafka.read(app.topic("counts")))[fake] == 8
    assert f"restored 1 record of {changelog}-{number} from offset {before[number]}" in done.err
    assert done.err.count("restored") == 1
    checkpoint = read_checkpoint(app.tasks / f"1_{number}")
    assert list(checkpoint.values()) == [before[number] + 1]


def test_repartition_topics_are_purged(kafka: Log, tmp_path: Path) -> None:
    app = word_count(tmp_path, kafka, repartition_purge_interval_ms=100)
    feed(app, lines()[:5000])
    topic = f"{app.application}-counts-repartition"
    process = app.start()
    try:
        # Before that the topic may be purged, and be empty, although there are lines that are not read.
        until(lambda: kafka.is_read(app.application, [app.topic("lines"), topic]), "everything is read")
        # All that was written is committed and purged: beginnings meet the ends.
        until(lambda: sum(kafka.ends(topic)) > 0 and kafka.beginnings(topic) == kafka.ends(topic), "purged")
        process.terminate()
        (done,) = finish([process])
        assert (done.code, done.err) == (0, "")
    finally:
        kill([process])
    assert latest(kafka.read(app.topic("counts"))) == truth(lines()[:5000])


def test_two_processes_count_once_what_they_share(kafka: Log, tmp_path: Path) -> None:
    app = word_count(tmp_path, kafka, processing_guarantee="exactly_once_v2")
    feed(app, lines()[:5000])
    done = app.run("--processes", 2)
    assert done.code == 0, done.err
    assert latest(kafka.read(app.topic("counts"), committed_only=True)) == truth(lines()[:5000])
    assert len(kafka.read(app.topic("counts"), committed_only=True)) <= sum(truth(lines()[:5000]).values())
    assert (app.state / "instance-2" / app.application).is_dir()
