"""Fields that no record can have are found by `validate`, through steps as far as types are known, and never wrongly."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from streamkit.errors import TopologyError
from streamkit.plan import load
from streamkit.plan.model import Plan

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "user", "type": {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}},
        {"name": "amount", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "article", "type": "string"}]}}},
        {"name": "tags", "type": {"type": "map", "values": "User"}},
    ],
}  # fmt: skip
EVENTS = "  events: {value: {protobuf: event.proto}}\n"
HEAD = """streamkit: 1
application: app
topics:
  orders: {value: {avro: order.avsc}}
  events: {value: {protobuf: event.proto}}
  users: {value: {json_schema: user.json}}
  open: {value: {json_schema: open.json}}
  rows: {value: {csv: [id, name]}}
  plain: {value: json}
  out: {value: json}
"""
STRING = '{"type": "string"}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "event.proto").write_text(
        'syntax = "proto3"; message Event { string kind = 1; optional Event cause = 2; }'
    )
    closed = f'{{"type": "object", "title": "User", "properties": {{"name": {STRING}}}, "additionalProperties": false}}'
    (tmp_path / "user.json").write_text(closed)
    (tmp_path / "open.json").write_text(f'{{"type": "object", "properties": {{"name": {STRING}}}}}')
    (tmp_path / "mine.py").write_text("def change(key, value):\n    value['extra'] = 1\n    return value\n")
    return tmp_path


def plan_of(folder: Path, pipelines: str, head: str = HEAD) -> Plan:
    if "events" not in pipelines:
        # Where nothing needs it, it would only start the compiler of Protobuf.
        head = head.replace(EVENTS, "")
    (folder / "app.yaml").write_text(f"{head}pipelines:\n{pipelines}")
    return load(folder / "app.yaml", env={})


def stream(source: str, steps: str) -> str:
    """A pipeline of steps that stand behind each other with semicolons."""
    return f"  p:\n    {source}\n    steps:\n" + "".join(f"      - {step.strip()}\n" for step in steps.split(";"))


def found(folder: Path, pipelines: str, head: str = HEAD) -> list[str]:
    """The message of each problem; its place is that of the field that it names."""
    with pytest.raises(TopologyError) as failed:
        plan_of(folder, pipelines, head)
    lines = (folder / "app.yaml").read_text().split("\n")
    for each in failed.value.problems:
        name = each.message.split("has no field '")[1].split("'")[0]
        assert lines[each.position.line - 1][each.position.column - 1 :].lstrip("'\"").startswith(name)
    return [each.message for each in failed.value.problems]


WRONG = [
    ("stream: orders", "filter: value.usr == 'x'", "Order has no field 'usr'; did you mean 'user'?"),
    ("stream: orders", "filter: value.user.nme", "User has no field 'nme'; did you mean 'name'?"),
    ("stream: orders", "filter: value['usr'] == 1", "Order has no field 'usr'; did you mean 'user'?"),
    ("stream: orders", "filter: value.id.x", "text has no field 'x'"),
    ("stream: orders", "filter: value.lines.article", "a list has no field 'article'"),
    ("stream: orders", "filter: value.lines[0].artcle", "Line has no field 'artcle'; did you mean 'article'?"),
    ("stream: orders", "filter: any(l.artcle for l in value.lines)", "Line has no field 'artcle'; did you mean 'article'?"),
    ("stream: orders", "filter: value.tags.anybody.nme", "User has no field 'nme'; did you mean 'name'?"),
    ("stream: orders", "filter: '[u.nme for u in value.tags.values()]'", "User has no field 'nme'; did you mean 'name'?"),
    ("stream: orders", "filter: value.get('user').nme", "User has no field 'nme'; did you mean 'name'?"),
    ("stream: orders", "filter: len(value.usr) > 1", "Order has no field 'usr'; did you mean 'user'?"),
    ("stream: orders", "peek: \"f'{value.usr}'\"", "Order has no field 'usr'; did you mean 'user'?"),
    ("stream: orders", "set_headers: {headers: {who: value.usr}}", "Order has no field 'usr'; did you mean 'user'?"),
    ("stream: orders", "branch: {when: {b: value.usr}}", "Order has no field 'usr'; did you mean 'user'?"),
    ("stream: orders", "select_key: value.xyzzy", "Order has no field 'xyzzy'; it has id, user, amount, note, lines, tags"),
    ("stream: events", "filter: value.cause.cause.knd", "Event has no field 'knd'; did you mean 'kind'?"),
    ("stream: users", "filter: value.nme", "User has no field 'nme'; did you mean 'name'?"),
    ("stream: rows", "filter: value.nme", "the CSV row has no field 'nme'; did you mean 'name'?"),
    ("stream: [orders, users]", "filter: value.nbme", "Order or User has no field 'nbme'; did you mean 'name'?"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "step", "problem"), WRONG)
def test_a_misspelt_field(folder: Path, source: str, step: str, problem: str) -> None:
    assert found(folder, stream(source, step)) == [problem]


@pytest.mark.parametrize(
    ("step", "word"),
    [
        ("flat_map_values: 3", "'values' is a whole number"),
        ("flat_map_values: 3 + 4 * 5", "'values' is a whole number"),
        ("flat_map_values: value.amount", "'values' is a whole number"),
        ("flat_map: {records: value.id == key}", "'records' is a boolean"),
    ],
)
def test_a_step_of_many_values_takes_no_number(folder: Path, step: str, word: str) -> None:
    with pytest.raises(TopologyError, match=f"{word}; expected a list, or another value with items"):
        plan_of(folder, stream("stream: orders", step))


THROUGH = [
    "filter: value.amount > 1",
    "peek: key",
    "repartition",
    "set_headers: {headers: {a: key}}",
    "select_key: value.user",
    "map: {key: value.user}",
    "to_table; to_stream",
    "group_by_key; reduce: value; to_stream",
    "group_by: value.id; window: {tumbling: 5s}; reduce: aggregate; to_stream",
    "to_table; filter: value.amount; suppress: {until: 5s}; to_stream",
    "merge: {with: {stream: orders}}",
]


@pytest.mark.parametrize("steps", THROUGH)
def test_types_go_through_steps(folder: Path, steps: str) -> None:
    assert found(folder, stream("stream: orders", f"{steps}; filter: value.usr")) == [
        "Order has no field 'usr'; did you mean 'user'?"
    ]


MADE = [
    "map_values: \"{'who': value.user, 'n': 1}\"",
    "map_values: \"merge({'who': value.user}, {'n': 1})\"",
    "map_values: \"{**{'who': value.user}, 'n': 1}\"",
    "map_values: \"{'who': value.user} if value.amount else {'who': value.user, 'n': 2}\"",
    "map: {value: \"{'who': value.user}\"}",
    "flat_map_values: \"[{'who': value.user}, {'who': None}]\"",
    "flat_map_values: \"[{'who': value.user} for line in value.lines]\"",
    "group_by_key; aggregate: {initial: \"{'who': None}\", add: \"{'who': value.user, 'n': 0}\"}; to_stream",
    "left_join: {with: t, value: \"{'who': left.user}\"}",
]


@pytest.mark.parametrize("steps", MADE)
def test_objects_that_expressions_make(folder: Path, steps: str) -> None:
    table = "  t: {table: users}\n" if "with: t" in steps else ""
    both = found(folder, table + stream("stream: orders", f"{steps}; filter: value.how or value.who.nme"))
    assert both == [
        "the object has no field 'how'; did you mean 'who'?",
        "User has no field 'nme'; did you mean 'name'?",
    ]


def test_joins_windows_and_ends(folder: Path) -> None:
    assert found(
        folder,
        "  t: {table: users}\n"
        "  p: {stream: orders, steps: [join: {with: t, value: 'left.usr or right.nme'}]}\n"
        "  f: {stream: orders, steps: [to_table]}\n"
        "  k: {from: f, steps: [join: {with: t, on: value.usr, value: left.idd}]}\n"
        "  w: {stream: orders, steps: [group_by: value.id, window: {session: 1s}, count: c, to_stream, select_key: key.kye]}\n"
        "  c: {from: t, steps: [to_stream, group_by: {key: value.name, name: names}]}\n"
        "  g: {stream: orders, steps: [group_by: {key: value.id, name: g},"
        " cogroup: {add: value.usr, inputs: [{from: c, add: value.nme}]}, aggregate: {initial: '0'}]}\n"
        "  e: {stream: orders, to: {topic: out, partition: value.usr}}\n"
        "  r: {stream: orders, to: {route: value.idd}}\n",
    ) == [
        "Order has no field 'usr'; did you mean 'user'?",
        "User has no field 'nme'; did you mean 'name'?",
        "Order has no field 'usr'; did you mean 'user'?",
        "Order has no field 'idd'; did you mean 'id'?",
        "a windowed key has no field 'kye'; did you mean 'key'?",
        "Order has no field 'usr'; did you mean 'user'?",
        "User has no field 'nme'; did you mean 'name'?",
        "Order has no field 'usr'; did you mean 'user'?",
        "Order has no field 'idd'; did you mean 'id'?",
    ]


def test_timestamps_of_topics(folder: Path) -> None:
    head = HEAD.replace("order.avsc}}", "order.avsc}, timestamp: value.amuont}")
    assert found(folder, "  p: {stream: orders, to: out}\n", head) == [
        "Order has no field 'amuont'; did you mean 'amount'?"
    ]


def test_places_in_texts_of_several_lines(folder: Path) -> None:
    text = "  p:\n    stream: orders\n    steps:\n      - filter: |\n          value.id and\n            value.usr\n"
    assert found(folder, text) == ["Order has no field 'usr'; did you mean 'user'?"]


RIGHT = [
    "filter: value.user.name and value.lines[0].article and value.tags.anybody.name and value.note.upper()",
    "filter: value.usr if 'usr' in value else value.user",
    "filter: value.get('usr')",
    "map_values: 'value.user or {\"nme\": 1}'; filter: value.nme",
    "map_values: 'merge(value, {\"more\": 1})'; filter: value.more and value.user",
    "map_values: 'merge(value, json)'; filter: value.x".replace("json", "value.tags"),
    "map_values: '{}'; filter: value.x",
    "map_values: '{value.id: 1}'; filter: value.x",
    "map_values: '{\"a\": 1, **value.tags}'; filter: value.x",
    "map_values: '[value][0]'; filter: value.user",
    "peek: {do: {call: mine:change}}; filter: value.extra",
    "map_values: {call: mine:change}; filter: value.extra",
    "process_values: {call: mine:change}; filter: value.extra",
    "flat_map: '[(key, {\"a\": 1})]'; filter: value.b",
    "map_values: '[value for value in value.lines]'; filter: value[0].article",
    "filter: any(value.article for value in value.lines)",
    "map_values: {value: '{\"id\": value.id}', value_serde: {avro: order.avsc}}; repartition; filter: value.note is None",
    "merge: {with: {stream: plain}}; filter: value.whatever",
    "outer_join: {with: {stream: users}, within: 1s, value: 'left or right'}; filter: value.name and value.user",
    "group_by_key; aggregate: {initial: '{}', add: 'merge(aggregate, {value.id: 1})'}; to_stream; filter: value.x",
    'group_by_key; aggregate: {initial: \'{"n": 0}\', add: \'merge(aggregate, {"m": aggregate.get("m")})\'}; to_stream; filter: value.m',
]


@pytest.mark.parametrize("steps", RIGHT)
def test_nothing_is_found_that_may_be_right(folder: Path, steps: str) -> None:
    plan = plan_of(folder, stream("stream: orders", steps))
    assert pickle.loads(pickle.dumps(plan)).sub_topologies == plan.sub_topologies


def test_open_objects_may_have_any_field(folder: Path) -> None:
    plan_of(
        folder,
        "  p: {stream: open, steps: [filter: value.nme.whatever]}\n  q: {stream: plain, steps: [filter: value.a.b]}\n",
    )
