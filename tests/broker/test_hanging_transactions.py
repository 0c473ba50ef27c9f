"""A transaction that brokers have lost: the application names it with the command that ends it as its coordinator did, and goes on."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.errors import UnknownBrokerIdError

from streamkit.errors import RetriableTransportError, TransportError
from streamkit.record import TopicPartition
from streamkit.transport.log_interface import Admin
from tests.broker.counting import Process, counting, feed
from tests.broker.hanging import UNVERIFIED, leave_open
from tests.broker.kafka_broker import Broker
from tests.broker.support import App, Log, until
from tests.cli.support import Done, streamkit

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def unverified() -> Iterator[Log]:
    """A broker that accepts late writes of a transaction, and has the topic of offsets."""
    with Broker(settings=UNVERIFIED) as broker:
        log = Log(broker.address)
        with closing(log.transport.admin()) as admin:
            until(lambda: looks(admin), "the topic of offsets is there")
        yield log
        log.close()


def looks(admin: Admin) -> bool:
    """Look for lost transactions of an id that has none; return whether brokers could tell."""
    try:
        return admin.end_lost("application-1", [], "application") == []
    except RetriableTransportError:
        return False


def transactions(app: App, *options: str) -> tuple[Done, list[tuple[str, bool]]]:
    """Run the command; return outcome and end of each transaction, too."""
    done = streamkit("transactions", app.path, "--format", "json", *options)
    return done, [(row["outcome"], row["ended"]) for row in json.loads(done.out)]


def test_a_lost_commit_is_ended_by_the_command_of_the_log_and_nothing_is_lost(unverified: Log, tmp_path: Path) -> None:
    app = counting(tmp_path, unverified, **{"producer_transaction_timeout_ms": 1000})
    feed(app, 1)
    done = app.run()
    assert done.code == 0, done.err
    changelog = TopicPartition(f"{app.application}-counts-changelog", 0)
    gone = f"{app.application}-gone-1"
    start = leave_open(unverified.address, gone, app.topic("words"), changelog, [7, 9])
    (found,) = unverified.open_transactions([changelog], app.application)
    assert (found.start, found.transactional_id, found.state, found.hanging) == (start, gone, "CompleteCommit", True)
    shutil.rmtree(app.state)
    feed(app, 1)
    with Process(app, tmp_path) as running:
        line = until(lambda: re.search(r".*brokers have lost the end of a transaction.*", running.said), "the line")[0]
        said = f"{changelog.topic}-0: brokers have lost the end of a transaction of {gone} (producer {found.producer_id}, epoch"
        assert said in line
        command = re.search(r"it was committed: streamkit (.*) ends it in the same way, and loses nothing", line)
        assert command, line
        done = streamkit(*command[1].split())
        assert done.code == 0, done
        assert re.search(rf"{start} .*{gone} .* commit .* yes", done.out)
        until(lambda: unverified.is_read(app.application, [app.topic("words")]), "the input is read")
    assert len(re.findall("brokers have lost", running.said)) == 1
    # With an abort the count that the transaction wrote would be gone, and the next one would be less.
    counts = [raw.value for raw in unverified.read(app.topic("counts"), committed_only=True) if raw.key == b"k0"]
    assert counts[-1] == (10).to_bytes(8)


def test_a_thread_ends_what_was_lost_of_its_own_transactions_before_the_next_one_does(
    unverified: Log, tmp_path: Path
) -> None:
    app = counting(tmp_path, unverified, num_stream_threads=1)
    # Without input: it only chooses its process id.
    assert app.run().code == 0
    process = json.loads((Path(app.state) / app.application / "kafka-streams-process-metadata").read_text())[
        "processId"
    ]
    changelog = TopicPartition(f"{app.application}-counts-changelog", 0)
    own = f"{app.application}-{process}-1"
    leave_open(unverified.address, own, app.topic("words"), changelog, [7, 9], committed=False)
    feed(app, 1)
    done = app.run()
    assert (
        done.code,
        done.err.count(f"brokers had lost the end of the last transaction of {own}; it is now aborted"),
    ) == (0, 1)
    # The commit of the next transaction would have committed the record, too.
    values = [raw.value for raw in unverified.read(changelog.topic, committed_only=True) if raw.key == b"k0"]
    assert values == [(1).to_bytes(8)]


def test_what_a_coordinator_that_starts_leaves_out_of_its_list_is_found(
    unverified: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = counting(tmp_path, unverified)
    place, own = TopicPartition(app.topic("words"), 0), f"{app.application}-own-1"
    leave_open(unverified.address, own, app.topic("counts"), place, [7, 9], committed=False)
    # As just after a restart: the leader of the partition is there, and the coordinator does not know yet that it is one.
    monkeypatch.setattr(KafkaAdminClient, "list_transactions", lambda *_, **__: {})
    with closing(unverified.transport.admin()) as admin:
        (ended,) = admin.end_lost(own, [place], app.application)
        assert (ended.transaction.partition, ended.committed) == (place, False)
        assert admin.end_lost(own, [place], app.application) == []


def test_an_earlier_epoch_does_not_make_the_outcome_unknown(unverified: Log, tmp_path: Path) -> None:
    """Its transactions had other outcomes, and their markers may be deleted, as of a repartition topic."""
    app = counting(tmp_path, unverified)
    place, own = TopicPartition(app.topic("words"), 0), f"{app.application}-own-1"
    with closing(unverified.transport.producer(transactional_id=own)) as producer:
        producer.begin()
        producer.send([(place.topic, b"k", b"v", 1, None, place.partition)])
        producer.commit({}, None)
    leave_open(unverified.address, own, app.topic("counts"), place, [7, 9], committed=False)
    with closing(unverified.transport.admin()) as admin:
        (ended,) = admin.end_lost(own, [place], app.application)
        assert (ended.committed, ended.reason) == (False, "")
        assert admin.end_lost(own, [place], app.application) == []


def test_a_look_for_lost_transactions_that_finds_no_leader_may_be_repeated(
    unverified: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = counting(tmp_path, unverified)
    place, own = TopicPartition(app.topic("words"), 0), f"{app.application}-own-1"
    leave_open(unverified.address, own, app.topic("counts"), place, [7, 9], committed=False)
    with closing(unverified.transport.admin()) as admin:
        for answer, words in (
            (dict, "could not be listed"),
            (_raise(UnknownBrokerIdError(-1)), "UnknownBrokerIdError"),
        ):
            with monkeypatch.context() as patched:
                patched.setattr(KafkaAdminClient, "describe_producers", lambda *_, answer=answer: answer())
                with pytest.raises(RetriableTransportError, match=words):
                    admin.end_lost(own, [place], app.application)
        assert len(admin.end_lost(own, [place], app.application)) == 1


def _raise(error: Exception) -> Callable[..., object]:
    def run() -> object:
        raise error

    return run


def test_an_unknown_outcome_is_decided_by_hand_and_live_producers_continue(unverified: Log, tmp_path: Path) -> None:
    app = counting(tmp_path, unverified)
    words = app.topic("words")
    # The log of its coordinator has no transaction of this producer with this partition.
    leave_open(unverified.address, f"{app.application}-gone-1", app.topic("counts"), TopicPartition(words, 0), [1])
    alive = unverified.transport.producer(transactional_id=f"{app.application}-1")
    try:
        alive.begin()
        alive.send([(words, b"k", b"v", 1, None, 1)])
        alive.flush()
        (found,) = unverified.open_transactions([TopicPartition(words, 1)], "")
        assert (found.state, found.hanging) == ("Ongoing", False)
        with pytest.raises(TransportError, match="no longer lost"):
            unverified.end_transaction(found, True)
        for options in ((), ("--end",)):
            done, found_ones = transactions(app, *options)
            assert (done.code, found_ones) == (1, [("unknown", False)])
            assert f"{words}-0: the outcome is unknown: the log of its coordinator has no transaction" in done.err
        done, found_ones = transactions(app, "--end", "--assume", "abort")
        assert (done.code, found_ones) == (0, [("unknown", True)])
        assert transactions(app)[1] == []
        alive.abort()
        assert unverified.open_transactions([TopicPartition(words, number) for number in (0, 1)], "") == []
        assert [
            raw for raw in unverified.read(words, committed_only=True) if raw.partition == 0 and raw.key == b"k0"
        ] == []
    finally:
        alive.close()


def test_the_last_marker_identifies_the_open_one_of_several_transactions(unverified: Log, tmp_path: Path) -> None:
    app = counting(tmp_path, unverified)
    place = TopicPartition(app.topic("words"), 0)
    leave_open(unverified.address, f"{app.application}-gone-1", app.topic("counts"), place, [1, 2], after_abort=True)
    # That transaction has its marker already, as the times of both tell: what is open would be a further one.
    done, found = transactions(app)
    assert (done.code, found) == (1, [("unknown", False)])
    assert "do not fit together" in done.err


def test_the_look_for_lost_transactions_waits_for_the_topic_of_offsets() -> None:
    """Brokers without groups create it for this look; one that restarts may not list it at first."""
    with Broker() as broker, closing(Log(broker.address)) as log, closing(log.transport.admin()) as admin:
        with pytest.raises(RetriableTransportError):
            admin.end_lost("application-1", [], "application")
        until(lambda: looks(admin), "the topic is there")
