"""A migration that ends at any point, and one that begins again after it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import closing

import pytest

from streamkit.errors import IncompatibleStateError, MigrationError
from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.runtime.operations import migration_journal, record_copy
from streamkit.runtime.operations.migration_journal import Journal
from streamkit.transport.log_interface import CommittedOffset
from tests.changes.migrating import LONG, RENAMED, SUMS, Versions, shown


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
    assert "is not a migration entry and is ignored" in caplog.text
