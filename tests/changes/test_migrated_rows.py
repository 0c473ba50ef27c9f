"""Rows that a migration converts, moves to other partitions or takes from a source topic, and the directories of their stores."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from streamkit.errors import MigrationError
from streamkit.runtime.operations import migration_journal
from streamkit.runtime.operations.migration import State
from streamkit.serdes.partitioner import partition
from tests.changes.migrating import LONG, SUMS, WINDOWS, Versions, shown


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


VERSIONED = ("count: words", "count: {store: {name: words, versioned: 10s}}")


def test_versions_are_no_older_in_the_new_partitions(versions: Versions) -> None:
    old, new = versions.plan(VERSIONED), versions.plan(VERSIONED, SPREAD)
    words = [f"word-{number}" for number in range(40)]
    # Each partition has both, so that the rows of one partition after those of another would be too old.
    for part, time in ((words[:20], 1_000), (words[20:], 100_000)):
        versions.write(*part, at=time)
        versions.run(old)
    versions.migrate(old, new)
    times: dict[int, list[int]] = {}
    for raw in versions.log.read(versions.changelog("words"), committed_only=True):
        times.setdefault(raw.partition, []).append(raw.timestamp)
    assert list(times.values()) == [sorted(each) for each in times.values()]
    versions.write(*words, at=100_000)
    versions.run(new)
    assert versions.counts() == dict.fromkeys(words, 2)


def test_a_version_that_came_too_late_does_not_come_back(embedded: Versions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration_journal, "_BATCH", 2)
    old, new = embedded.plan(VERSIONED), embedded.plan(VERSIONED, SPREAD)
    embedded.write("any")
    embedded.run(old)
    keys = [b"key-%d" % number for number in range(60)]
    homes: dict[int, list[bytes]] = {0: [], 1: []}
    for key in keys:
        homes[partition(key, 2)].append(key)
    source = embedded.changelog("words")
    # As the store logs them: the latest first, then one within the history, and then those that it drops.
    for number, home in homes.items():
        for place, time in enumerate([100_000, 95_000, *[80_000] * (len(home) - 2)]):
            embedded.log.write([(source, home[place], bytes(8), time, None, number)])
    embedded.migrate(old, new)
    found = {key for key in embedded.table(source) if key is not None}
    assert found == {b"any", *homes[0][:2], *homes[1][:2]}


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


def test_what_the_old_version_has_read_of_a_source_topic_since_is_copied_again(versions: Versions) -> None:
    versions.text = TABLE
    old, new = versions.plan(), versions.plan((", topology.optimization: all", ""))
    versions.write("ada", key="1")
    versions.run(old)
    versions.migrate(old, new)
    assert shown(versions.migrator(old, new).prepare()) == ["copy users: done"]
    # A record that the old version has not read changes nothing.
    versions.write("bob", key="2")
    assert shown(versions.migrator(old, new).prepare()) == ["copy users: done"]
    versions.run(old)
    assert shown(versions.migrator(old, new).prepare()) == ["copy users: to do"]
    versions.migrate(old, new)
    assert shown(versions.migrator(old, new).prepare()) == ["copy users: done"]
    for key in ("1", "2"):
        versions.write("hello ", key=key, topic="clicks")
    versions.run(new)
    assert versions.table(f"{versions.name}.counts") == {b"1": b"hello ada", b"2": b"hello bob"}


def test_a_group_that_has_read_on_with_either_version_is_refused(embedded: Versions) -> None:
    embedded.text = TABLE
    old, new = embedded.plan(), embedded.plan((", topology.optimization: all", ""))
    target = embedded.changelog("users")
    embedded.write("ada", key="1")
    embedded.run(old)
    embedded.migrate(old, new)
    for plan, key in ((old, "2"), (new, "3")):
        embedded.write("x", key=key)
        embedded.run(plan)
    found = embedded.migrator(old, new).prepare()
    assert shown(found) == ["copy users: refused"]
    assert f"group {embedded.name} has read on in {embedded.name}.lines" in found.steps[0].reason
    assert f"delete {target}" in found.steps[0].reason
    with closing(embedded.log.transport.admin()) as admin:
        admin.delete_topics([target])
    embedded.migrate(old, new)
    assert embedded.table(target).keys() == {b"1", b"2", b"3"}


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


def homes(versions: Versions, instance: str = "") -> dict[str, str]:
    """The directory of each store's tasks, by what is in it."""
    found = (versions.folder / "state" / instance / versions.name).glob("*_*/*/*-store")
    return {path.parent.parent.name: path.name for path in found}


def test_directories_change_places_once(embedded: Versions, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded.text = TWO
    old, new = embedded.plan(), embedded.plan((_A + _B, _B + _A))
    embedded.write("x", topic="a", key="k")
    embedded.write("y", topic="b", key="k")
    embedded.run(old)
    before = homes(embedded)
    assert before == {"0_0": "a-store", "0_1": "a-store", "1_0": "b-store", "1_1": "b-store"}
    other = "instance-2"
    shutil.copytree(embedded.folder / "state" / embedded.name, embedded.folder / "state" / other / embedded.name)
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
    assert homes(embedded)["0_0"] == homes(embedded, other)["0_0"] == "b-store"
    embedded.write("x", topic="a", key="k")
    embedded.run(new)
    assert embedded.counts() == {"k": 2}


FOREIGN = """\
streamkit: 1
application: {application}
config: {{bootstrap.servers: "{address}", state.dir: {state}, commit.interval.ms: 20, poll.ms: 5}}
topics:
  lines: {{topic: {topics}.lines, key: string, value: string, partitions: {partitions}}}
  items: {{topic: {topics}.items, key: string, value: string, partitions: 1}}
  counts: {{topic: {topics}.counts, key: string, value: string, partitions: 1}}
pipelines:
  items: {{table: items}}
  orders:
    stream: lines
    steps:
      - repartition: {{name: by-order, partitions: 2}}
      - to_table: {{store: orders}}
      - left_join: {{with: items, on: value, value: left, value_serde: string, name: priced}}
      - to_stream
    to: counts
"""


def test_subscriptions_that_are_answered_in_other_partitions_are_refused(embedded: Versions) -> None:
    embedded.text = FOREIGN
    old, new = embedded.plan(), embedded.plan(("by-order, partitions: 2", "by-order, partitions: 4"))
    embedded.write("apple", key="order")
    embedded.run(old)
    assert "copy priced-subscription-store: refused" in shown(embedded.migrator(old, new).prepare())
    with pytest.raises(MigrationError, match="the partitions of the left table's keys, which change"):
        embedded.migrate(old, new)
    assert shown(embedded.migrator(old, embedded.plan()).prepare()) == []
