"""Topologies that Python code builds: the same as in YAML, with mistakes at the lines of the code."""

from __future__ import annotations

import inspect
import pickle
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import streamkit
from streamkit.plan import build
from streamkit.plan.describe import describe
from streamkit.runtime.driver import Driver, run_lines
from streamkit.spec import load_text
from streamkit.spec.recorded_calls import passed_names
from tests.api.translated import translate
from tests.cli.support import streamkit as streamkit_command
from tests.conformance_cases import as_json, assert_same_records, assert_same_stores, every_case, parse


@every_case
def test_each_conformance_case_is_the_same_through_the_builder(case: Path):
    topology = translate(case / "topology.yaml")
    assert [str(each) for each in topology.problems] == []
    assert describe(topology.plan, "text").rstrip("\n") == (case / "describe.txt").read_text(encoding="utf-8").rstrip(
        "\n"
    )
    if not [call for call in topology._make()[0].calls if call.ref.target is not None]:
        # Beside the modules and schemas that it names.
        again = load_text(topology.to_yaml(), str(case / "again.yaml"), environment={})
        assert describe(build(again, env={}), "text") == describe(topology.plan, "text")
    else:
        with pytest.raises(streamkit.TopologyError, match="can't be written in YAML"):
            topology.to_yaml()
    with Driver(topology.plan) as driver, (case / "input.jsonl").open(encoding="utf-8") as lines:
        records = list(run_lines(driver, lines))
        assert_same_records(parse((case / "expected.jsonl").read_text(encoding="utf-8")), as_json(records))
        assert_same_stores(case, as_json(driver.stores()))


LINE = 0


def problems(topology: streamkit.Topology) -> list[str]:
    return [f"{each.position.line - LINE}:{each.position.column}: {each.message}" for each in topology.problems]


def test_all_mistakes_are_at_the_lines_of_the_code():
    topology = streamkit.Topology("wrong")
    global LINE
    LINE = inspect.currentframe().f_lineno
    stream = topology.stream("in").filter("valu > 3").fliter("x")
    (
        stream.map_values(lambda one, two, three: one, nam="x")
        .to(
            "out",
            partition="1 + vall",
        )
    )  # fmt: skip
    topology.stream("in", value="long").branch({"large": "value > 3", "small": "vlue"})
    topology.table("in", value="string")
    assert [each.partition("; ")[0].partition(" (there")[0] for each in problems(topology)] == [
        "1:44: unknown name 'valu'",
        "1:55: There is no step 'fliter'",
        "3:27: lambda takes one, two, three",
        "3:60: The step 'map_values' has no key 'nam'",
        "6:28: unknown name 'vall'",
        "9:81: unknown name 'vlue'",
        f"10:32: 'value' of 'in' in 'topics' already has another value: {__file__}:{LINE + 1}:23",
    ]
    assert "did you mean 'filter'?" in problems(topology)[1]
    with pytest.raises(streamkit.TopologyError, match="nam"):
        topology.driver()


def test_meaning_is_checked_as_in_files():
    topology = streamkit.Topology("wrong")
    topology.stream("in").count("counts")
    (found,) = topology.problems
    assert found.position.line == inspect.currentframe().f_lineno - 2
    assert "grouped" in found.message


def test_functions_take_what_their_parameters_name():
    topology = streamkit.Topology("functions")
    prefix = "p-"

    def described(timestamp: int, value: dict, key: str) -> str:
        return f"{prefix}{key}-{value['n']}-{timestamp}"

    for step in range(2):  # lambdas of one line capture different values
        topology.stream("in", value="json").map_values(lambda v, step=step: {"n": v["n"] + step}).map_values(
            described, value_serde="string"
        ).to("out", value="string")
    grouped = topology.stream("more", value="long").group_by_key()
    table = grouped.aggregate(
        lambda: 0, add=lambda aggregate, value: aggregate + value, value_serde="long", store="sums"
    )
    table.to_stream().filter(lambda key, value: value > 2).to("sums", value="long")
    with topology.driver() as driver:
        driver.pipe("in", {"n": 1}, key="k", timestamp=7)
        assert sorted(record.value for record in driver.read("out")) == ["p-k-1-7", "p-k-2-7"]
        for value in (1, 2, 3):
            driver.pipe("more", value, key="a")
        assert [record.value for record in driver.read("sums")] == [3, 6]


def test_a_function_whose_parameters_do_not_fit_is_refused():
    assert passed_names(str.upper, ("key", "value"), ("key", "value")) == ("value",)
    assert passed_names(lambda a, b: 0, ("key", "value"), ("key", "value")) == ("key", "value")
    assert passed_names(lambda *rest: 0, ("key", "value"), ("key", "value")) == ("key", "value")
    assert "needs the argument 'x' by name" in passed_names(lambda v, *, x: 0, ("value",), ("value",))
    assert "takes none" in passed_names(lambda: 0, ("value",), ("value",)).replace("takes nothing", "takes none")


def test_streams_fork_in_the_order_of_the_calls():
    topology = streamkit.Topology("fork")
    numbers = topology.stream("in", value="long").filter("value > 0")
    even = numbers.filter("value % 2 == 0")
    odd = numbers.filter("value % 2 == 1")
    odd.to("odd", value="long")
    even.to("even", value="long")
    names = re.findall(r"(?:Processor|Sink): (\S+)", topology.describe())
    assert sorted(names, key=lambda each: each[-2:]) == [
        *("KSTREAM-FILTER-0000000001", "KSTREAM-FILTER-0000000002", "KSTREAM-FILTER-0000000003"),
        *("KSTREAM-SINK-0000000004", "KSTREAM-SINK-0000000005"),
    ]


def test_processors_are_decorated_functions_with_stores_and_timers():
    topology = streamkit.Topology("decorated", environment={})

    @topology.processor(stores={"seen": {"key": "string", "value": "long"}})
    def first_only(record: streamkit.Record, context: streamkit.ProcessorContext) -> Iterator[streamkit.Record]:
        """Lets the first record of each key pass."""
        if context.store("seen").put_if_absent(record.key, record.timestamp) is None:
            yield record

    @first_only.every("10s", "wall_clock")
    def forget(timestamp: int, context: streamkit.ProcessorContext) -> None:
        for key, _ in list(context.store("seen").all()):
            context.store("seen").delete(key)

    topology.stream("in", value="long").process(first_only, value_serde="long").to("out", value="long")
    with topology.driver() as driver:
        for number in range(2):
            driver.pipe("in", number, key="a")
        driver.advance_wall_clock("10s")
        driver.pipe("in", 5, key="a")
        assert [record.value for record in driver.read("out")] == [0, 5]


def test_a_file_is_continued_in_python(tmp_path: Path):
    text = (
        "streamkit: 1\napplication: a\ntopics: {in: {value: long}, out: {value: long}}\n"
        "macros:\n  above: {params: {limit: integer}, steps: [{filter: 'value > ${limit}'}]}\n"
        "pipelines:\n  first: {stream: in, steps: [{filter: value > 1}], to: out}\n"
    )
    (tmp_path / "first.yaml").write_text(text, encoding="utf-8")
    topology = streamkit.load(tmp_path / "first.yaml")
    topology.stream("in").above(limit=5).to("large", value="long")
    assert topology.problems == []
    with topology.driver() as driver:
        driver.pipe("in", 3)
        driver.pipe("in", 7)
        assert len(driver.read("out")) == 2
        assert [record.value for record in driver.read("large")] == [7]


def test_plans_with_lambdas_are_pickled_by_value():
    topology = streamkit.Topology("pickled")
    limit = 3
    topology.stream("in", value="long").filter(lambda v: v > limit).to("out", value="long")
    again = pickle.loads(pickle.dumps(topology.plan))
    with streamkit.TopologyDriver(again) as driver:
        driver.pipe("in", 3)
        driver.pipe("in", 4)
        assert [record.value for record in driver.read("out")] == [4]


def of_module(value: dict) -> bool:
    return value["amount"] > 100


def test_a_topology_without_lambdas_is_written_as_yaml():
    topology = streamkit.Topology("written", config={"num.stream.threads": 2})
    stream = topology.stream("in", value="json").filter(of_module).filter("value.kind == 'on'").group_by("value.user")
    stream.window(tumbling="1h").count("counts").to_stream(key="key.key").to("yes", value="long")
    assert (
        topology.to_yaml()
        == """\
streamkit: 1
application: written
config:
  num.stream.threads: 2
topics:
  in:
    value: json
  'yes':
    value: long
functions:
  of_module:
    call: tests.api.test_builder:of_module
pipelines:
  in:
    stream: in
    steps:
    - filter: of_module(value)
    - filter: value.kind == 'on'
    - group_by: value.user
    - window:
        tumbling: 1h
    - count: counts
    - to_stream: key.key
    to:
      topic: 'yes'
"""
    )
    topology.stream("in").filter(lambda v: v).to("yes")
    with pytest.raises(streamkit.TopologyError, match=r"test_builder.py:\d+:34: lambda can't be written in YAML"):
        topology.to_yaml()


def test_functions_that_capture_what_cannot_be_pickled_are_refused_at_their_lines():
    topology = streamkit.Topology("captures")
    lock = threading.Lock()
    topology.stream("in").filter(lambda v: v and lock).to("out")
    with pytest.raises(
        streamkit.TopologyError, match=r":34: 'if' of 'filter': <lambda>, which captures lock, can't be sent"
    ):
        topology.submit("local[1]", {"in": "in.jsonl"}, {"out": "out"})


def test_tried_records_are_a_table(tmp_path: Path):
    topology = streamkit.Topology("tried")
    topology.stream("in", value="json").filter("value.n > 1").to("out", value="json")
    assert repr(topology.try_([{"topic": "in", "value": {"n": 1}}])) == "no records"
    (tmp_path / "in.jsonl").write_text('{"topic": "in", "key": "<k>", "value": {"n": 2}, "timestamp": 5}\n' * 2)
    found = topology.try_(tmp_path / "in.jsonl")
    assert found[1] == {"topic": "out", "key": "<k>", "value": {"n": 2}, "timestamp": 5}
    assert "<td>out</td><td>&lt;k&gt;</td><td>{&quot;n&quot;: 2}</td><td>5</td>" in found._repr_html_()
    long = repr(topology.try_([{"topic": "in", "value": {"n": 2, "text": "x" * 80}}]))
    assert all(len(line) < 100 for line in long.splitlines())
    with pytest.raises(streamkit.SerdeError, match=r"^record 2: "):
        topology.try_([{"topic": "in", "value": {"n": 2}}, {"topic": "in", "valu": 1}])
    with pytest.raises(streamkit.UsageError, match="No such file"):
        topology.try_(tmp_path / "missing.jsonl")


def test_a_topology_in_python_runs_on_the_log(tmp_path: Path):
    topology = streamkit.Topology("runs", config={"bootstrap.servers": "embedded", "state.dir": str(tmp_path)})
    numbers = topology.stream("in", value="long", partitions=1)
    numbers.filter("value > 1").to("out", value="long", partitions=1)
    # Other programs write and read by the same topology as a file.
    (tmp_path / "runs.yaml").write_text(topology.to_yaml(), encoding="utf-8")
    assert streamkit_command("produce", tmp_path / "runs.yaml", "in", stdin='{"value": 1}\n{"value": 2}\n').code == 0
    seen = []
    numbers.for_each(lambda key, value: seen.append(value))
    topology.run(until_idle=True)
    assert seen == [1, 2]
    done = streamkit_command("consume", tmp_path / "runs.yaml", "out", "--until-idle")
    assert '"value":2' in done.out
