"""A transaction that brokers have lost: the application says which one, and how to end it, and goes on once it is ended."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamkit.record import TopicPartition
from tests.broker.counting import Process, counting, feed
from tests.broker.hanging import UNVERIFIED, leave_open
from tests.broker.kafka_broker import Broker, jars
from tests.broker.support import Log, until
from tests.cli.support import LIMIT_S

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def unverified() -> Iterator[Log]:
    """A broker that accepts late writes of a transaction."""
    with Broker(settings=UNVERIFIED) as broker:
        log = Log(broker.address)
        yield log
        log.close()


def test_a_lost_transaction_is_named_with_the_command_that_ends_it(unverified: Log, tmp_path: Path) -> None:
    app = counting(tmp_path, unverified, **{"producer_transaction_timeout_ms": 1000})
    feed(app, 1)
    done = app.run()
    assert done.code == 0, done.err
    changelog = f"{app.application}-counts-changelog"
    gone = f"{app.application}-gone-1"
    start = leave_open(unverified.address, gone, app.topic("words"), changelog, 0, b"k0")
    (found,) = unverified.open_transactions([TopicPartition(changelog, 0)], app.application)
    assert (found.start, found.transactional_id, found.state, found.hanging) == (start, gone, "CompleteCommit", True)
    shutil.rmtree(app.state)
    feed(app, 1)
    with Process(app, tmp_path) as running:
        line = until(lambda: re.search(r".*brokers have lost the end of a transaction.*", running.said), "the line")[0]
        assert (
            f"{changelog}-0: brokers have lost the end of a transaction of {gone} (producer {found.producer_id}, epoch"
            in line
        )
        assert "Whether it was committed is unknown: if it was, the command loses its records in this partition" in line
        command = line.partition("kafka-transactions.sh ")[2].split()
        java = ["java", "-XX:+UseSerialGC", "-cp", f"{jars()}/*", "org.apache.kafka.tools.TransactionsCommand"]
        ended = subprocess.run([*java, *command], capture_output=True, text=True, check=False, timeout=LIMIT_S)
        assert ended.returncode == 0, ended.stderr
        until(lambda: unverified.is_read(app.application, [app.topic("words")]), "the input is read")
    assert len(re.findall("brokers have lost", running.said)) == 1


def test_an_open_transaction_that_is_alive_is_not_lost(unverified: Log, tmp_path: Path) -> None:
    topic = f"alive-{tmp_path.name}"
    unverified.create(topic, 1)
    producer = unverified.transport.producer(transactional_id=f"{topic}-1")
    try:
        producer.begin()
        producer.send([(topic, b"k", b"v", 1, None, 0)])
        producer.flush()
        (found,) = unverified.open_transactions([TopicPartition(topic, 0)], "")
        assert (found.state, found.hanging) == ("Ongoing", False)
        producer.abort()
        assert unverified.open_transactions([TopicPartition(topic, 0)], "") == []
    finally:
        producer.close()
