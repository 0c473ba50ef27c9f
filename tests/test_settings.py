"""Every setting does something, or says that it does nothing; and what some of them do."""

from __future__ import annotations

import ast
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import streamkit
import streamkit_cli
from streamkit.config import SETTINGS, Config, Setting, UnknownSettingError, check
from streamkit.config.clients import KNOWN, roles_of
from streamkit.config.settings import ApplicationSettings, RegistrySettings
from streamkit.errors import StateError
from streamkit.plan.model import Plan
from streamkit.runtime.local.client import Application, StateCleaner
from streamkit.runtime.local.internal_topics import TopicsOnLog
from streamkit.runtime.local.setup import Settings, Shared, state_directory
from tests.plan.support import plan_of
from tests.runtime.fake_log import FakeLog
from tests.runtime.plans import pass_through

DECLARED = {
    name: each
    for owner in (ApplicationSettings, RegistrySettings)
    for name, each in vars(owner).items()
    if isinstance(each, Setting)
}


def names_in_code() -> set[str]:
    """The attributes of a Config that code outside the package `config` reads, and all text that may be the name of a setting."""
    root = Path(streamkit.__file__).parent
    files = [*root.rglob("*.py"), *Path(streamkit_cli.__file__).parent.rglob("*.py")]
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in files if file.parent != root / "config")
    nodes = [node for tree in trees for node in ast.walk(tree)]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    reads = [node for node in nodes if isinstance(node, ast.Attribute)]
    return texts | {node.attr for node in reads if ast.unparse(node.value).lower().endswith("config")}


def test_every_setting_is_read_or_documented_as_without_effect() -> None:
    # Within `config` other properties of Config use these.
    own = {"processing.guarantee", "topology.optimization", "default.dsl.store", "dsl.store.suppliers.class"}
    own |= {"enable.transactional.statestores", "statestore.uncommitted.max.bytes"}
    own |= {"default.interactive.query.isolation.level"}
    in_code = names_in_code()
    read = {each.name for name, each in DECLARED.items() if {name, each.name} & in_code} | own
    marked = {each.name for each in DECLARED.values() if each.no_effect}
    one_word = {each.name for each in DECLARED.values() if len(each.words) == 1}
    assert {each.name for each in DECLARED.values()} - read - marked - one_word == set()
    assert marked & read == set()
    assert len(read) > 50


def test_settings_without_effect_are_warned_of_where_they_differ_from_the_default() -> None:
    config = Config("app", {"metrics.recording.level": "DEBUG", "metrics.num.samples": 2, "poll.ms": 7})
    assert list(config.without_effect()) == ["metrics.recording.level"]
    (warning,) = config.warnings
    assert warning.startswith("metrics.recording.level has no effect: ")
    assert "Without effect: " in SETTINGS["metrics.recording.level"].description


def test_an_application_warns_at_its_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plan = pass_through(tmp_path, **{"upgrade.from": "3.9"})
    Application(plan, FakeLog({})).run(until_idle=True, stop=threading.Event())
    assert [each.getMessage() for each in caplog.records if "upgrade.from" in each.getMessage()] == list(
        plan.config.warnings
    )


@pytest.mark.parametrize("name", ["statistics.interval.ms", "consumer.enable.partition.eof", "metadata.broker.list"])
def test_names_of_librdkafka_that_could_do_nothing_are_refused(name: str) -> None:
    with pytest.raises(UnknownSettingError, match=f"{name} can't be set: "):
        check(name, "1")


def test_every_name_of_a_client_reaches_a_client() -> None:
    assert [name for name in KNOWN if not roles_of(name)] == []


# -- What settings do --------------------------------------------------------------------------------------------------


def in_memory(tmp_path: Path, settings: str) -> set[str]:
    head = f"""streamkit: 1
application: app
defaults: {{key: string, value: string}}
config: {{{settings}}}
topics: {{a: {{}}, b: {{}}, c: {{}}, d: {{}}, e: {{}}, g: {{}}, out: {{}}}}
pipelines:
"""
    pipelines = """
    t: {table: a, store: from-topic, steps: [filter: {if: value, store: filtered}, to_stream], to: out}
    b: {table: b, store: looked-up}
    f: {from: t2, steps: [join: {with: b, on: value, value: left, name: fk, store: result}, to_stream], to: out}
    t2: {table: e, store: joined}
    s: {stream: c, steps: [left_join: {with: {stream: d}, value: left, within: 1m, store: both}, group_by_key, count: counted]}
    w: {stream: c, steps: [group_by_key, window: {tumbling: 1m}, count: {store: {name: on-disk, type: persistent}}]}
    v: {table: g, store: {name: versions, versioned: 1h}, steps: [to_stream], to: out}
    """
    return {name for name, store in plan_of(tmp_path, pipelines, head).stores.items() if not store.persistent}


def test_stores_of_the_dsl_lie_where_the_settings_say(tmp_path: Path) -> None:
    assert in_memory(tmp_path, "") == set()
    found = in_memory(tmp_path, "default.dsl.store: in_memory")
    joins = {"both-this-join-store", "both-outer-other-join-store", "both-left-shared-join-store"}
    # Java makes the Materialized of `filter`, and a foreign-key join's own store, without looking at default.dsl.store.
    assert found == {"from-topic", "looked-up", "joined", "result", "counted", *joins}
    classes = (
        "dsl.store.suppliers.class: org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers"
    )
    assert in_memory(tmp_path, classes) - found == {"filtered", "fk-subscription-store"}
    assert (
        in_memory(tmp_path, "default.dsl.store: in_memory, dsl.store.suppliers.class: RocksDBDslStoreSuppliers")
        == set()
    )


def cleaner(plan: Plan, now: Callable[[], int]) -> tuple[StateCleaner, Shared]:
    directory = state_directory(plan)
    shared = Shared(plan, FakeLog({}), Settings.of(plan.config), directory, TopicsOnLog({}, {}))
    shared.elapsed = now
    return StateCleaner(shared), shared


def test_state_of_tasks_that_moved_away_is_deleted_after_the_delay(tmp_path: Path) -> None:
    times = [0]
    looks, shared = cleaner(pass_through(tmp_path, **{"state.cleanup.delay.ms": 60_000}), lambda: times[0])
    folders = [tmp_path / "app" / name for name in ("0_0", "0_1", "1_0")]
    for folder, age in zip(folders, (61, 61, 1), strict=True):
        folder.mkdir()
        (folder / "rows").touch()
        then = shared.clock() / 1000 - age
        os.utime(folder, (then, then))
    assert shared.claims.claim((0, 1), "a thread")
    looks.clean_if_due()
    assert [folder for folder in folders if not folder.exists()] == []
    times[0] = 60_000
    looks.clean_if_due()
    assert [folder.exists() for folder in folders] == [False, True, True]
    assert shared.claims.claim((1, 0), "a thread"), "the cleaner lets go of what it looked at"


def test_state_that_cannot_be_deleted_is_only_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks, shared = cleaner(pass_through(tmp_path, **{"state.cleanup.delay.ms": 0}), lambda: 0)

    def refuse() -> list[str]:
        raise StateError("the disk is gone")

    monkeypatch.setattr(shared.directory, "tasks", refuse)
    looks.clean_if_due()
    assert "state of tasks that moved away can't be deleted: the disk is gone" in caplog.text


class NamedLog(FakeLog):
    """Remembers how its consumers were opened."""

    def consumer(self, group, *, read_committed=False, role="main", client_id=""):
        self.events.append(f"{role} {client_id} {read_committed}")
        return super().consumer(group, read_committed=read_committed, role=role, client_id=client_id)


@pytest.mark.parametrize("committed", [False, True])
def test_client_id_begins_names_and_isolation_is_that_of_the_consumer(tmp_path: Path, committed: bool) -> None:
    settings = {"consumer.isolation.level": "read_committed"} if committed else {}
    log = NamedLog({})
    application = Application(pass_through(tmp_path, **{"client.id": "me"}, **settings), log)
    application.run(until_idle=True, stop=threading.Event())
    assert f"main me-StreamThread-1-consumer {committed}" in log.events


def test_isolation_is_that_of_each_role() -> None:
    config = Config("app", {"restore.consumer.isolation.level": "read_committed"})
    assert [config.read_committed(role) for role in ("main", "restore", "global")] == [False, True, False]
    assert Config("app", {"processing.guarantee": "exactly_once_v2"}).read_committed("restore")
