"""Stores of dsl.store.format DEFAULT and HEADERS that follow one another: as they are, restored, moved and as standbys."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import closing

import pytest

from streamkit.plan.model import Plan
from streamkit.record import Headers, TaskId, TopicPartition
from streamkit.runtime.operations.stopped_state import kept_stores
from streamkit.state.definitions import Query, Store
from streamkit.state.open_store import create
from streamkit.state.stores.changelogged import Unlogged
from streamkit.transport.log_interface import CommittedOffset
from tests.broker.support import until
from tests.changes.migrating import Versions
from tests.cli.support import LIMIT_S
from tests.runtime.one_thread import Started

TABLES = """\
streamkit: 1
application: {application}
config: {{bootstrap.servers: "{address}", state.dir: {state}, commit.interval.ms: 20, poll.ms: 5, topology.optimization: all}}
topics:
  lines: {{topic: {topics}.lines, key: string, value: string, partitions: 1}}
  counts: {{topic: {topics}.counts, key: string, value: long, partitions: 1}}
pipelines:
  lines: {{table: lines, store: lines}}
  long:
    from: lines
    steps:
      - filter: {{if: len(value) > 1, store: long}}
  counts:
    from: long
    steps:
      - group_by: {{key: value, key_serde: string, name: by-word}}
      - count: words
      - suppress: {{until: 1s, name: held}}
      - to_stream
    to: counts
"""
HEADERS = ("poll.ms: 5", "poll.ms: 5, dsl.store.format: HEADERS")
RENAMED = ("store: long", "store: all-long"), ("count: words", "count: totals")
STEPS: list[dict[str, str | None]] = [
    {"a": "one", "b": "two", "c": "two"},
    {"b": "one", "c": None},
    {"a": "x", "d": "two"},
]
"""What is written before each run; a deletion and a value that the filter drops delete rows of the later stores."""


def write(versions: Versions, number: int) -> None:
    """Write the rows of a step. Its last row lets out what `suppress` has held so far."""
    header: Headers = [("step", b"%d" % number)]
    rows = [*STEPS[number].items(), ("end", f"end-{number}")]
    versions.log.write(
        [
            (f"{versions.name}.lines", key.encode(), None if value is None else value.encode(), at, header, 0)
            for at, (key, value) in enumerate(rows, 10_000 * (number + 1))
        ]
    )


def stored_headers(plan: Plan, versions: Versions) -> dict[str, Headers | None]:
    """The headers of each row of the table, on disk."""
    folder = versions.folder / "state" / plan.application / "0_0"
    with closing(create(plan.stores["lines"], folder, Unlogged())) as store:
        return {str(row.key): row.headers for row in store.page(Query("all", headers=True), 0)}


def check(plan: Plan, versions: Versions) -> None:
    """Every store of the version has what its changelog has."""
    stores = kept_stores(versions.folder / "state", verify=True, plan=plan, transport=versions.log.transport)
    stores = [each for each in stores if each.store in plan.stores]
    assert [(each.store, each.problem) for each in stores if each.problem or not each.compared] == []


@pytest.mark.parametrize("is_lost", [False, True], ids=["kept", "restored"])
@pytest.mark.parametrize("is_first", [False, True], ids=["plain-first", "headers-first"])
def test_each_format_goes_on_with_the_state_of_the_other(embedded: Versions, is_first: bool, is_lost: bool) -> None:
    embedded.text = TABLES
    plans = [embedded.plan(), embedded.plan(HEADERS)]
    for number in range(len(STEPS)):
        plan = plans[(number + is_first) % 2]
        write(embedded, number)
        embedded.run(plan)
        check(plan, embedded)
        if is_lost:
            shutil.rmtree(embedded.folder / "state")
    counts = {key: value for key, value in embedded.counts().items() if not key.startswith("end")}
    assert counts == {"one": 2, "two": 0}
    embedded.run(plans[1])
    check(plans[1], embedded)
    if is_lost:
        step = [("step", b"%d" % number) for number in range(3)]
        expected = {"a": [step[2]], "b": [step[1]], "d": [step[2]], "end": [step[2]]}
        assert stored_headers(plans[1], embedded) == expected


@pytest.mark.parametrize("is_first", [False, True], ids=["plain-first", "headers-first"])
def test_rows_move_to_stores_of_the_other_format(versions: Versions, is_first: bool) -> None:
    versions.text = TABLES
    formats = [(), (HEADERS,)]
    old, new = versions.plan(*formats[is_first]), versions.plan(*formats[not is_first], *RENAMED)
    for number in range(2):
        write(versions, number)
        versions.run(old)
    before = {key: value for key, value in versions.table(versions.changelog("long")).items() if value is not None}
    versions.migrate(old, new)
    moved = versions.table(versions.changelog("all-long"))
    assert {key: value for key, value in moved.items() if value is not None} == before
    write(versions, 2)
    versions.run(new)
    check(new, versions)
    counts = {key: value for key, value in versions.counts().items() if not key.startswith("end")}
    assert counts == {"one": 2, "two": 0}


def test_a_standby_restores_headers_and_goes_on_as_active(embedded: Versions) -> None:
    embedded.text = TABLES
    plan, log = embedded.plan(HEADERS), embedded.log.transport
    tasks = [TaskId(0, 0), TaskId(1, 0)]
    place = TopicPartition(f"{embedded.name}.lines", 0)

    def headers(stores: Iterable[tuple[int, Store, bool]]) -> dict[str, Headers | None]:
        (store,) = (store for _, store, _ in stores)
        return {str(row.key): row.headers for row in store.page(Query("all", headers=True), 0)}

    def of_standby() -> dict[str, Headers | None]:
        with started.thread.updater.entered(LIMIT_S):
            return headers(started.thread.updater.stores("lines"))

    with Started(log, embedded.folder, plan) as started:
        write(embedded, 0)
        until(lambda: embedded.log.is_read(plan.application, [place.topic]), "a commit")
        started.assign([], tasks)
        # As if the tasks ran elsewhere now.
        write(embedded, 1)
        with closing(log.consumer(plan.application)) as consumer:
            started.thread._shared.coordinator.commit({place: CommittedOffset(consumer.end_offsets([place])[place])})
        step = [("step", b"1")]
        until(lambda: of_standby() == {"a": None, "b": step, "end": step}, "the standby has followed")
        started.assign(tasks)
        assert headers(started.thread.stores("lines")) == {"a": None, "b": step, "end": step}
        write(embedded, 2)
        until(lambda: embedded.counts().get("two") == 2, "the active task goes on")
    check(plan, embedded)
