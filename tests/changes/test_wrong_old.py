"""`migrate` from a version that is not the one which ran last, or whose changelog is gone."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from streamkit.changes.compare_versions import compare
from streamkit.changes.finding import Verdict
from streamkit.changes.of_log import read_log
from streamkit.changes.of_plan import form_of
from streamkit.errors import MigrationError
from streamkit.plan.model import Plan
from tests.broker.kafka_broker import Broker
from tests.broker.support import Log
from tests.changes.migrating import LONG, RENAMED, SUMS, Versions, shown

OTHER = ("count: words", "count: sums")
"""An edit of COUNTS: a third name of its store."""


def test_a_version_between_has_counted_on(versions: Versions) -> None:
    old, between, new = versions.plan(), versions.plan(RENAMED), versions.plan(OTHER)
    versions.write("a")
    versions.run(old)
    versions.migrate(old, between)
    # The version between has not run: what the old one wrote is still the last state.
    assert shown(versions.migrator(old, new).prepare()) == ["copy sums: to do"]
    versions.write("a")
    versions.run(between)
    source, further = versions.changelog("words"), versions.changelog("totals")
    with pytest.raises(MigrationError, match=f"{source} was copied to {further}, which has further records"):
        versions.migrate(old, new)
    versions.migrate(between, new)
    versions.write("a")
    versions.run(new)
    assert versions.counts() == {"a": 3}
    # The state has gone on over two copies.
    with pytest.raises(MigrationError, match="has further records"):
        versions.migrate(old, versions.plan(("count: words", "count: others")))


def test_rows_that_a_migration_has_converted(embedded: Versions) -> None:
    embedded.text = SUMS
    old, between, new = embedded.plan(), embedded.plan(LONG), embedded.plan(("store: sums", "store: all-sums"))
    embedded.write("xx", key="a")
    embedded.run(old)
    embedded.migrate(old, between)
    with pytest.raises(MigrationError, match=r"made other rows of .*-sums-changelog .*the value was integer, is long"):
        embedded.migrate(old, new)
    embedded.migrate(between, new)
    embedded.write("x", key="a")
    embedded.run(new)
    assert embedded.table(embedded.changelog("all-sums")) == {b"a": (3).to_bytes(4, "big")}


def test_a_changelog_that_is_gone(versions: Versions) -> None:
    old, new = versions.plan(), versions.plan(RENAMED)
    assert shown(versions.migrator(old, new).prepare()) == []  # no version has run
    versions.write("a")
    versions.run(old)
    changelog = versions.changelog("words")
    with closing(versions.log.transport.admin()) as admin:
        admin.delete_topics([changelog])
    with pytest.raises(MigrationError, match=f"{changelog} is not on the log, and group {versions.name} has committed"):
        versions.migrate(old, new)
    assert shown(versions.migrator(old, new, {"words": ""}).prepare()) == []


def test_an_old_changelog_that_was_deleted_after_the_migration(embedded: Versions) -> None:
    old, new = embedded.plan(), embedded.plan(RENAMED)
    embedded.write("a")
    embedded.run(old)
    embedded.migrate(old, new)
    with closing(embedded.log.transport.admin()) as admin:
        admin.delete_topics([embedded.changelog("words")])
    assert embedded.migrate(old, new).is_done
    embedded.write("a")
    embedded.run(new)
    assert embedded.counts() == {"a": 2}


def left_behind(versions: Versions, old: Plan, new: Plan) -> list[str]:
    """What `diff` finds of records that are left behind."""
    on_log, _, counts = read_log(old, versions.log.transport)
    found = compare(form_of(old, "old.yaml", counts), form_of(new, "new.yaml", counts), on_log)
    return [each.message for each in found if each.verdict is Verdict.LEFT_BEHIND]


@pytest.mark.broker
def test_ends_of_transactions_are_no_records(broker: Broker, tmp_path: Path) -> None:
    with closing(Log(broker.address)) as log:
        versions = Versions(tmp_path, log)
        old, new = versions.plan(), versions.plan(("name: by-word", "name: other"))
        versions.write("a")
        versions.run(old)
        topic = f"{versions.name}-by-word-repartition"
        with closing(log.transport.producer(transactional_id=versions.name)) as producer:
            for _ in range(2):
                producer.begin()
                producer.send([(topic, b"a", b"a", 1000, None, number) for number in (0, 1)])
                producer.flush()
                producer.abort()
            assert left_behind(versions, old, new) == []
            assert versions.migrate(old, new).steps == ()
            producer.begin()
            producer.send([(topic, b"a", b"a", 1000, None, 0)])
            producer.flush()
            # Records of an open transaction may still count.
            assert len(left_behind(versions, old, new)) == 1
            producer.commit({}, None)
        assert len(left_behind(versions, old, new)) == 1
        assert shown(versions.migrator(old, new).prepare()) == [f"drain {topic}: to do"]
