"""`migrate`: the state of one version goes on in the next, on both logs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from streamkit.changes.compare_versions import compare
from streamkit.changes.finding import Verdict
from streamkit.changes.of_log import read_log
from streamkit.changes.of_plan import form_of
from streamkit.errors import ActiveGroupError, MigrationError, UsageError
from streamkit.record import TopicPartition
from streamkit.runtime.execution import metadata
from streamkit.runtime.operations import migration_journal, record_copy, reset
from streamkit.runtime.operations.migration import State
from streamkit.runtime.operations.topic_reading import Target
from streamkit.transport.log_interface import CommittedOffset
from tests.broker.kafka_broker import Broker
from tests.broker.support import Log, until
from tests.changes.migrating import RENAMED, SUMS, WINDOWS, Versions, content, shown


def test_a_renamed_store_keeps_its_state(versions: Versions) -> None:
    old, new = versions.plan(), versions.plan(RENAMED)
    versions.write("a", "b", "a")
    versions.run(old)
    found = versions.migrate(old, new)
    assert shown(found) == ["copy totals: done"]
    source, target = versions.changelog("words"), versions.changelog("totals")
    assert content(versions.log.read(target)) == content(versions.log.read(source)) != []
    versions.write("a", "c")
    versions.run(new)
    assert versions.counts() == {"a": 3, "b": 1, "c": 1}


def test_a_start_after_it_warns_of_nothing_and_diff_finds_the_rows(
    embedded: Versions, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = embedded.plan(), embedded.plan(RENAMED)
    embedded.write("a")
    embedded.run(old)
    embedded.migrate(old, new)
    embedded.run(new)
    assert "no store of" not in caplog.text
    on_log, _, counts = read_log(new, embedded.log.transport)
    found = compare(form_of(old, "old.yaml", counts), form_of(new, "new.yaml", counts), on_log)
    (store,) = (each for each in found if each.subject == "store")
    assert (store.verdict, store.old) == (Verdict.SAFE, "words")
    assert "has rows in its own changelog" in store.message


def test_a_reset_deletes_the_journal_too(embedded: Versions) -> None:
    old, new = embedded.plan(), embedded.plan(RENAMED)
    embedded.write("a")
    embedded.run(old)
    embedded.migrate(old, new)
    found = reset.prepare(new, embedded.log.transport, Target(), reset.Choice())
    assert migration_journal.journal_topic(embedded.name) in [topic.name for topic in found.internals]


@pytest.mark.broker
def test_partitions_that_an_input_gets(broker: Broker, tmp_path: Path) -> None:
    with closing(Log(broker.address)) as log:
        versions = Versions(tmp_path, log, SUMS)
        old = versions.plan()
        keys = [f"key-{number}" for number in range(20)]
        for key in keys:
            versions.write("xx", key=key)
        versions.run(old)
        client = AdminClient({"bootstrap.servers": broker.address})
        topic = f"{versions.name}.lines"
        client.create_partitions([NewPartitions(topic, 5)])[topic].result()
        until(lambda: log.topics(topic)[""] == 5, "the topic has its new partitions")
        versions.partitions = 5
        new = versions.plan()
        assert "2 partitions become 5" in versions.migrator(old, new).prepare().steps[0].text
        versions.migrate(old, new)
        for key in keys:
            versions.write("y", key=key)
        versions.run(new)
        assert versions.table(f"{versions.name}.counts") == {key.encode(): b"3" for key in keys}


def test_a_dry_run_changes_nothing(versions: Versions) -> None:
    old, new = versions.plan(), versions.plan(RENAMED)
    versions.write("a", "b", "a")
    versions.run(old)
    before = versions.log.topics(versions.name)
    found = versions.migrator(old, new).prepare()
    assert [(step.kind, step.subject, step.count, step.state) for step in found.steps] == [
        ("copy", "totals", 2, State.TO_DO)
    ]
    assert versions.log.topics(versions.name) == before


def test_the_target_has_the_settings_of_the_plan_and_all_of_each_record(versions: Versions) -> None:
    old, new = versions.plan(), versions.plan(RENAMED)
    versions.write("a", "b")
    versions.run(old)
    source, target = versions.changelog("words"), versions.changelog("totals")
    versions.log.write([(source, b"b", None, 77, [("h", b"1"), ("none", None)], 0)])
    versions.migrate(old, new)
    assert versions.log.config(target)["cleanup.policy"] == "compact"
    last = [raw for raw in versions.log.read(target) if raw.value is None]
    assert content(last) == [(0, b"b", None, 77, [("h", b"1"), ("none", None)])]


@pytest.mark.broker
def test_records_of_aborted_transactions_are_left_out(broker: Broker, tmp_path: Path) -> None:
    with closing(Log(broker.address)) as log:
        versions = Versions(tmp_path, log)
        old, new = versions.plan(), versions.plan(RENAMED)
        versions.write("a")
        versions.run(old)
        source = versions.changelog("words")
        with closing(log.transport.producer(transactional_id=versions.name)) as producer:
            producer.begin()
            producer.send([(source, b"lost", b"x", 5, None, 0)])
            producer.flush()
            producer.abort()
        assert b"lost" in [raw.key for raw in log.read(source)]
        versions.migrate(old, new)
        assert [raw.key for raw in log.read(versions.changelog("totals"))] == [b"a"]


def test_another_application_takes_the_offsets_too(versions: Versions) -> None:
    old, new = versions.plan(), versions.plan(application=f"{versions.name}x")
    versions.write("a", "b", "a")
    versions.run(old)
    found = versions.migrate(old, new)
    assert shown(found) == ["copy words: done"]
    versions.write("a")
    versions.run(new)
    assert versions.counts() == {"a": 3, "b": 1}
    assert shown(versions.migrate(old, new)) == ["copy words: done"]
    # The old version goes on beside the new one, so that a second migration would lose the counts of one of them.
    versions.write("b")
    versions.run(old)
    with pytest.raises(MigrationError, match=r"both .* have records since the first was copied"):
        versions.migrate(old, new)


def test_a_group_with_offsets_of_its_own_is_refused(embedded: Versions) -> None:
    old, new = embedded.plan(), embedded.plan(application=f"{embedded.name}x")
    embedded.write("a", "b")
    embedded.run(old)
    places = [TopicPartition(f"{embedded.name}.lines", number) for number in (0, 1)]
    with closing(embedded.log.transport.consumer(f"{embedded.name}x")) as consumer:
        consumer.commit(dict.fromkeys(places, CommittedOffset(0)))
    assert f"offsets {embedded.name}x: refused" in shown(embedded.migrator(old, new).prepare())
    with pytest.raises(MigrationError, match="has committed offsets already"):
        embedded.migrate(old, new)


def test_what_the_old_version_wrote_since_is_copied_again(versions: Versions) -> None:
    old, new = versions.plan(), versions.plan(RENAMED)
    versions.write("a")
    versions.run(old)
    versions.migrate(old, new)
    versions.write("a")
    versions.run(old)
    assert shown(versions.migrator(old, new).prepare()) == ["copy totals: to do"]
    versions.migrate(old, new)
    versions.write("a")
    versions.run(new)
    assert versions.counts() == {"a": 3}


def test_records_that_are_not_of_a_migration_are_not_deleted(embedded: Versions) -> None:
    old, new = embedded.plan(), embedded.plan(RENAMED)
    embedded.write("a")
    embedded.run(old)
    embedded.run(new)
    embedded.write("a")
    embedded.run(new)
    before = embedded.log.read(embedded.changelog("totals"))
    with pytest.raises(MigrationError, match="has 1 record already"):
        embedded.migrate(old, new)
    assert embedded.log.read(embedded.changelog("totals")) == before


def test_files_that_leave_a_store_open(embedded: Versions) -> None:
    old, new = embedded.plan(), embedded.plan(RENAMED)
    embedded.write("a")
    embedded.run(old)
    assert shown(embedded.migrator(old, new, {"words": ""}).prepare()) == []
    assert shown(embedded.migrator(old, new, {"words": "totals"}).prepare()) == ["copy totals: to do"]
    with pytest.raises(UsageError, match="the old version has no store 'word'; did you mean 'words'"):
        embedded.migrator(old, new, {"word": "totals"}).prepare()
    with pytest.raises(UsageError, match="the new version has no store 'total'"):
        embedded.migrator(old, new, {"words": "total"}).prepare()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_records_in_a_topic_that_goes_are_read_by_the_old_version(versions: Versions, guarantee: str) -> None:
    versions.text = versions.text.replace("poll.ms: 5", f"poll.ms: 5, processing.guarantee: {guarantee}")
    old, new = versions.plan(), versions.plan(RENAMED, ("name: by-word", "name: other"))
    versions.write("a", "b")
    versions.run(old)
    topic = f"{versions.name}-by-word-repartition"
    versions.log.write([(topic, b"b", b"b", 1000, None, None)])
    assert shown(versions.migrator(old, new).prepare())[0] == f"drain {topic}: to do"
    versions.migrate(old, new)
    assert versions.counts() == {"a": 1, "b": 2}
    versions.write("b")
    versions.run(new)
    assert versions.counts() == {"a": 1, "b": 3}


def test_stream_time_advances(versions: Versions) -> None:
    versions.text, versions.partitions = WINDOWS, 1
    old = versions.plan()
    new = versions.plan(("store: words", "store: totals"), ("name: by-word", "name: other"))
    versions.write("a", at=1_000)
    versions.write("b", at=25_000)
    versions.run(old)
    versions.migrate(old, new)
    versions.write("a", at=2_000)  # its window is closed
    versions.write("b", at=26_000)
    versions.run(new)
    assert versions.counts() == {"a": 1, "b": 2}


def test_the_times_of_a_store_get_its_new_name(versions: Versions) -> None:
    old, new = versions.plan(), versions.plan(RENAMED)
    versions.write("a")
    versions.run(old)
    place = TopicPartition(f"{versions.name}-by-word-repartition", 0)
    with closing(versions.log.transport.consumer(versions.name)) as consumer:
        consumer.commit({place: CommittedOffset(0, metadata.encode(5, {"words": 7, "other": 8}))})
    found = versions.migrate(old, new)
    assert shown(found) == ["copy totals: done"]
    offset, text = versions.log.committed(versions.name, place.topic)[0]
    assert (offset, metadata.decode(text)) == (0, (5, {"totals": 7, "other": 8}))


@pytest.mark.parametrize("suffix", ["", "x"], ids=["old", "new"])
def test_a_group_with_members_is_refused(versions: Versions, suffix: str) -> None:
    group = f"{versions.name}{suffix}"
    old, new = versions.plan(), versions.plan(RENAMED, application=group)
    versions.write("a")
    versions.run(old)
    member = versions.log.transport.membership(group, "one", lambda members: {})
    try:
        member.join(lambda: b"", [f"{versions.name}.lines"])
        while not versions.migrator(old, new).prepare().members:
            member.poll(50)
        with pytest.raises(ActiveGroupError, match=f"^group {group} is active with 1 member [^;]*; stop"):
            versions.migrate(old, new)
    finally:
        member.leave()
    assert not [name for name in versions.log.topics(versions.name) if name.endswith("totals-changelog")]


def test_a_member_that_joins_the_new_group_meanwhile_is_named(
    embedded: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = f"{embedded.name}x"
    old, new = embedded.plan(), embedded.plan(application=group)
    embedded.write("a")
    embedded.run(old)
    member = embedded.log.transport.membership(group, "one", lambda members: {})
    inner = record_copy.Copy._write

    def write(self: record_copy.Copy, *arguments: object) -> None:
        inner(self, *arguments)  # type: ignore[arg-type]
        member.join(lambda: b"", [f"{embedded.name}.lines"])
        while not embedded.migrator(old, new).prepare().members:
            member.poll(50)

    monkeypatch.setattr(record_copy.Copy, "_write", write)
    try:
        with pytest.raises(ActiveGroupError, match=f"^group {group} is active with 1 member"):
            embedded.migrate(old, new)
    finally:
        member.leave()
