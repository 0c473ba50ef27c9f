"""What is on the log: `diff --running`, and what a start refuses or warns of."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from pathlib import Path

import pytest

from streamkit.changes.compare_versions import compare
from streamkit.changes.finding import Finding, Verdict
from streamkit.changes.of_log import form_on_log, read_log
from streamkit.changes.of_plan import form_of
from streamkit.errors import IncompatibleStateError
from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.runtime.local.client import Application
from streamkit.runtime.operations.opening import open_log
from streamkit.transport.log_interface import CommittedOffset, NewTopic, Transport
from tests.broker.kafka_broker import Broker
from tests.broker.support import fresh

TEXT = """\
streamkit: 1
application: {application}
config: {{bootstrap.servers: "{address}", state.dir: {state}, commit.interval.ms: 20, poll.ms: 5}}
topics:
  lines: {{topic: {application}.lines, value: string, partitions: 2}}
  counts: {{topic: {application}.counts, value: long, partitions: 1}}
pipelines:
  words:
    stream: lines
    steps:
      - group_by: {{key: value, name: by-word}}
      - count: words
      - to_stream
    to: counts
"""
REDUCED = ("- count: words", "- reduce: {add: value, store: words}"), ("value: long", "value: string")


class Version:
    """An application on a log, whose file may be edited between runs."""

    def __init__(self, folder: Path, address: str, application: str = ""):
        self.application = application or fresh("changing")
        self.path = folder / f"{self.application}.yaml"
        self.marks = folder / "state" / self.application / ".streamkit-changelogs"
        self.path.write_text(TEXT.format(application=self.application, address=address, state=folder / "state"))

    def edit(self, *edits: tuple[str, str]) -> None:
        text = self.path.read_text()
        for before, after in edits:
            assert before in text
            text = text.replace(before, after)
        self.path.write_text(text)

    def plan(self) -> Plan:
        return load(self.path)

    def transport(self) -> closing[Transport]:
        return closing(open_log(self.plan()))

    def write(self, *values: str) -> None:
        with self.transport() as log, closing(log.producer()) as producer:
            producer.send([(f"{self.application}.lines", None, value.encode(), 1000, None, 0) for value in values])
            producer.flush()

    def run(self, *, force: bool = False) -> None:
        with self.transport() as log:
            application = Application(self.plan(), log)
            application.force = force
            application.run(until_idle=True, stop=threading.Event())

    def topics(self) -> set[str]:
        with self.transport() as log, closing(log.admin()) as admin:
            return {name for name in admin.topics() if name.startswith(self.application)}

    def diff(self) -> list[Finding]:
        plan = self.plan()
        with self.transport() as log:
            on_log, counts, _ = read_log(plan, log)
            with closing(log.admin()) as admin:
                new = form_of(plan, "new.yaml", admin.partition_counts())
        return compare(form_on_log(plan, new, on_log, counts, "the log"), new, on_log)


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.broker)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "embedded":
        return f"embedded:{tmp_path / 'log'}"
    broker: Broker = request.getfixturevalue("broker")
    return broker.address


@pytest.fixture
def version(address: str, tmp_path: Path) -> Version:
    """A version that has counted three words."""
    found = Version(tmp_path, address)
    with found.transport() as log, closing(log.admin()) as admin:
        admin.create_topics([NewTopic(f"{found.application}.lines", 2)])
    found.write("a", "b", "a")
    found.run()
    return found


def test_the_same_version_differs_in_nothing(version: Version) -> None:
    assert version.diff() == []


def test_what_would_be_misread_is_refused_before_anything_is_made(version: Version) -> None:
    before = version.topics()
    version.edit(*REDUCED, ("name: by-word", "name: other"))
    with pytest.raises(IncompatibleStateError) as caught:
        version.run()
    assert "store words: the value was long, is string" in str(caught.value)
    assert "--force" in str(caught.value)
    assert version.topics() == before
    assert str(version.diff()[0].verdict) == "incompatible"


def test_force_starts_in_any_case_and_then_it_is_known(version: Version) -> None:
    version.edit(*REDUCED)
    version.run(force=True)
    version.run()
    assert json.loads(version.marks.read_text())["stores"]["words"]["rows"]["value"] == "string"


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"format": 2}', '{"format": 1, "stores": {"words": {}}}'])
def test_where_nothing_is_known_nothing_is_refused(text: str | None, version: Version) -> None:
    version.marks.unlink() if text is None else version.marks.write_text(text)
    version.edit(*REDUCED)
    version.run()
    assert "words" in json.loads(version.marks.read_text())["stores"]


def test_a_changelog_that_was_made_again_is_another(version: Version) -> None:
    topic = f"{version.application}-words-changelog"
    with version.transport() as log, closing(log.admin()) as admin:
        admin.delete_topics([topic])
        admin.create_topics([NewTopic(topic, 2, {"cleanup.policy": "compact"})])
    version.edit(*REDUCED)
    version.run()


def test_a_renamed_store_is_warned_of(version: Version, caplog: pytest.LogCaptureFixture) -> None:
    version.edit(("count: words", "count: totals"))
    version.run()
    warned = [record.getMessage() for record in caplog.records if "no store of" in record.getMessage()]
    assert len(warned) == 1
    assert f"{version.application}-words-changelog (" in warned[0]
    found = version.diff()
    # By now the new store has a changelog too, so that only the old one is left over.
    assert [(each.verdict, each.name) for each in found] == [(Verdict.SAFE, "words")]


def test_what_is_of_another_application_is_not_warned_of(
    version: Version, tmp_path: Path, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    longer = Version(tmp_path, address, f"{version.application}-two")
    with longer.transport() as log, closing(log.admin()) as admin:
        admin.create_topics([NewTopic(f"{longer.application}.lines", 2)])
    longer.write("c")
    longer.run()
    version.run()
    assert not [record for record in caplog.records if "no store of" in record.getMessage()]
    assert version.diff() == []


def test_records_that_are_unread_are_counted(version: Version) -> None:
    topic = f"{version.application}-by-word-repartition"
    with version.transport() as log:
        with closing(log.producer()) as producer:
            producer.send([(topic, b"x", b"x", 1000, None, 0)] * 2)
            producer.flush()
        with closing(log.consumer(version.application)) as consumer:
            end = consumer.end_offsets([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
            consumer.commit({TopicPartition(topic, 0): CommittedOffset(end - 2)})
    version.edit(("name: by-word", "name: words"))
    found = version.diff()
    left = [each for each in found if each.verdict is Verdict.LEFT_BEHIND]
    assert len(left) == 1
    assert "2 unread records" in left[0].message


def test_another_kind_of_store_is_known_by_its_cleanup_policy(version: Version) -> None:
    version.marks.unlink()
    version.edit(
        ("- count: words", "- window: {tumbling: 60s}\n      - count: words"),
        ("- to_stream", "- to_stream: {key: key.key}"),
    )
    found = version.diff()
    assert [each.verdict for each in found] == [Verdict.UNKNOWN]
    assert "has the cleanup.policy compact, a store of this kind has compact,delete" in found[0].message


def test_other_partitions_of_a_store_are_incompatible(version: Version) -> None:
    version.edit(("- group_by:", "- repartition: {partitions: 3, name: wide}\n      - group_by:"))
    assert ("incompatible", "words") in [(str(each.verdict), each.name) for each in version.diff()]
