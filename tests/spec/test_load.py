"""What a good file becomes."""

from __future__ import annotations

import pickle

import pytest

from streamkit import spec
from streamkit.errors import TopologyError, UsageError
from streamkit.graph.physical_topology import OnError
from tests.spec.helpers import CONFORMANCE, HEAD, LINES, TOPOLOGIES, pipeline, problems


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.parent.name)
def test_conformance_topologies_load_and_pickle(path):
    model = spec.load(path)
    assert model.application == path.parent.name
    pickle.dumps((model.topics, model.pipelines, model.functions, model.stores))


def test_model_of_word_count():
    model = spec.load(CONFORMANCE / "word-count" / "topology.yaml")
    words = model.pipelines["words"]
    assert words.source.topics == ("lines",)
    assert [step.operator for step in words.steps] == ["flat_map_values", "group_by", "count", "to_stream"]
    assert words.steps[0].options["values"].text == "value.lower().split()"
    assert words.steps[2].options["store"].name == "counts"
    assert words.to.topic == "word-counts"
    assert model.topics["lines"].key.spec == "string"
    assert (words.steps[0].position.line, words.steps[0].position.column) == (13, 9)


def load(text, **environment):
    return spec.load_text(text, "f.yaml", environment=environment)


def test_forms_of_a_step():
    model = load(pipeline("filter: {call: m:f}", "to_table:", "to_stream: {name: null}", "print: hi"))
    steps = model.pipelines["p"].steps
    assert str(steps[0].options["if"].text) == "m:f"
    assert [step.options for step in steps[1:3]] == [{}, {}]
    assert steps[3].options == {"label": "hi"}


def test_on_error_in_every_step():
    text = pipeline("filter: {if: value, on_error: continue}", "peek: {do: value, on_error: {dead_letter: out}}")
    steps = load(text).pipelines["p"].steps
    assert steps[0].on_error == OnError("continue")
    assert steps[1].on_error == OnError("dead_letter", "out")


def test_core_schema_and_anchors():
    text = f"{LINES}stores:\n  a: &w {{type: window, window_size: 5m, retention: 1h, caching: True}}\n  b: *w\ndescription: on\n"
    model = load(text)
    assert model.description == "on"
    assert model.stores["b"].window_size == 300_000
    assert model.stores["b"].caching is True


def test_variables_are_replaced_and_a_doubled_dollar_stays():
    text = (
        f"{HEAD}description: $${{X}} ${{A}} ${{B:-b c}}\ntopics: {{t: {{partitions: '${{N:-2}}', topic: '${{T}}'}}}}\n"
    )
    model = load(text, A="${X}", T="phys", N="0x10")
    assert model.description == "${X} ${X} b c"
    assert model.topics["t"].partitions == 16
    assert problems(f"{HEAD}description: ${{A}}", A="5") == [
        "3:14: 'description' must be text, not the number 5 (write \"${A}\" for the text)"
    ]


def test_bom_and_line_ends(tmp_path):
    path = tmp_path / "t.yaml"
    path.write_bytes(b"\xef\xbb\xbfstreamkit: 1\r\napplication: a\r\nnope: 1\r\n")
    with pytest.raises(TopologyError) as caught:
        spec.load(path)
    assert str(caught.value).startswith(f"{path}:3:1: ")


def test_missing_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        spec.load(tmp_path / "none.yaml")
