"""Each rule finds its own bad example and nothing in its good one; comments silence it."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamkit import lint, plan, spec
from streamkit.lint import RULES
from streamkit.spec.language_reference import examples_of_rules

ROOT = Path(__file__).parents[2]
EXAMPLES = examples_of_rules()


SCORING = """
def score(key, value):
    return MODEL.predict([[value]])[0]

def scores(keys, values):
    return list(MODEL.predict(values))

def look_up(value):
    return value
"""


def findings(text: str, folder: Path) -> list[lint.Finding]:
    model = spec.load_text(text, str(folder / "topology.yaml"), environment={})
    return lint.check(model, plan.build(model, env={}))


def codes(text: str, folder: Path) -> list[str]:
    return [finding.code for finding in findings(text, folder)]


@pytest.mark.parametrize("code", RULES)
def test_the_bad_example_breaks_the_rule_and_no_other(code: str, tmp_path: Path) -> None:
    (tmp_path / "scoring.py").write_text(SCORING)
    assert set(codes(EXAMPLES[code]["bad"], tmp_path)) == {code}


@pytest.mark.parametrize("code", RULES)
def test_the_good_example_breaks_none(code: str, tmp_path: Path) -> None:
    (tmp_path / "scoring.py").write_text(SCORING)
    (tmp_path / "seen.py").write_text("class Once:\n    def process(self, record): ...\n")
    assert codes(EXAMPLES[code]["good"], tmp_path) == []


def test_what_is_final_in_any_case_needs_no_word_about_caches(tmp_path: Path) -> None:
    text = EXAMPLES["no-grace"]["good"].replace("config: {statestore.cache.max.bytes: 0}\n", "")
    assert codes(text, tmp_path) == ["implicit-cache"]
    suppressed = text.replace("count: counts, ", "count: counts, suppress: {until: window_closes, name: once}, ")
    assert codes(suppressed, tmp_path) == []
    closed = text.replace("grace: 10s}", "grace: 10s, emit: on_close}")
    assert codes(closed, tmp_path) == []
    assert (
        codes(closed.replace("count: counts", "count: {store: {name: counts, segment_interval: 1m}}"), tmp_path) == []
    )


JOINED = """\
streamkit: 1
application: example
config: {statestore.cache.max.bytes: 0}
topics: {in: {value: string}, more: {value: string}, out: {value: string}}
pipelines:
  words: {stream: in, steps: [select_key: value, repartition: {name: words, value_serde: string}]}
  joined:
    stream: more
    steps: [join: {with: words, within: WITHIN, grace: 1m, value: left + right, value_serde: string, store: {name: both}}]
    to: out
"""


@pytest.mark.parametrize(("within", "expected"), [("30s", []), ("31s", ["short-grace"])])
def test_a_join_needs_a_grace_where_one_side_is_repartitioned(within: str, expected: list[str], tmp_path: Path) -> None:
    assert codes(JOINED.replace("WITHIN", within), tmp_path) == expected
    direct = JOINED.replace("select_key: value, repartition: {name: words, value_serde: string}", "filter: value != ''")
    assert codes(direct.replace("WITHIN", within), tmp_path) == []


@pytest.mark.parametrize("window", ["hopping: 5m, advance: 1m", "sliding: 5m", "session: 5m"])
def test_every_kind_of_window_needs_a_grace_behind_a_repartition(window: str, tmp_path: Path) -> None:
    text = EXAMPLES["short-grace"]["bad"].replace("tumbling: 5m", window)
    if window.startswith("session"):
        text = text.replace("{windowed: string, size: 5m}", "{session_windowed: string}")
    assert codes(text, tmp_path) == ["short-grace"]
    assert codes(text.replace("grace: 10s", "grace: 5m"), tmp_path) == []
    assert codes(text.replace("group_by: {key: value, name: words}", "group_by_key"), tmp_path) == []
    assert codes(text.replace("in: {value: string}", "in: {value: string, partitions: 1}"), tmp_path) == []


def test_a_store_is_found_once_where_it_is_made(tmp_path: Path) -> None:
    text = (
        "streamkit: 1\napplication: example\ntopics: {in: {value: string}, more: {value: string}, out: {value: string}}\n"
        "pipelines:\n  rows: {table: in}\n  joined:\n    stream: more\n"
        "    steps: [join: {with: rows, value: left + right, value_serde: string}]\n    to: out\n"
    )
    assert codes(text, tmp_path) == ["unnamed-state"]


NAMELESS = """\
streamkit: 1
application: example
topics: {in: {}, more: {}}
pipelines:
  rows: {table: more, store: rows}
  p:
    ORIGIN
    steps: [STEPS]
"""


@pytest.mark.parametrize(
    ("origin", "steps", "options"),
    [
        ("stream: in", "group_by: value.a, count: {OPTIONS}", {"store": "a"}),
        ("stream: in", "select_key: value.a, to_table: {OPTIONS}", {"name": "a"}),
        ("stream: in", "select_key: value.a, deduplicate: {by: key, within: 5m, OPTIONS}", {"store": "a", "name": "a"}),
        ("stream: in", "select_key: value.a, join: {with: rows, value: left, OPTIONS}", {"name": "a"}),
        ("stream: in", "join: {with: {stream: in}, value: left, within: 5m, OPTIONS}", {"store": "a"}),
        ("table: in", "join: {with: rows, on: value.a, value: left, store: a, OPTIONS}", {"name": "a"}),
    ],
)
def test_the_options_of_the_message_name_all_state(
    origin: str, steps: str, options: dict[str, str], tmp_path: Path
) -> None:
    text = NAMELESS.replace("ORIGIN", origin.replace("table: in", "table: in\n    store: in")).replace("STEPS", steps)
    found = [each for each in findings(text.replace("OPTIONS", ""), tmp_path) if each.code == "unnamed-state"]
    assert [each.message.partition("; give it ")[2] for each in found] == [" and ".join(map(repr, options))]
    written = [f"{name}: {value}" for name, value in options.items()]
    assert "unnamed-state" not in codes(text.replace("OPTIONS", ", ".join(written)), tmp_path)


def test_a_topic_of_dead_letters_is_used(tmp_path: Path) -> None:
    config = "config: {errors.dead.letter.queue.topic.name: old}\n"
    assert codes(EXAMPLES["unused-topic"]["bad"].replace("topics:", config + "topics:"), tmp_path) == []


def test_a_function_may_be_used_by_another_one_alone(tmp_path: Path) -> None:
    text = EXAMPLES["unused-function"]["good"].replace(
        "functions: {", "functions: {four: {params: [n], expr: double(double(n))}, unused: {params: [n], expr: n}, "
    )
    assert codes(text.replace("double(value)", "four(value)"), tmp_path) == ["unused-function"]


def test_a_comment_silences_rules_in_its_line(tmp_path: Path) -> None:
    text = EXAMPLES["debug-print"]["bad"]
    assert codes(text.replace("[print: here]", "[print: here]  # lint: ignore=debug-print"), tmp_path) == []
    assert codes(text.replace("[print: here]", "[print: here]  # lint: ignore=no-grace"), tmp_path) == ["debug-print"]


def test_a_model_is_called_for_one_row_of_a_table(tmp_path: Path) -> None:
    """Tables take no batches."""
    (tmp_path / "scoring.py").write_text(SCORING)
    text = EXAMPLES["single-prediction"]["bad"].replace("stream: in", "table: in").replace("    to: out", "")
    assert "single-prediction" not in codes(text.replace("to: out", ""), tmp_path)
