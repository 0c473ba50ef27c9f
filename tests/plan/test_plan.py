"""What the frozen plan holds: old values, stores on demand, serdes, order of building, formats of describe."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from streamkit.compile.compiler import compile_sub_topology
from streamkit.operators import OPERATORS
from streamkit.operators.codegen.code_writer import ProcessorNode
from streamkit.operators.core.value_getters import FilterGetter, MapValuesGetter, StoreGetter
from streamkit.plan import load
from streamkit.plan.describe import FORMATS, describe
from streamkit.plan.model import Plan, SourceNode
from streamkit.spec.language_reference import examples_of
from tests.conformance_cases import write_example
from tests.plan.support import plan_of, problems_of

HEAD = """streamkit: 1
application: app
defaults: {key: string, value: json}
topics: {a: {}, b: {}, c: {value: string}, out: {}}
pipelines:
"""


def works(plan: Plan, kind: str) -> list[Any]:
    """Return the processors of a class, by its name."""
    nodes = [node for each in plan.sub_topologies for node in each.nodes.values()]
    found = [node.processor for node in nodes if isinstance(node, ProcessorNode)]
    return [work for work in found if type(work).__name__ == kind]


def test_a_table_has_a_store_only_where_something_needs_it(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "p: {table: a, steps: [filter: value, to_stream], to: out}", HEAD)
    assert works(plan, "TableSource")[0].store is None
    assert not works(plan, "TableFilter")[0].skip_empty
    assert not plan.stores
    plan = plan_of(tmp_path, "p: {table: a, store: s, steps: [filter: value, to_stream], to: out}", HEAD)
    assert works(plan, "TableSource")[0].send_old
    assert works(plan, "TableFilter")[0].skip_empty


def test_merged_streams_of_different_serdes_join_a_table(tmp_path: Path) -> None:
    pipelines = "t: {table: a}\nn: {stream: b}\np: {stream: c, steps: [merge: n, join: {with: t, value: left}]}"
    plan = plan_of(tmp_path, pipelines, HEAD.replace("b: {}", "b: {key: integer}"))
    (join,) = (node for node in plan.sub_topologies[0].nodes.values() if "JOIN" in node.name)
    assert isinstance(join, ProcessorNode)
    assert join.key_serde is None
    for sub_topology in plan.sub_topologies:
        compile_sub_topology(plan, sub_topology)


def test_joins_look_through_tables_without_stores(tmp_path: Path) -> None:
    pipelines = "t: {table: a, steps: [filter: value, map_values: value]}\np: {stream: b, steps: [join: {with: t, value: left}]}"
    plan = plan_of(tmp_path, pipelines, HEAD)
    getter = works(plan, "StreamTableJoin")[0].getter
    assert isinstance(getter, MapValuesGetter)
    assert isinstance(getter.parent, FilterGetter)
    assert getter.parent.parent == StoreGetter("a-STATE-STORE-0000000000")
    assert works(plan, "TableSource")[0] == type(works(plan, "TableSource")[0])("a-STATE-STORE-0000000000", False)


def test_grouping_a_table_asks_for_old_values(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "p: {table: a, steps: [map_values: value, group_by: value, count]}", HEAD)
    assert works(plan, "TableSource")[0].send_old
    assert works(plan, "TableMapValues")[0].send_old
    assert not works(plan, "TableAggregate")[0].send_old


def test_sides_of_a_left_join(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "p: {table: a, steps: [left_join: {with: {table: b}, value: left}]}", HEAD)
    left, right = works(plan, "TableTableJoin")
    assert (left.rule, left.is_left, right.rule, right.is_left) == ("left", True, "right", False)
    assert [work.send_old for work in works(plan, "TableSource")] == [True, False]


def test_nodes_below_versioned_tables_know_it(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path,
        "p: {table: a, store: {name: s, versioned: 1h}, steps: [filter: value, group_by: value, count]}",
        HEAD,
    )
    assert works(plan, "TableFilter")[0].versioned_parent
    assert works(plan, "TableGroupBy")[0].versioned_parent
    assert not works(plan, "TableFilter")[0].skip_empty
    assert plan.stores["s"].history == 3_600_000
    assert not plan.stores["s"].caching


@pytest.mark.parametrize(("kind", "drops"), [("join", True), ("left_join", False)])
def test_repartition_filters(kind: str, drops: bool, tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path, f"p: {{stream: a, steps: [select_key: value, {kind}: {{with: {{table: b}}, value: left}}]}}", HEAD
    )
    assert works(plan, "RepartitionFilter")[0].drop_null_keys is drops


def test_serdes_in_hand(tmp_path: Path) -> None:
    pipelines = """
        p:
          stream: c
          steps:
            - select_key: {key: value, key_serde: long}
            - group_by_key
            - window: {session: 1m}
            - count: s
            - to_stream
          to: {route: '"out"'}
        """
    plan = plan_of(tmp_path, pipelines, HEAD)
    sink = next(node for node in plan.sub_topologies[-1].nodes.values() if hasattr(node, "route"))
    assert sink.key_serde.spec == {"session_windowed": "long"}
    assert sink.value_serde.spec == "long"
    source = next(node for node in plan.sub_topologies[1].nodes.values() if isinstance(node, SourceNode))
    assert (source.key_serde.spec, source.value_serde.spec, source.internal) == ("long", "string", True)
    assert plan.stores["s"].key_serde.spec == "long"


def test_emission_on_close_and_caches(tmp_path: Path) -> None:
    pipelines = "\n".join(
        f"p{index}: {{stream: a, steps: [group_by_key, window: {{{window}: 1s, emit: on_close}}, count: s{index}]}}"
        for index, window in enumerate(("tumbling", "sliding", "session"))
    )
    plan = plan_of(tmp_path, pipelines, HEAD)
    assert [plan.stores[f"s{index}"].caching for index in range(3)] == [True, False, False]
    assert [index for index in range(3) if not plan.stores[f"s{index}"].options["time_ordered"]] == []


def test_source_topics_as_changelogs(tmp_path: Path) -> None:
    head = HEAD.replace("defaults:", "config: {topology.optimization: reuse.ktable.source.topics}\ndefaults:")
    plan = plan_of(tmp_path, "p: {table: a, store: s}", head)
    assert (plan.stores["s"].source_topic, plan.stores["s"].logging) == ("a", False)
    assert plan.changelog_name("s") == "a"


def test_a_stream_joined_with_itself_has_one_store(tmp_path: Path) -> None:
    head = HEAD.replace("defaults:", "config: {topology.optimization: single.store.self.join}\ndefaults:")
    plan = plan_of(tmp_path, "p: {stream: a, steps: [join: {with: {stream: a}, value: left, within: 1s}]}", head)
    assert len(plan.stores) == 1
    assert works(plan, "SelfJoin")


def test_pipelines_further_down_are_built_where_they_are_referred_to(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path,
        "p: {stream: a, steps: [peek: value, merge: q], to: out}\nq: {stream: b, steps: [filter: value]}",
        HEAD,
    )
    names = list(plan.sub_topologies[0].nodes)
    assert "KSTREAM-PEEK-0000000001" in names
    assert "KSTREAM-SOURCE-0000000002" in names
    assert "KSTREAM-MERGE-0000000004" in names


def test_plans_are_pickled_and_compare(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path, "p: {table: a, steps: [join: {with: {table: b}, on: value.x, value: left}, to_stream], to: out}", HEAD
    )
    again = pickle.loads(pickle.dumps(plan))
    assert again.sub_topologies == plan.sub_topologies
    assert again.stores == plan.stores


@pytest.mark.parametrize("form", FORMATS)
def test_formats(form: str, tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path, "p: {stream: a, steps: [group_by_key, count: s, to_stream], to: {route: str(value)}}", HEAD
    )
    text = describe(plan, form)
    assert "KTABLE-TOSTREAM-0000000002" in text
    assert "str(value)" in text
    if form == "json":
        assert json.loads(text)["stores"] == {"s": {"type": "timestamped_key_value", "changelog": "app-s-changelog"}}


def test_an_empty_topology(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text("streamkit: 1\napplication: app\npipelines: {}\n", encoding="utf-8")
    assert describe(load(path)) == "Topologies:\n "


@pytest.mark.parametrize("operator", OPERATORS)
def test_examples_build(operator: str, tmp_path: Path) -> None:
    assert load(write_example(tmp_path, examples_of(OPERATORS[operator])[0])).sub_topologies


def test_importing_operators_is_fast() -> None:
    import subprocess
    import sys

    code = "import sys; import streamkit.operators; print(sorted(m for m in sys.modules if m.split('.')[0] in HEAVY))"
    heavy = ("confluent_kafka", "plyvel", "rocksdict", "sqlite3", "pyspark", "rich", "typer")
    result = subprocess.run(
        [sys.executable, "-c", f"HEAVY = {heavy!r}; {code}"], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_one_topic_has_one_entry(tmp_path):
    """So that it has one reset policy, and one serde."""
    head = "streamkit: 1\napplication: app\ntopics:\n  a: {topic: t, reset: earliest}\n  b: {topic: t}\npipelines:\n"
    (found,) = problems_of(tmp_path, "p: {stream: a}\nq: {stream: b}", head)
    assert "'b' and 'a'" in found
    assert "are both 't' on the log; write one entry" in found
