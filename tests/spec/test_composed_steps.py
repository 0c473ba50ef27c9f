"""Steps that stand for others: the same as their steps, with mistakes at the use and at the line of Python."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import streamkit
from streamkit import plugins
from streamkit.api.extending import (
    ComposedStep,
    Expr,
    Field,
    FieldValue,
    Flag,
    Integer,
    PipelineRef,
    StoreField,
    Text,
)
from streamkit.operators import STEPS

TEXT = """streamkit: 1
application: kinds
topics: {orders: {value: json}, more: {value: json}, kinds: {value: long}}
macros: {large: {params: {limit: integer}, steps: [{count_by: {field: value.kind, minimum: "${limit}"}}]}}
pipelines:
  kinds:
    stream: orders
    steps:
      - USE
    to: kinds
"""


class CountBy(ComposedStep[streamkit.Stream]):
    """Counts the records of each kind."""

    name = "count_by"
    main = "field"
    fields = (
        Field("field", Expr(), "What is counted.", required=True),
        Field("store", StoreField(), "The store."),
        Field("minimum", Integer(0), "The least amount."),
        Field("others", PipelineRef(many=True), "Streams that are counted too."),
    )

    def build(self, stream: streamkit.Stream, options: Mapping[str, FieldValue]) -> streamkit.Stream:
        if options["others"] is not None:
            stream = stream.merge(options["others"])
        if options["minimum"] is not None:
            stream = stream.filter(f"value.n >= {options['minimum']} and {options['field']} not in ('${{field', '')")
        return stream.group_by(options["field"], key_serde="string").count(options["store"] or "counts").to_stream()


class Wrong(ComposedStep[streamkit.Stream]):
    """Steps whose code has mistakes; `form` chooses one."""

    name = "wrong"
    main = "form"
    fields = (Field("form", Text(), "The mistake."), Field("flag", Flag(), "Not used."))

    def build(self, stream: streamkit.Stream, options: Mapping[str, FieldValue]) -> object:
        form = options["form"]
        if form == "raises":
            return stream.filter({}["missing"])
        if form == "nothing":
            return stream
        if form == "two lines":
            stream.filter("value.n > 1")
            return stream.filter("value.n > 2")
        if form == "an end":
            return stream.to("kinds")
        if form == "itself":
            return stream.step("wrong", form="itself")
        if form == "a stream":
            return stream.merge(stream)
        return stream.filter("valu > 3").fliter("value")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plugins, "load", lambda group: {"count_by": CountBy, "wrong": Wrong})
    monkeypatch.setattr(STEPS, "_added", None)
    yield
    STEPS._added = None


def line_of(text: str) -> str:
    """Return the number of the line of this file that has a text."""
    with open(__file__, encoding="utf-8") as file:
        return str(next(number for number, line in enumerate(file, 1) if text in line))


def described(use: str) -> str:
    topology = streamkit.load(TEXT.replace("USE", use))
    assert [str(each) for each in topology.problems] == []
    return topology.describe()


def test_names_are_as_if_the_steps_were_written_out():
    counted = "group_by: {key: value.kind, key_serde: string}\n      - count: {store: {name: c, caching: false}}\n      - to_stream"
    assert described("count_by: {field: value.kind, store: {name: c, caching: false}}") == described(counted)
    condition = "value.n >= 5 and value.kind not in ('$${field', '')"
    merged = f'merge: [{{stream: more}}]\n      - filter: "{condition}"\n      - {counted}'
    use = "count_by: {field: value.kind, store: {name: c, caching: false}, minimum: 5, others: [{stream: more}]}"
    assert described(use) == described(merged)


def test_a_macro_uses_it_with_a_parameter():
    assert described("large: 5") == described("count_by: {field: value.kind, minimum: 5}")


def test_the_builder_has_it_as_a_method():
    topology = streamkit.Topology("kinds")
    orders, more = topology.stream("orders", value="json"), topology.stream("more", value="json")
    counts = orders.count_by(lambda value: value["kind"], minimum=5, others=[more])
    counts.filter("value > 1").to("kinds", value="long")
    assert topology.problems == []
    with topology.driver() as driver:
        for topic in ("orders", "more"):
            driver.pipe(topic, {"kind": "tea", "n": 5})
        assert [(each.key, each.value) for each in driver.read("kinds")] == [("tea", 2)]


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("count_by", "9:9: The step 'count_by' needs 'field'; write count_by: …"),
        ("count_by: {fild: value}", "9:20: The step 'count_by' has no key 'fild'; did you mean 'field'?"),
        (
            "count_by: {field: value.k, minimum: few}",
            "9:45: 'minimum' of 'count_by' must be a whole number of at least 0, not 'few'",
        ),
        ("count_by: {field: value.k, on_error: fail}", "9:36: The step 'count_by' has no key 'on_error'; known are "),
        ("count_by: '1 +'", "9:23: not an expression: it ends too early"),
        ("count_by: {field: value.k, others: nowhere}", "9:44: There is no pipeline 'nowhere'; known are kinds (as $"),
        ("count_by: {field: value.k, others: nowhere}", "in the step 'count_by', used in <text>:9:9"),
        ("count_by: {field: valu.k}", "9:27: unknown name 'valu'; did you mean 'value'?"),
        ("count_by: {field: valu.k}", "(as ${field} in FILE:<return stream.group_by(options>:32, in the step"),
    ],
)
def test_a_mistake_of_the_use_is_at_the_use(use: str, expected: str):
    (found,) = map(str, streamkit.load(TEXT.replace("USE", use)).problems)
    if "<return" in expected:
        head, _, rest = expected.partition("<")
        text, _, tail = rest.partition(">")
        expected = f"{head}{line_of(text)}{tail}".replace("FILE", __file__)
    assert expected in found


@pytest.mark.parametrize(
    ("form", "line", "column", "message"),
    [
        ("raises", 'stream.filter({}["missing"])', 34, "KeyError: 'missing'"),
        ("two lines", 'return stream.filter("value.n > 2")', 27, "'build' of 'wrong' calls at least one step, each on"),
        ("an end", 'stream.to("kinds")', 27, "'build' of 'wrong' calls at least one step, each on"),
        ("itself", 'stream.step("wrong", form="itself")', 27, "The step 'wrong' uses itself: wrong -> wrong"),
        ("a stream", "stream.merge(stream)", 33, "This stream belongs to another topology"),
        ("names", 'stream.filter("valu > 3")', 31, "unknown name 'valu'; did you mean 'value'?"),
        ("names", 'fliter("value")', 42, "There is no step 'fliter'; did you mean 'filter'?"),
    ],
)
def test_a_mistake_of_the_step_is_at_its_line(form: str, line: str, column: int, message: str):
    found = [str(each) for each in streamkit.load(TEXT.replace("USE", f"wrong: {form}")).problems]
    (one,) = [each for each in found if message in each]
    assert one.startswith(f"{__file__}:{line_of(line)}:{column}: {message}")
    assert one.endswith("(in the step 'wrong', used in <text>:9:9)")


class Grouped(ComposedStep[streamkit.Stream]):
    """A step that gives one of two kinds."""

    name = "grouped"

    def build(
        self, stream: streamkit.Stream, options: Mapping[str, FieldValue]
    ) -> streamkit.Table | streamkit.GroupedTable:
        return stream.to_table()


class Mistyped(Grouped):
    """A step on a kind of upstream that no step has."""

    name = "mistyped"
    accepts = ("steam",)


def test_a_step_of_one_of_two_kinds_is_a_method_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plugins, "load", lambda group: {"grouped": Grouped})
    topology = streamkit.Topology("kinds")
    topology.stream("orders", value="json").grouped().to_stream().to("kinds", value="json")
    assert topology.problems == []


def test_a_step_on_an_unknown_kind_is_left_out_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(plugins, "load", lambda group: {"mistyped": Mistyped})
    (found,) = map(str, streamkit.load(TEXT.replace("USE", "mistyped")).problems)
    assert "There is no step 'mistyped'" in found
    assert "'accepts' has 'steam'; did you mean 'stream'?" in caplog.text


def test_a_step_without_steps_is_named():
    (found,) = map(str, streamkit.load(TEXT.replace("USE", "wrong: nothing")).problems)
    assert f"'build' of {'wrong'!r} calls at least one step" in found
    assert "used in <text>:9:9" in found
