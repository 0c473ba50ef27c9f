"""Macros: what they stand for, and the places of mistakes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from random import Random

import pytest
import yaml

from streamkit import lint, spec
from streamkit.changes.of_plan import form_of
from streamkit.compile.compiler import describe_code
from streamkit.errors import TopologyError
from streamkit.plan import build, load
from streamkit.plan.describe import describe
from streamkit.plan.model import Plan
from streamkit.runtime.driver import run_case
from tests.conformance_cases import CASES, FOLDER, as_json, assert_same_records, parse
from tests.fuzz.generate import draw
from tests.spec.factoring import Factoring
from tests.spec.helpers import LINES, problems

FUZZ = Path(__file__).parent.parent / "fuzz"
RUN = (
    "fraud-detection",
    "customer-360",
    "many-branches-and-merges",
    "calls-of-python",
    "joins-that-see-the-key",
    "three-level-repartition",
    "two-aggregations-named-group",
    "stream-join-named",
    "cogroup-two-inputs",
)


def built(text: str, folder: Path) -> Plan:
    return build(spec.load_text(text, "f.yaml", folder=str(folder)))


def code(plan: Plan) -> str:
    """Return the generated programs, without the lines of the file that their comments name."""
    return re.sub(r", line \d+", "", describe_code(plan))


def data_of(case: Path) -> dict:
    # The stock resolver would read `on:` as a boolean; keys are text in the language.
    return yaml.safe_load((case / "topology.yaml").read_text(encoding="utf-8").replace(" on:", ' "on":'))


def dumped(data: dict) -> str:
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


@pytest.mark.parametrize("seed", range(60))
def test_random_parts_as_macros_give_the_same_plan(seed: int) -> None:
    data = draw(seed).topology
    assert_same_plan(data, FUZZ, seed)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_conformance_cases_with_macros_give_the_same_plan(case: Path) -> None:
    for seed in range(2):
        assert_same_plan(data_of(case), case, seed)


def assert_same_plan(data: dict, folder: Path, seed: int) -> None:
    factored = Factoring(Random(seed)).topology(data)
    written, used = built(dumped(data), folder), built(dumped(factored), folder)
    assert describe(used, "text") == describe(written, "text"), dumped(factored)
    assert code(used) == code(written), dumped(factored)


@pytest.mark.parametrize("name", RUN)
def test_conformance_cases_with_macros_give_the_same_records(name: str, tmp_path: Path) -> None:
    case = FOLDER / name
    for module in case.glob("*.py"):
        shutil.copy(module, tmp_path)
    factored = Factoring(Random(len(name))).topology(data_of(case))
    assert factored["macros"]
    (tmp_path / "topology.yaml").write_text(dumped(factored), encoding="utf-8")
    with (case / "input.jsonl").open(encoding="utf-8") as lines:
        records, _ = run_case(tmp_path / "topology.yaml", lines)
    assert_same_records(parse((case / "expected.jsonl").read_text(encoding="utf-8")), as_json(records))
    text = describe(load(tmp_path / "topology.yaml"), "text")
    assert text.removesuffix("\n") == (case / "describe.txt").read_text(encoding="utf-8").removesuffix("\n")


HEAD = LINES + "macros:\n"  # the first macro stands in line 5


def used(macros: str, *steps: str, more: str = "") -> str:
    """Return a topology with macros, each in one line, and a pipeline whose first step stands below them."""
    rows = "".join(f"      - {step}\n" for step in steps)
    return f"{HEAD}{macros}pipelines:\n  p:\n    stream: in\n    steps:\n{rows}{more}"


BAD = {
    "a macro uses itself": (
        used("  a: {steps: [a]}\n", "a"),
        ["5:15: The macro 'a' (f.yaml:5:3) uses itself: a -> a (in the macro 'a', used in f.yaml:10:9)"],
    ),
    "through another one": (
        used("  a: {steps: [filter: value, b]}\n  b: {steps: [a]}\n", "a"),
        [
            "6:15: The macro 'a' (f.yaml:5:3) uses itself: a -> b -> a "
            "(in the macro 'b', used in f.yaml:5:30, in the macro 'a', used in f.yaml:11:9)"
        ],
    ),
    "through its argument": (
        used("  a: {steps: [b: {s: [a]}]}\n  b: {params: {s: steps}, steps: ['${s}']}\n", "a"),
        [
            "5:23: The macro 'a' (f.yaml:5:3) uses itself: a -> a (as ${s} in f.yaml:6:35, in the macro 'b', "
            "used in f.yaml:5:15, in the macro 'a', used in f.yaml:11:9)"
        ],
    ),
    "the name of a step": (
        used("  filter: {steps: []}\n", "filter: value"),
        ["5:3: 'filter' is a step of the language; give the macro another name"],
    ),
    "no name": (
        used("  a-b: {steps: []}\n"),
        ["5:3: The name of a macro 'a-b' must be a letter, then letters, digits or _"],
    ),
    "a missing parameter": (
        used("  m: {params: {x: expression, y: text}, steps: [filter: '${x}']}\n", "m: {x: value}"),
        ["10:9: The macro 'm' needs the parameter 'y' (text)"],
    ),
    "an unknown parameter": (
        used("  m: {params: {field: expression}, steps: [filter: '${field}']}\n", "m: {feild: value}"),
        ["10:13: The macro 'm' has no parameter 'feild'; did you mean 'field'?"],
    ),
    "a wrong type": (
        used("  m: {params: {n: integer, e: expression}, steps: []}\n", "m: {n: two, e: value +}"),
        [
            "10:16: 'n' of the macro 'm' must be a whole number of at least -9223372036854775808, not 'two'",
            "10:31: not an expression: it ends too early",
        ],
    ),
    "no mapping for two parameters": (
        used("  m: {params: {a: text, b: text}, steps: []}\n", "m: x"),
        ["10:12: The macro 'm' takes parameters by name, not 'x'; write m: {a, b}"],
    ),
    "a value for a macro without parameters": (
        used("  m: {steps: []}\n", "m: x"),
        ["10:12: The macro 'm' takes parameters by name, not 'x', since it has none"],
    ),
    "an unknown macro": (
        used("  paid_by: {steps: []}\n", "paid_bye"),
        ["10:9: There is no step 'paid_bye'; did you mean 'paid_by'?"],
    ),
    "a mistake in a macro, with its first use": (
        used("  m: {steps: [filter: {iff: value}]}\n", "m", "m"),
        ["5:24: The step 'filter' has no key 'iff'; did you mean 'if'? (in the macro 'm', used in f.yaml:10:9)"],
    ),
    "a mistake in an argument": (
        used("  m: {params: {x: expression}, steps: [filter: '${x}']}\n", "m: valu.a"),
        [
            "10:12: unknown name 'valu'; did you mean 'value'? (there are: key, value, timestamp, headers, topic, "
            "partition, offset) (as ${x} in f.yaml:5:48, in the macro 'm', used in f.yaml:10:9)"
        ],
    ),
    "a name that is no parameter": (
        used("  m: {params: {field: expression}, steps: [filter: '${feild}']}\n", "m: value"),
        [
            "5:52: The variable feild is not set; did you mean the parameter 'field'? "
            "(in the macro 'm', used in f.yaml:10:9)"
        ],
    ),
    "a store that two uses make": (
        used("  m: {steps: [group_by_key, count: seen, to_stream]}\n", "m", "m"),
        [
            "5:36: The store 'seen' is made twice; the first is in line 5 (in the macro 'm', used in f.yaml:10:9) "
            "(in the macro 'm', used in f.yaml:11:9)"
        ],
    ),
    "a parameter in quotes": (
        used("  m: {params: {x: text}, steps: [filter: \"value == '${x}'\"]}\n", "m: a"),
        [
            "5:42: ${x} is a value of its own in an expression: not in quotes, and no part of a name "
            "(in the macro 'm', used in f.yaml:10:9)"
        ],
    ),
    "a name that the expression binds": (
        used("  m: {params: {x: expression}, steps: [filter: '[key for key in value if key == ${x}]']}\n", "m: key"),
        [
            "5:48: The expression binds the name 'key', which an argument has too; rename it in the macro "
            "(in the macro 'm', used in f.yaml:10:9)"
        ],
    ),
    "a stream in an expression": (
        used("  m: {params: {x: stream}, steps: [filter: '${x} == 1']}\n", "m: p"),
        ["10:12: An expression can't contain stream; name a call in 'functions'"],
    ),
    "an expression in a text": (
        used("  m: {params: {x: expression}, steps: [peek: {do: value, name: 'a-${x}'}]}\n", "m: value"),
        ["5:64: ${x} has no text here: expression can't be a part of a text (in the macro 'm', used in f.yaml:10:9)"],
    ),
    "a parameter as a key": (
        used("  m: {params: {x: text}, steps: [set_headers: {headers: {'${x}': value}}]}\n", "m: a"),
        [
            "5:58: A key takes no parameter, as in '${x}'; parameters belong in values "
            "(in the macro 'm', used in f.yaml:10:9)"
        ],
    ),
    "definitions": (
        used(
            "  a: {step: []}\n  b: {steps: filter}\n  c: {params: {x: txt, y: {default: 1}, z-z: text}, steps: []}\n"
            "  d: {params: {x: {type: integer, default: a}}, steps: []}\n",
            "a",
        ),
        [
            "5:7: The macro 'a' has no key 'step'; did you mean 'steps'?",
            "6:14: 'steps' of the macro 'b' must be a list, not 'filter'",
            "7:19: The type of the parameter 'x' must be expression, text, integer, number, boolean, duration, name, topic, "
            "stream, streams, serde or steps, not 'txt'; did you mean 'text'?",
            "7:27: The parameter 'y' needs 'type'",
            "7:41: The parameter 'z-z' must be a letter, then letters, digits or _",
            "8:44: 'default' of the parameter 'x' must be a whole number of at least -9223372036854775808, not 'a'",
        ],
    ),
    "a macro that ends with branches, before a step": (
        used("  m: {steps: [branch: {when: {a: value}}]}\n", "m", "filter: value"),
        [
            "11:9: A pipeline ends with its 'branch' step; continue with 'from: PIPELINE.BRANCH', or below 'when'",
        ],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes_name_the_macro_and_its_use(name: str) -> None:
    text, expected = BAD[name]
    assert problems(text) == expected


def test_mistakes_that_the_plan_finds_have_both_places() -> None:
    text = used("  m: {steps: [count: counts]}\n", "m")
    with pytest.raises(TopologyError) as caught:
        built(text, FUZZ)
    assert [str(each).partition(":5:")[2] for each in caught.value.problems] == [
        "15: count: expected a grouped stream or a grouped table or a windowed stream, found a stream; a `group_by` or "
        "`group_by_key` is missing before it (in the macro 'm', used in f.yaml:10:9)"
    ]


def step_texts(text: str) -> list[str]:
    model = spec.load_text(text, "f.yaml", environment={"N": "3"})
    return [step.options["if"].text for step in model.pipelines["p"].steps]


def test_an_argument_stays_one_operand() -> None:
    macros = "  m: {params: {x: expression}, steps: [filter: '${x} * 2']}\n"
    found = step_texts(used(macros, "m: value.a + value.b", "m: value.a", "m: 5", "m: '5 # five'", "m: ${N} + 1"))
    assert found == ["(value.a + value.b) * 2", "value.a * 2", "5 * 2", "(5 # five\n) * 2", "(3 + 1) * 2"]


def test_a_number_before_a_dot_gets_brackets() -> None:
    macros = "  m: {params: {x: expression}, steps: [filter: '${x}.bit_length()']}\n"
    assert step_texts(used(macros, "m: 5")) == ["(5).bit_length()"]


def test_an_argument_can_not_end_the_expression_around_it() -> None:
    macros = "  m: {params: {x: expression}, steps: [filter: 'len(${x})']}\n"
    for argument in ("'value) or (key'", '"value)) + len((key"', "value; key"):
        found = problems(used(macros, f"m: {argument}"))
        assert len(found) == 1
        assert re.match(r"10:1\d: not an expression", found[0])


def test_the_types_are_constants_in_an_expression() -> None:
    macros = (
        "  m: {params: {t: text, d: duration, n: number, b: boolean}, steps: [filter: '[${t}, ${d}, ${n}, ${b}]', "
        "filter: '${t}']}\n"
    )
    step = "m: {t: it's, d: 1m, n: -1.5, b: true}"
    assert step_texts(used(macros, step)) == ['["it\'s", 60000, (-1.5), True]', '"it\'s"']


def test_an_optional_parameter_is_an_absent_option() -> None:
    macros = (
        "  m: {params: {store: {type: name, default: null}}, steps: [group_by_key, count: '${store}', to_stream]}\n"
    )
    model = spec.load_text(used(macros, "m", "m: counts", "m: {store: null}"), "f.yaml")
    stores = [step.get("store") for step in model.pipelines["p"].steps if step.operator == "count"]
    assert [each and each.name for each in stores] == [None, "counts", None]


def test_streams_in_and_out() -> None:
    macros = (
        "  split:\n    params: {limit: expression, others: streams, large: {type: steps, default: []}}\n    steps:\n"
        "      - merge: ['${others}', {stream: in}]\n"
        "      - branch: {when: {large: {if: 'value > ${limit}', steps: ['${large}', peek: value]}}, default: small}\n"
    )
    more = "  q: {from: p.large, to: out}\n  r: {from: p.small, to: out}\n  s: {stream: in}\n"
    text = used(macros, "split: {limit: 3, others: [s], large: [filter: key]}", more=more)
    written = text[: text.index("macros:")] + (
        "pipelines:\n  p:\n    stream: in\n    steps:\n      - merge: [s, {stream: in}]\n"
        "      - branch: {when: {large: {if: value > 3, steps: [filter: key, peek: value]}}, default: small}\n"
    )
    assert describe(built(text, FUZZ), "text") == describe(built(written + more, FUZZ), "text")


def test_included_macros_and_their_modules(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/near.py").write_text("def odd(key, value):\n    return value % 2\n")
    (tmp_path / "shared/macros.yaml").write_text(
        "macros:\n  odd: {steps: [filter: {call: 'near:odd'}]}\n  bad: {steps: [filter: valu]}\n"
    )
    head = LINES.replace("topics", "include: shared/macros.yaml\ntopics")
    (tmp_path / "t.yaml").write_text(head + "pipelines:\n  p: {stream: in, steps: [odd], to: out}\n")
    lines = [f'{{"topic": "in", "key": "k", "value": {n}, "timestamp": 0}}' for n in range(4)]
    assert [record["value"] for record in run_case(tmp_path / "t.yaml", lines)[0]] == [1, 3]
    (tmp_path / "t.yaml").write_text(head + "pipelines:\n  p: {stream: in, steps: [bad], to: out}\n")
    with pytest.raises(TopologyError) as caught:
        load(tmp_path / "t.yaml")
    (found,) = (str(each).replace(f"{tmp_path}/", "") for each in caught.value.problems)
    assert found.startswith("shared/macros.yaml:3:25: unknown name 'valu'")
    assert found.endswith("(in the macro 'bad', used in t.yaml:6:27)")


def test_a_file_that_macros_make_too_large_is_refused() -> None:
    rows = "".join(f"  m{n}: {{steps: [m{n - 1}, m{n - 1}, m{n - 1}, m{n - 1}]}}\n" for n in range(1, 15))
    (found,) = problems(used(f"  m0: {{steps: [filter: value]}}\n{rows}", "m14"))
    assert "The file stands for more than 200,000 values once its macros are written out" in found


def test_macros_within_each_other_have_a_limit() -> None:
    rows = "".join(f"  m{n}: {{steps: [m{n - 1}]}}\n" for n in range(1, 40))
    (found,) = problems(used(f"  m0: {{steps: [filter: value]}}\n{rows}", "m39"))
    assert "Macros use each other over 20 levels deep" in found


def test_branches_in_macros_within_each_other_have_a_limit() -> None:
    branch = "branch: {when: {a: {if: value, steps: [%s]}}}"
    rows = "".join(f"  m{n}: {{steps: [{branch % (branch % f'm{n - 1}')}]}}\n" for n in range(1, 15))
    (found,) = problems(used(f"  m0: {{steps: [filter: value]}}\n{rows}", "m14"))
    assert "Branches are nested over 25 levels deep" in found


def test_lint_reports_what_no_pipeline_uses() -> None:
    macros = "  a: {params: {x: text, y: text}, steps: [filter: '${x}']}\n  b: {steps: [a: {x: p, y: q}]}\n"
    model = spec.load_text(used(macros, "a: {x: p, y: q}", "print: here", more="    to: out\n"), "f.yaml")
    found = [str(each) for each in lint.check(model, build(model)) if each.code == "unused-macro"]
    assert found == [
        "f.yaml:5:3: No step of the macro 'a' has its parameter 'y' [unused-macro]",
        "f.yaml:6:3: No pipeline uses the macro 'b' [unused-macro]",
    ]


@pytest.mark.parametrize("place", ["macro", "use"])
def test_a_comment_at_the_macro_or_its_use_ignores_a_rule(place: str) -> None:
    text = used("  m:\n    steps:\n      - print: here\n", "m", "m", more="    to: out\n")
    found = [each for each in _prints(text) if "macro 'm', used in f.yaml:1" in each]
    assert len(found) == 2
    line = "- print: here" if place == "macro" else "      - m\n      - m"
    text = text.replace(line, line + "  # lint: ignore=debug-print")
    assert len(_prints(text)) == (0 if place == "macro" else 1)


def _prints(text: str) -> list[str]:
    model = spec.load_text(text, "f.yaml")
    return [each.message for each in lint.check(model, build(model)) if each.code == "debug-print"]


def test_a_failing_record_names_the_use() -> None:
    plan = built(used("  m: {steps: [filter: value.a > 1]}\n", "m", more="    to: out\n"), FUZZ)
    origins = [node.origin for sub in plan.sub_topologies for node in sub.nodes.values() if node.origin]
    places = [each.place for each in origins if each.step == "filter"]
    assert places == ["f.yaml:5: pipeline p, step filter (in the macro 'm', used in f.yaml:10:9)"]


def test_diff_compares_the_steps_of_macros_in_the_order_of_their_uses() -> None:
    macros = "  a: {params: {x: expression}, steps: [filter: '${x}']}\n  b: {steps: [map_values: value]}\n"
    steps = ("b", "a: value", "b", "a: key", "filter: value")
    text = used(macros, *steps, more="    to: out\n")
    written = ("map_values: value", "filter: value", "map_values: value", "filter: key", "filter: value")
    plans = [built(used("", *written, more="    to: out\n"), FUZZ), built(text, FUZZ)]
    names = [[(step.step, step.text) for step in form_of(plan, "f").pipelines["p"]] for plan in plans]
    assert names[0] == names[1]
    assert [name for name, _ in names[0]][:4] == ["map_values", "filter", "map_values", "filter"]
