"""Tasks and internal topics from the counts of topics that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamkit.errors import InvalidTopologyError
from streamkit.plan.model import Plan
from streamkit.plan.partitions import NewTopic, lay_out
from tests.plan.support import plan_of

HEAD = """streamkit: 1
application: app
defaults: {key: string, value: string}
topics: {a: {}, b: {}, out: {}}
pipelines:
"""

JOIN = "p: {stream: a, steps: [select_key: value, join: {with: {table: b}, value: left, name: j}], to: out}"


def changelogs(plan: Plan, counts: dict[str, int]) -> dict[str, NewTopic]:
    """The changelogs by their names without the application's."""
    return {topic.name.removeprefix("app-"): topic for topic in lay_out(plan, counts).changelogs}


def test_repartitions_take_the_largest_count_upstream(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "p: {stream: a, steps: [merge: {with: {stream: b}}, group_by: value, count: c]}", HEAD)
    layout = lay_out(plan, {"a": 2, "b": 5})
    assert [(topic.name, topic.partitions) for topic in layout.repartitions] == [("app-c-repartition", 5)]
    assert layout.tasks == tuple((group, number) for group in (0, 1) for number in range(5))
    assert layout.sources[0] == ("a", "b")
    assert [(topic.name, topic.partitions) for topic in layout.changelogs] == [("app-c-changelog", 5)]


def test_repartitions_follow_external_topics_of_their_group(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, JOIN, HEAD)
    assert [(topic.name, topic.partitions) for topic in lay_out(plan, {"a": 7, "b": 3}).repartitions] == [
        ("app-j-repartition", 3)
    ]


def test_a_repartition_below_others_takes_what_is_known_when_its_turn_comes(tmp_path: Path) -> None:
    steps = "[repartition: {name: r}, merge: {with: {stream: b}}, group_by: value, count: c]"
    sizes = []
    for number in range(16):
        head = HEAD.replace("application: app", f"application: app{number}")
        plan = plan_of(tmp_path, f"p: {{stream: a, steps: {steps}}}", head)
        sizes.append(lay_out(plan, {"a": 4, "b": 1}).partitions[f"app{number}-c-repartition"])
    # What the leader of Kafka Streams 4.4.0 makes for each application: turns follow from the hash codes of names.
    assert sizes == [1, 4, 1, 1, 4, 1, 1, 4, 1, 4, 1, 4, 4, 1, 1, 4]


def test_external_topics_of_a_group_must_agree(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "p: {stream: a, steps: [join: {with: {table: b}, value: left}], to: out}", HEAD)
    with pytest.raises(InvalidTopologyError) as caught:
        lay_out(plan, {"a": 1, "b": 2})
    assert str(caught.value) == (
        "Invalid topology: Topics not co-partitioned: [{a=1, b=2}]; put `repartition: {partitions: 2}` before the step where its "
        "records come in, or copy a to a topic with 2 partitions: adding partitions to a topic with records would separate the records of a key"
    )


def test_fixed_repartitions_must_agree_with_external_topics(tmp_path: Path) -> None:
    steps = "[repartition: {partitions: 4, name: r}, join: {with: {table: b}, value: left}]"
    plan = plan_of(tmp_path, f"p: {{stream: a, steps: {steps}, to: out}}", HEAD)
    with pytest.raises(InvalidTopologyError) as caught:
        lay_out(plan, {"a": 1, "b": 2})
    assert str(caught.value) == (
        "Invalid topology: Number of partitions [4] of repartition topic [app-r-repartition] "
        "doesn't match number of partitions [2] of the source topic; write `partitions: 2` in the step repartition, or leave it out"
    )


def test_missing_topics_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidTopologyError, match="Missing source topics \\[b\\]"):
        lay_out(plan_of(tmp_path, JOIN, HEAD), {"a": 1})


def test_patterns_read_what_matches_but_not_the_own_internal_topics(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "p: {stream: {pattern: 'x|y|app-.*'}, steps: [group_by: value, count: c]}", HEAD)
    counts = {"x": 1, "y": 4, "app-c-repartition": 9, "app-c-changelog": 9}
    layout = lay_out(plan, counts)
    assert layout.sources[0] == ("x", "y")
    assert layout.partitions["app-c-repartition"] == 4


def test_a_pattern_without_topics_is_an_error(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "p: {stream: {pattern: 'z.*'}, steps: [group_by: value, count: c]}", HEAD)
    with pytest.raises(InvalidTopologyError, match="Failed to compute number of partitions"):
        lay_out(plan, {"x": 1})


def test_configurations_of_internal_topics(tmp_path: Path) -> None:
    head = HEAD.replace("defaults:", "config: {topic.segment.bytes: 1000}\ndefaults:")
    plan = plan_of(tmp_path, "p: {stream: a, steps: [group_by: value, window: {tumbling: 1m}, count: c]}", head)
    layout = lay_out(plan, {"a": 1})
    assert layout.repartitions[0].config["cleanup.policy"] == "delete"
    assert layout.repartitions[0].config["segment.bytes"] == "1000"
    changelog = changelogs(plan, {"a": 1})["c-changelog"]
    config = changelog.config
    assert changelog.partitions == 1
    assert config["cleanup.policy"] == "compact,delete"
    assert config["retention.ms"] == str(60_000 + 86_400_000)


def test_settings_of_a_store_go_before_those_of_the_application(tmp_path: Path) -> None:
    head = HEAD.replace("defaults:", "config: {topic.segment.bytes: 1000, topic.retention.ms: 7}\ndefaults:")
    store = "store: {name: %s, config: {%s}}"
    plan = plan_of(
        tmp_path,
        "p: {stream: a, steps: [group_by_key]}\n"
        f"q: {{from: p, steps: [window: {{tumbling: 1m}}, count: {{{store % ('w', 'segment.bytes: 5')}}}]}}\n"
        f"r: {{from: p, steps: [window: {{tumbling: 1m}}, count: {{{store % ('s', 'retention.ms: 9')}}}]}}\n"
        f"s: {{from: p, steps: [count: {{store: {{config: {{cleanup.policy: [compact, delete]}}}}}}]}}",
        head,
    )
    topics = {name: topic.config for name, topic in changelogs(plan, {"a": 1}).items()}
    assert topics["w-changelog"]["segment.bytes"] == "5"
    assert topics["w-changelog"]["retention.ms"] == str(60_000 + 86_400_000)
    assert topics["s-changelog"]["segment.bytes"] == "1000"
    assert topics["s-changelog"]["retention.ms"] == "9"
    nameless = next(config for name, config in topics.items() if "STATE-STORE" in name)
    assert nameless["cleanup.policy"] == "compact,delete"


def test_changelogs_of_stream_joins_and_suppress(tmp_path: Path) -> None:
    join = "join: {with: q, value: left, within: 1s, grace: 1s, %s}"
    plan = plan_of(
        tmp_path,
        "q: {stream: b}\n"
        f"p: {{stream: a, steps: [{join % 'store: {name: off, logging: false}'}]}}\n"
        f"r: {{from: p, steps: [left_{join % 'store: {name: on, config: {cleanup.policy: compact, segment.ms: 5}}'}]}}\n"
        f"s: {{from: p, steps: [outer_{join % 'store: {logging: false}, this_store: {name: own, type: in_memory}'}]}}\n"
        "t: {from: p, steps: [group_by_key, count: c, suppress: {until: 5s, name: quiet, logging: false}]}\n"
        "u: {from: p, steps: [group_by_key, count: d, suppress: {until: 5s, name: kept, config: {segment.ms: 5}}]}",
        HEAD,
    )
    topics = {name: topic.config for name, topic in changelogs(plan, {"a": 1, "b": 1}).items()}
    assert set(topics) == {
        f"{name}-changelog"
        for name in (
            "on-this-join-store",
            "on-outer-other-join-store",
            "on-left-shared-join-store",
            "own",  # A supplier's store is logged even so, as in Java.
            "c",
            "d",
            "kept-store",
        )
    }
    kept = str(2_000 + 1_000 + 86_400_000)
    side = {"cleanup.policy": "delete", "message.timestamp.type": "CreateTime", "retention.ms": kept, "segment.ms": "5"}
    assert topics["on-this-join-store-changelog"] == side
    assert topics["on-left-shared-join-store-changelog"]["segment.ms"] == "5"
    assert "retention.ms" not in topics["on-left-shared-join-store-changelog"]
    assert topics["own-changelog"]["cleanup.policy"] == "compact,delete"
    assert topics["own-changelog"]["retention.ms"] == kept
    assert topics["kept-store-changelog"] == {
        "cleanup.policy": "compact",
        "message.timestamp.type": "CreateTime",
        "segment.ms": "5",
    }
    assert not plan.stores["own-outer-shared-join-store"].persistent
    assert plan.stores["on-this-join-store"].persistent


def test_global_tables_make_no_tasks(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "g: {global_table: b}\np: {stream: a, to: out}", HEAD)
    assert lay_out(plan, {"a": 2, "b": 8}).tasks == ((1, 0), (1, 1))
