"""`migrate`: the state of one version goes on in the next, on both logs."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from streamkit.changes.compare_versions import compare
from streamkit.changes.finding import Verdict
from streamkit.changes.forms.of_log import read_log
from streamkit.changes.forms.of_plan import form_of
from streamkit.errors import ActiveGroupError, IncompatibleStateError, MigrationError, UsageError
from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.runtime.execution import metadata
from streamkit.runtime.operations import reset
from streamkit.runtime.operations.migration import migration_journal, record_copy
from streamkit.runtime.operations.migration.migration import State
from streamkit.runtime.operations.migration.migration_journal import Journal
from streamkit.runtime.operations.reset_targets import Target
from streamkit.transport.log_interface import CommittedOffset
from tests.broker.kafka_broker import Broker
from tests.broker.support import Log, until
from tests.changes.migrating import Versions, content

RENAMED = ("count: words", "count: totals")


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.broker)])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    broker: Broker | None = request.getfixturevalue("broker") if request.param == "kafka" else None
    found = Log(broker.address if broker is not None else f"embedded:{tmp_path / 'log'}")
    yield found
    found.close()


@pytest.fixture
def versions(log: Log, tmp_path: Path) -> Versions:
    return Versions(tmp_path, log)


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Versions]:
    log = Log(f"embedded:{tmp_path / 'log'}")
    yield Versions(tmp_path, log)
    log.close()


def shown(migration: object) -> list[str]:
    return [f"{step.kind} {step.subject}: {step.state}" for step in migration.steps]  # type: ignore[attr-defined]


# -- Names --------------------------------------------------------------------------------------------------------------


def test_a_renamed_store_goes_on(versions: Versions) -> None:
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
    with pytest.raises(MigrationError, match="has 1 records already"):
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


# -- Repartition topics and offsets -------------------------------------------------------------------------------------


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


WINDOWS = """\
streamkit: 1
application: {application}
config: {{bootstrap.servers: "{address}", state.dir: {state}, commit.interval.ms: 20, poll.ms: 5}}
topics:
  lines: {{topic: {topics}.lines, value: string, partitions: {partitions}}}
  counts: {{topic: {topics}.counts, value: long, partitions: 1}}
pipelines:
  words:
    stream: lines
    steps:
      - group_by: {{key: value, name: by-word}}
      - window: {{tumbling: 10s, grace: 0s}}
      - count: {{store: words}}
      - to_stream: {{key: "key.key"}}
    to: counts
"""


def test_stream_time_goes_on(versions: Versions) -> None:
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


# -- Rows ---------------------------------------------------------------------------------------------------------------

SUMS = """\
streamkit: 1
application: {application}
config: {{bootstrap.servers: "{address}", state.dir: {state}, commit.interval.ms: 20, poll.ms: 5}}
topics:
  lines: {{topic: {topics}.lines, value: string, partitions: {partitions}}}
  counts: {{topic: {topics}.counts, value: json, partitions: 1}}
pipelines:
  sums:
    stream: lines
    steps:
      - group_by_key
      - aggregate: {{initial: "0", add: aggregate + len(value), value_serde: integer, store: sums}}
      - to_stream
    to: counts
"""
LONG = ("value_serde: integer", "value_serde: long")


@pytest.mark.parametrize("edits", [(LONG,), (LONG, ("store: sums", "store: all-sums"))], ids=["in-place", "renamed"])
def test_rows_get_the_new_serde(versions: Versions, edits: tuple[tuple[str, str], ...]) -> None:
    versions.text = SUMS
    old, new = versions.plan(), versions.plan(*edits)
    versions.write("xx", "yyy", key="a")
    versions.write("z", key="b")
    versions.run(old)
    found = versions.migrator(old, new).prepare()
    assert "rows get the new serdes" in found.steps[0].text
    versions.migrate(old, new)
    assert shown(versions.migrator(old, new).prepare())[0].endswith("done")
    versions.write("zz", key="a")
    versions.run(new)
    assert versions.table(f"{versions.name}.counts") == {b"a": b"7", b"b": b"1"}
    assert not [name for name in versions.log.topics(versions.name) if "staging" in name]


def test_serdes_with_the_same_bytes_convert_nothing(embedded: Versions) -> None:
    embedded.text = SUMS.replace("integer", "uuid").replace("aggregate + len(value)", "value").replace("json", "string")
    old = embedded.plan()
    same, renamed = ("value_serde: uuid", "value_serde: string"), ("store: sums", "store: all-sums")
    embedded.log.create(embedded.changelog("sums"), 2)
    embedded.log.write([(embedded.changelog("sums"), b"a", b"not a uuid", 1000, None, 0)])
    assert shown(embedded.migrator(old, embedded.plan(same)).prepare()) == []
    found = embedded.migrate(old, embedded.plan(same, renamed))
    assert [step.text.partition(": ")[2] for step in found.steps] == [""]
    assert embedded.table(embedded.changelog("all-sums")) == {b"a": b"not a uuid"}


def test_a_row_that_does_not_convert_is_found_before_anything_is_written(embedded: Versions) -> None:
    embedded.text = SUMS
    old, new = embedded.plan(LONG), embedded.plan()
    embedded.write("xx", key="a")
    embedded.run(old)
    source = embedded.changelog("sums")
    embedded.log.write([(source, b"b", (2**40).to_bytes(8, "big"), 1000, None, 1)])
    before = embedded.log.topics(embedded.name)
    found = embedded.migrator(old, new).prepare()
    assert shown(found) == ["copy sums: refused"]
    assert f"{source}-1 offset " in found.steps[0].reason
    with pytest.raises(MigrationError, match="copy sums: "):
        embedded.migrate(old, new)
    assert embedded.log.topics(embedded.name) == before


_SELECTED = "- select_key: {key: value, key_serde: string}\n      - repartition: {partitions: 3, name: by-word}\n"
SPREAD = ("- group_by: {key: value, name: by-word}", f"{_SELECTED}      - group_by_key")


def test_rows_go_to_the_partitions_of_their_keys(versions: Versions) -> None:
    old, new = versions.plan(), versions.plan(SPREAD)
    words = [f"word-{number}" for number in range(40)]
    versions.write(*words)
    versions.run(old)
    assert [step.kind for step in versions.migrator(old, new).prepare().steps] == ["delete", "copy"]
    versions.migrate(old, new)
    versions.write(*words, "new")
    versions.run(new)
    assert versions.log.topics(versions.name)["-words-changelog"] == 3
    assert versions.counts() == {**dict.fromkeys(words, 2), "new": 1}


def test_rows_that_are_not_where_their_key_belongs_stay(embedded: Versions) -> None:
    old, new = embedded.plan(), embedded.plan(SPREAD)
    embedded.write("a")
    embedded.run(old)
    embedded.log.write([(embedded.changelog("words"), b"x", bytes(8), 1000, None, number) for number in (0, 1)])
    found = embedded.migrator(old, new).prepare()
    assert found.steps[-1].state is State.REFUSED
    assert "not in the partition that Kafka's default partitioner gives its key" in found.steps[-1].reason


@pytest.mark.parametrize("window", ["{{tumbling: 60s}}", "{{session: 60s}}", "{{sliding: 60s}}"])
def test_windows_go_on(embedded: Versions, window: str) -> None:
    embedded.text = WINDOWS.replace("{{tumbling: 10s, grace: 0s}}", window)
    old, new = embedded.plan(), embedded.plan(("store: words", "store: totals"))
    embedded.write("a", "a")
    embedded.run(old)
    embedded.migrate(old, new)
    embedded.write("a")
    embedded.run(new)
    assert embedded.counts() == {"a": 3}


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (("tumbling: 10s", "tumbling: 20s"), "its windows were of 10000 ms, are of 20000 ms"),
        (("window: {tumbling: 10s, grace: 0s}", "window: {session: 10s}"), "it held windows, holds"),
    ],
)
def test_rows_of_another_form_are_refused(embedded: Versions, edit: tuple[str, str], reason: str) -> None:
    embedded.text = WINDOWS
    old, new = embedded.plan(), embedded.plan(edit)
    embedded.write("a")
    embedded.run(old)
    found = embedded.migrator(old, new).prepare()
    assert found.steps[0].state is State.REFUSED
    assert reason in found.steps[0].reason


def test_a_store_without_a_changelog_has_nothing_to_copy(embedded: Versions) -> None:
    embedded.text = embedded.text.replace("count: words", "count: {{store: {{name: words, logging: false}}}}")
    old, new = embedded.plan(), embedded.plan(("logging: false", "logging: true"))
    embedded.write("a")
    embedded.run(old)
    found = embedded.migrator(old, new).prepare()
    assert (found.steps[0].state, found.steps[0].reason) == (
        State.REFUSED,
        "it had no changelog, so that no log has its rows",
    )


TABLE = """\
streamkit: 1
application: {application}
config: {{bootstrap.servers: "{address}", state.dir: {state}, topology.optimization: all}}
topics:
  lines: {{topic: {topics}.lines, value: string, partitions: {partitions}}}
  clicks: {{topic: {topics}.clicks, value: string, partitions: {partitions}}}
  counts: {{topic: {topics}.counts, value: string, partitions: 1}}
pipelines:
  users: {{table: lines, store: users}}
  joined:
    stream: clicks
    steps:
      - join: {{with: users, value: left + right, value_serde: string}}
    to: counts
"""


def test_a_table_that_gets_a_changelog_of_its_own_has_what_was_read(versions: Versions) -> None:
    versions.text = TABLE
    old, new = versions.plan(), versions.plan((", topology.optimization: all", ""))
    versions.write("ada", key="1")
    versions.run(old)
    versions.migrate(old, new)
    versions.write("hello ", key="1", topic="clicks")
    versions.run(new)
    assert versions.table(f"{versions.name}.counts") == {b"1": b"hello ada"}


# -- Directories --------------------------------------------------------------------------------------------------------

TWO = """\
streamkit: 1
application: {application}
config: {{bootstrap.servers: "{address}", state.dir: {state}, commit.interval.ms: 20, poll.ms: 5}}
topics:
  a: {{topic: {topics}.a, value: string, partitions: {partitions}}}
  b: {{topic: {topics}.b, value: string, partitions: {partitions}}}
  counts: {{topic: {topics}.counts, value: long, partitions: 1}}
pipelines:
  a: {{stream: a, steps: [group_by_key, {{count: a-store}}, to_stream], to: counts}}
  b: {{stream: b, steps: [group_by_key, {{count: b-store}}, to_stream], to: counts}}
"""
_A = "  a: {stream: a, steps: [group_by_key, {count: a-store}, to_stream], to: counts}\n"
_B = "  b: {stream: b, steps: [group_by_key, {count: b-store}, to_stream], to: counts}\n"


def homes(versions: Versions) -> dict[str, str]:
    """The directory of each store's tasks, by what is in it."""
    found = (versions.folder / "state" / versions.name).glob("*_*/*/*-store")
    return {path.parent.parent.name: path.name for path in found}


def test_directories_change_places_once(embedded: Versions, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded.text = TWO
    old, new = embedded.plan(), embedded.plan((_A + _B, _B + _A))
    embedded.write("x", topic="a", key="k")
    embedded.write("y", topic="b", key="k")
    embedded.run(old)
    before = homes(embedded)
    assert before == {"0_0": "a-store", "0_1": "a-store", "1_0": "b-store", "1_1": "b-store"}
    renamed: list[Path] = []
    inner = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if len(renamed) == 5:
            raise KeyboardInterrupt
        renamed.append(self)
        return inner(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            embedded.migrate(old, new)
    found = embedded.migrate(old, new)
    assert (found.steps, found.left) == ((), ())
    assert homes(embedded) == {"0_0": "b-store", "0_1": "b-store", "1_0": "a-store", "1_1": "a-store"}
    embedded.migrate(old, new)
    assert homes(embedded)["0_0"] == "b-store"
    embedded.write("x", topic="a", key="k")
    embedded.run(new)
    assert embedded.counts() == {"k": 2}


# -- Crashes ------------------------------------------------------------------------------------------------------------


class CrashError(BaseException):
    """The end of a process, which nothing handles."""


class Crashes:
    """Ends a migration at its n-th change of the log: before the change, or just after it."""

    def __init__(self, patch: pytest.MonkeyPatch, versions: Versions, number: int, *, after: bool):
        self.left, self._after = number, after
        transport = versions.log.transport
        with (
            closing(transport.admin()) as admin,
            closing(transport.producer()) as producer,
            closing(transport.consumer("any")) as consumer,
        ):
            for kind, names in (
                (type(admin), ("create_topics", "delete_topics")),
                (type(producer), ("send", "flush")),
                (type(consumer), ("commit",)),
            ):
                for name in names:
                    patch.setattr(kind, name, self._ending(getattr(kind, name)))

    def _ending(self, inner: Callable[..., object]) -> Callable[..., object]:
        def patched(*arguments: object) -> object:
            self.left -= 1
            if self.left == 0 and not self._after:
                raise CrashError
            found = inner(*arguments)
            if self.left == 0:
                raise CrashError
            return found

        return patched


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("edits", "store", "suffix"),
    [
        ((LONG,), "sums", ""),
        ((LONG, ("store: sums", "store: all-sums")), "all-sums", ""),
        ((LONG,), "sums", "x"),
    ],
    ids=["in-place", "renamed", "application"],
)
def test_a_crash_at_any_point_and_again(
    embedded: Versions,
    edits: tuple[tuple[str, str], ...],
    store: str,
    suffix: str,
    after: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A copy of several batches, so that some crashes are within it.
    monkeypatch.setattr(migration_journal, "_BATCH", 2)
    rows = {key: number for number, key in enumerate((b"a", b"b", b"c", b"d", b"e", b"f"))}
    crashed = 0
    for number in range(1, 100):
        each = Versions(embedded.folder, embedded.log, SUMS)
        application = f"{each.name}{suffix}"
        old, new = each.plan(), each.plan(*edits, application=application)
        source, lines = each.changelog("sums"), f"{each.name}.lines"
        each.log.create(source, 2, **{"cleanup.policy": "compact"})
        each.log.write([(source, key, value.to_bytes(4, "big"), 1000, None, value % 2) for key, value in rows.items()])
        each.write("x", key="a")
        with closing(each.log.transport.consumer(each.name)) as consumer:
            consumer.commit({TopicPartition(lines, partition): CommittedOffset(0, "") for partition in (0, 1)})
        with monkeypatch.context() as patched:
            crashes = Crashes(patched, each, number, after=after)
            try:
                each.migrate(old, new)
            except CrashError:
                crashed += 1
        if crashes.left > 0:
            break
        each.migrate(old, new)
        target = each.changelog(store, application)
        assert each.table(target) == {key: value.to_bytes(8, "big") for key, value in rows.items()}, number
        names = each.log.topics("")
        entries = migration_journal.read_entries(application, names, each.log.transport)
        migration_journal.check_migrated(new, entries)
        assert each.migrator(old, new).prepare().is_possible
        assert each.log.committed(application, lines) == each.log.committed(each.name, lines)
        assert not [name for name in names if name.startswith(each.name) and "staging" in name]
    assert crashed >= 8


def test_an_incomplete_migration_keeps_versions_from_starting(
    versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = versions.plan(), versions.plan(RENAMED)
    versions.write("a")
    versions.run(old)

    def crash(*_: object) -> None:
        raise CrashError

    with monkeypatch.context() as patched:
        patched.setattr(record_copy.Copy, "_write", crash)
        with pytest.raises(CrashError):
            versions.migrate(old, new)
    with pytest.raises(IncompatibleStateError, match=r"a migration of .* is incomplete \(.*-totals-changelog\): run"):
        versions.run(new)
    versions.run(old)  # the old version has all that it had
    versions.migrate(old, new)
    versions.write("a")
    versions.run(new)
    assert versions.counts() == {"a": 2}


DOUBLE = (
    ("value_serde: integer", "value_serde: double"),
    ('initial: "0"', 'initial: "0.0"'),
    ("aggregate + len(value)", "aggregate + 1.0"),
)


def crash_in_place(versions: Versions, monkeypatch: pytest.MonkeyPatch) -> tuple[Plan, Plan]:
    """Two versions, of which a migration ended while the changelog was written again from the staging topic."""
    versions.text = SUMS
    old, new = versions.plan(), versions.plan(LONG)
    versions.write("xx", key="a")
    versions.run(old)
    inner = record_copy.Copy._write

    def write(self: record_copy.Copy, *arguments: object) -> None:
        if "staging" in self.source:
            raise CrashError
        inner(self, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(record_copy.Copy, "_write", write)
        with pytest.raises(CrashError):
            versions.migrate(old, new)
    return old, new


@pytest.mark.parametrize("is_deleted", [False, True], ids=["empty", "absent"])
def test_a_file_that_changes_while_a_migration_is_incomplete_keeps_the_only_rows(
    embedded: Versions, is_deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = crash_in_place(embedded, monkeypatch)
    other = embedded.plan(*DOUBLE)
    staging = f"{embedded.name}-sums-staging-changelog"
    if is_deleted:
        with closing(embedded.log.transport.admin()) as admin:
            admin.delete_topics([embedded.changelog("sums")])
    rows = embedded.table(staging)
    with pytest.raises(MigrationError, match="complete it with the NEW that began it, and then migrate from that NEW"):
        embedded.migrate(old, other)
    assert embedded.table(staging) == rows == {b"a": (2).to_bytes(8, "big")}
    embedded.migrate(old, new)
    embedded.migrate(new, other)
    assert embedded.table(embedded.changelog("sums")) == {b"a": struct.pack(">d", 2.0)}


@pytest.mark.parametrize("edits", [DOUBLE, (LONG, ("store: sums", "store: all-sums"))], ids=["in-place", "renamed"])
def test_a_changelog_that_lost_its_rows_is_not_copied(
    embedded: Versions, edits: tuple[tuple[str, str], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _ = crash_in_place(embedded, monkeypatch)
    other = embedded.plan(*edits)
    if edits is not DOUBLE:
        with pytest.raises(
            MigrationError, match="complete that migration first, with the OLD and the NEW that began it"
        ):
            embedded.migrate(old, other)
    with closing(embedded.log.transport.admin()) as admin:
        admin.delete_topics([f"{embedded.name}-sums-staging-changelog"])
    with pytest.raises(MigrationError, match="sums-staging-changelog is gone: `streamkit reset-offsets`"):
        embedded.migrate(old, other)


def test_a_damaged_entry_of_the_journal_is_not_used(embedded: Versions, caplog: pytest.LogCaptureFixture) -> None:
    old, new = embedded.plan(), embedded.plan(RENAMED)
    embedded.write("a")
    embedded.run(old)
    embedded.migrate(old, new)
    with closing(embedded.log.transport.admin()) as admin:
        topic = Journal(new, embedded.log.transport, admin).topic
    embedded.log.write([(topic, b"x", b"{", 1, None, 0), (topic, b"y", b'{"state": 1}', 1, None, 0)])
    assert shown(embedded.migrate(old, new)) == ["copy totals: done"]
    assert "is no entry of a migration and is not used" in caplog.text


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
        with pytest.raises(ActiveGroupError, match=f"^group {group} is active with 1 members [^;]*; stop"):
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
        with pytest.raises(ActiveGroupError, match=f"^group {group} is active with 1 members"):
            embedded.migrate(old, new)
    finally:
        member.leave()
