"""Faults under exactly-once on a real broker: per key the counts must be 1, 2, 3, … and the state what its changelog says."""

from __future__ import annotations

import os
import struct
from contextlib import closing
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewPartitions

from streamkit.state.directory import store_path
from streamkit.state.engines.open_maps import DEFAULT_ENGINE, open_map
from tests.broker.counting import KEYS, TEXT, Process, counting, feed
from tests.broker.support import App, Log, until
from tests.cli.support import LIMIT_S

HOLDING = TEXT.replace(
    "steps: [group_by_key", "steps: [{map_values: {value: {call: 'holding:hold'}, value_serde: string}}, group_by_key"
)
HOLD = """\
import pathlib

def hold(key, value):
    here = pathlib.Path(__file__).parent
    if value == "hold" and not (here / "held").exists():
        (here / "held").touch()
        # A named pipe: opening it waits for the test, which opens its other end.
        (here / "go-on").open().close()
    return value
"""


def counts(app: App) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for raw in app.log.read(app.topic("counts"), committed_only=True):
        found.setdefault((raw.key or b"").decode(), []).append(int.from_bytes(raw.value or b""))
    return found


def expected(rounds: int) -> dict[str, list[int]]:
    return {f"k{key}": list(range(1, rounds + 1)) for key in range(KEYS)}


def counted(app: App, rounds: int) -> None:
    """Wait until all is counted; each count must have come once, in order."""
    until(lambda: sum(map(len, counts(app).values())) >= rounds * KEYS, f"{rounds} counts of each key")
    assert counts(app) == expected(rounds)


def assert_state_equals_changelog(app: App) -> None:
    """For an application that has ended in order."""
    changelog = app.log.read(f"{app.application}-counts-changelog", committed_only=True)
    for partition in (0, 1):
        rows = open_map(DEFAULT_ENGINE, store_path(app.tasks / f"0_{partition}", DEFAULT_ENGINE, "counts"))
        # Values have their timestamp in front.
        stored = {key: value[8:] for key, value in rows.range(None, None)}
        rows.close()
        assert stored == {raw.key: raw.value for raw in changelog if raw.partition == partition}


def test_a_broker_that_restarts_amid_transactions(kafka: Log, broker, tmp_path: Path) -> None:
    app = counting(tmp_path, kafka)
    with Process(app, tmp_path) as process:
        feed(app, 50)
        counted(app, 50)
        # Some are in a transaction when the broker goes.
        feed(app, 50)
        broker.restart()
        feed(app, 50)
        counted(app, 150)
        process.end()
    assert_state_equals_changelog(app)


def test_an_idle_producer_knows_that_a_broker_was_lost(kafka: Log, broker, tmp_path: Path) -> None:
    """What it committed just before may have lost its end."""
    app = counting(tmp_path, kafka)
    with closing(kafka.transport.producer(transactional_id=app.topic("id"))) as producer:
        producer.begin()
        producer.send([(app.topic("words"), b"k", b"v", 1, None, 0)])
        producer.commit({}, None)
        for _ in range(2):
            until(lambda: not producer.lost_broker(), "the connection is there")
            broker.restart()
            until(producer.lost_broker, "the producer knows of the restart")


def test_a_broker_that_is_gone_for_longer_than_records_wait(kafka: Log, broker, tmp_path: Path) -> None:
    (tmp_path / "holding.py").write_text(HOLD)
    os.mkfifo(tmp_path / "go-on")
    times = {"producer_delivery_timeout_ms": 1500, "producer_request_timeout_ms": 1000}
    app = counting(tmp_path, kafka, HOLDING, **times)
    (tmp_path / "late").mkdir()
    late = counting(tmp_path / "late", kafka)
    feed(late, 20)
    with Process(app, tmp_path) as process:
        feed(app, 20)
        counted(app, 20)
        # A step holds its task until the broker is away, so that the task has records that are not committed.
        feed(app, 1, b"hold")
        feed(app, 199)
        until((tmp_path / "held").exists, "a record is held")
        broker.kill()
        (tmp_path / "go-on").open("w").close()
        # Another application starts while the broker is away.
        with Process(late, tmp_path) as latecomer:
            try:
                # Or it has noticed the loss before it sent any of them, and looks for the end of its last transaction first.
                signs = "start again from their last commit", "topics could not be listed"
                until(lambda: any(sign in process.said for sign in signs), "records have waited too long")
                until(lambda: f"no answer from {broker.address} yet" in latecomer.said, "the start waits")
            finally:
                broker.start()
            counted(late, 20)
            latecomer.end()
        feed(app, 20)
        counted(app, 240)
        process.end()
    assert_state_equals_changelog(app)


def test_a_state_directory_that_was_truncated(kafka: Log, tmp_path: Path) -> None:
    app = counting(tmp_path, kafka)
    feed(app, 20)
    assert app.run().code == 0
    path = store_path(app.tasks / "0_0", DEFAULT_ENGINE, "counts") / "CURRENT"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    feed(app, 20)
    done = app.run()
    assert done.code == 0, done.err
    assert "is damaged" in done.err
    assert "it is deleted, and restored from its changelog" in done.err
    counted(app, 40)
    assert_state_equals_changelog(app)


def test_the_state_directory_of_another_application(kafka: Log, tmp_path: Path) -> None:
    app, other = counting(tmp_path, kafka), counting(tmp_path, kafka)
    feed(app, 20)
    feed(other, 5)
    assert (app.run().code, other.run().code) == (0, 0)
    (app.tasks / "0_0").rename(tmp_path / "gone")
    (other.tasks / "0_0").rename(app.tasks / "0_0")
    feed(app, 20)
    done = app.run()
    assert done.code == 0
    assert f"is of the application {other.application}, not {app.application}" in done.err
    counted(app, 40)
    assert_state_equals_changelog(app)


def test_partitions_that_are_added_to_an_input(kafka: Log, tmp_path: Path) -> None:
    app = counting(tmp_path, kafka, metadata_max_age_ms=300)
    with Process(app, tmp_path) as process:
        feed(app, 5)
        counted(app, 5)
        topic = app.topic("words")
        admin = AdminClient({"bootstrap.servers": kafka.address})
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
        assert process.process.wait(LIMIT_S) == 1
        changelog = f"{app.application}-counts-changelog"
        assert f"existing internal topic {changelog} has 2 partitions, but the topology needs 3" in process.said
        assert "Traceback" not in process.said
    assert counts(app) == expected(5)
    assert struct.unpack(">q", kafka.read(changelog, committed_only=True)[-1].value or b"") == (5,)
