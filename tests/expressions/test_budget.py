"""What a record's budget is charged for, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamkit.errors import LimitError, TopologyError
from streamkit.expressions import Expression, Function, parse, regex
from streamkit.expressions.budget import Budget

NAMES = ("key", "value", "aggregate")
PRIME = 2**61 - 1


def drawing(text: str, functions: dict[str, Function] | None = None) -> Callable[..., Any]:
    """Return an expression as a function of value and budget."""
    expression = parse(text, NAMES, functions=functions)
    twin = expression if expression.draws else expression.counted
    assert twin is not None, f"{text} draws on no budget"
    source = f"lambda value, _y_b: {twin.template.replace(chr(0), '')}"
    made: Callable[..., Any] = eval(source, {"__builtins__": {}, **twin.globals()})
    return made


def spent(text: str, value: Any) -> tuple[int, int]:
    """Return the bytes and steps that an expression takes of a budget."""
    budget = Budget()
    drawing(text)(value, budget)
    return budget.max_bytes - budget.bytes, budget.max_steps - budget.steps


def shared(levels: int, leaf: Any = "x") -> Any:
    """Return a value of 2**levels leaves in as many lists as levels."""
    for _ in range(levels):
        leaf = [leaf, leaf]
    return leaf


TEXT = "ab" * 50_000
NUMBERS = list(range(10_000))
ROWS = [{"name": f"n{number}", "size": number} for number in range(1000)]

MAKES = [
    ("value + value", TEXT, 200_000),
    ("[value, value]", TEXT, 200_000),
    ("(value, value, 1)", TEXT, 200_000),
    ("{'a': value, 'b': value}", TEXT, 200_000),
    ("[value[1:], value[2:]]", TEXT, 400_000),
    ("value * 3", TEXT, 300_000),
    ("value * 3", NUMBERS, 240_000),
    ("f'{value}{value}'", TEXT, 200_000),
    ("f'{value!r}'", TEXT, 100_000),
    ("f'{value!a}'", TEXT, 100_000),
    ("str(value)", NUMBERS, 40_000),
    ("'%s' % value", TEXT, 100_000),
    ("list(value)", TEXT, 800_000),
    ("tuple(value)", NUMBERS, 80_000),
    ("set(value)", NUMBERS, 80_000),
    ("sorted(value)", NUMBERS, 80_000),
    ("dict(value)", [(str(number), number) for number in range(1000)], 16_000),
    ("[*value, *value]", NUMBERS, 160_000),
    ("{*value}", NUMBERS, 80_000),
    ("{**value, 'more': value}", {"a": TEXT}, 200_000),
    ("merge(value, value)", {"a": TEXT}, 100_000),
    ("[x + x for x in value]", ["a" * 1000] * 100, 200_000),
    ("{x: x for x in value}", [str(number) for number in range(1000)], 16_000),
    ("{x for x in value}", NUMBERS, 80_000),
    ("sum(value, [])", [NUMBERS] * 3, 240_000),
    ("value.upper()", TEXT, 100_000),
    ("value.split('b')", TEXT, 400_000),
    ("value.replace('a', 'cc')", TEXT, 150_000),
    ("value.ljust(200000)", TEXT, 200_000),
    ("value.center(200000)", TEXT, 200_000),
    ("value.zfill(200000)", TEXT, 200_000),
    ("value.encode()", TEXT, 100_000),
    ("value.expandtabs(10)", "\t" * 1000, 10_000),
    ("', '.join(value)", ["a" * 100] * 1000, 100_000),
    ("value.translate({97: 'xyz'})", TEXT, 200_000),
    ("re_split('b', value)", TEXT, 400_000),
    ("value.copy()", NUMBERS, 80_000),
    ("value.union(value)", set(NUMBERS), 80_000),
    ("value | value", {"a": TEXT}, 100_000),
    ("sorted(value, key=lambda x: x.name + x.name)", ROWS, 16_000),
]


@pytest.mark.parametrize(("text", "value", "least"), MAKES, ids=[text for text, _, _ in MAKES])
def test_what_is_made_is_charged(text: str, value: Any, least: int) -> None:
    made, _ = spent(text, value)
    assert made >= least


WORKS = [
    ("[x for x in value]", NUMBERS, 100_000),
    ("value == value.copy()", NUMBERS, 10_000),
    ("value < value.copy()", NUMBERS, 10_000),
    ("0 <= len(value) == len(value.copy())", NUMBERS, 1000),
    ("[] < value <= value", NUMBERS, 20_000),
    ("[-1 in value, -1 in value]", NUMBERS, 20_000),
    ("-1 not in value.copy()", NUMBERS, 10_000),
    ("'zz' in value + value", TEXT, 20_000),
    ("[0.5 in range(value)]", 1_000_000, 1_000_000),
    ("value.strip('ab')", TEXT, 12_500),
    ("[value.strip(), value.rsplit()]", TEXT, 25_000),
    ("value.rfind('a' * 20)", TEXT, 200_000),
    ("value.strip(value)", TEXT, 1_000_000_000),
    ("[value.count('a'), value.count('a')]", TEXT, 20_000),
    ("[value.count(-1), 1]", NUMBERS, 10_000),
    ("[value.find('zz'), 1]", TEXT, 10_000),
    ("[value.startswith(('x' * 80, 'y' * 80)), 1]", TEXT, 10),
    ("sorted(value)", NUMBERS, 140_000),
    ("min(value + value)", NUMBERS, 20_000),
    ("[max(value), max(value)]", NUMBERS, 20_000),
    ("min(value, key=lambda x: [x, x])", NUMBERS, 100_000),
    ("[any(value), all(value)]", [1] * 10_000, 100_000),
    ("[sum(value), sum(value)]", NUMBERS, 200_000),
    ("[(re_match('a*b', value)), 1]", TEXT, 50_000),
    ("[int(value), 1]", "9" * 1000, 500),
    ("[x ** 60 for x in value]", [2**60], 450),
    ("[value * value, value * value]", 2**1000, 250),
    ("[x // 3 for x in value]", [2**1000] * 2, 200),
    ("[str(value), 1]", 2**1000, 100),
    ("[round(value, -3), 1]", 2**1000, 100),
]


@pytest.mark.parametrize(("text", "value", "least"), WORKS, ids=[text for text, _, _ in WORKS])
def test_work_is_charged(text: str, value: Any, least: int) -> None:
    budget = Budget()
    function = drawing(text)
    try:
        function(value, budget)
    except LimitError:
        assert least > budget.max_steps
    else:
        assert budget.max_steps - budget.steps >= least


SHARED = [
    "value == [value, 1][0]",
    "[value == value, 1]",
    "value < value.copy()",
    "value in [value.copy()]",
    "str(value)",
    "f'{value}'",
    "f'{value!r}'",
    "'%s' % value",
    "[value, value]",
    "sorted([value, value.copy()])",
    "min(value, value.copy())",
    "value.count(value[0].copy())",
    "value.index(value.copy())",
    "value * 2",
    "value + value",
    "[x for x in value]",
    "{'a': value, 'b': value}",
]


@pytest.mark.parametrize("text", SHARED)
def test_shared_parts_count_as_often_as_they_would_be_written(text: str) -> None:
    with pytest.raises(LimitError):
        drawing(text)(shared(30), Budget())


def test_hashing_of_shared_tuples() -> None:
    value: Any = "x"
    for _ in range(30):
        value = (value, value)
    for text in (
        "{value: 1, 'b': value}",
        "[{value}, 1]",
        "set([value])",
        "{'a': 1}.get(value)",
        "[value in {1: 2}, 1]",
    ):
        with pytest.raises(LimitError):
            drawing(text)(value, Budget())


EQUAL: list[list[Any]] = [
    [PRIME * number for number in range(1, 2000)],
    [-PRIME * number for number in range(1, 2000)],
    [(float(PRIME * number), 1.5) for number in range(1, 2000)],
    [(PRIME * number, "a") for number in range(1, 2000)],
    [*range(100_000), *(PRIME * number for number in range(1, 200))],
]
HASHED = [
    "set(value)",
    "{x for x in value}",
    "{*value}",
    "{x: 1 for x in value}",
    "dict([(x, 1) for x in value])",
    "dict(zip(value, value))",
    "set().union(value)",
    "set().difference(value)",
    "{1}.isdisjoint(value)",
    "{}.fromkeys(value)",
]


@pytest.mark.parametrize("text", HASHED)
@pytest.mark.parametrize("which", [0, 1, 3, 4])
def test_equal_hashes(text: str, which: int) -> None:
    with pytest.raises(LimitError, match="equal hashes"):
        drawing(text)(EQUAL[which], Budget())


@pytest.mark.parametrize(
    "text",
    [
        "set(value)",
        "{x for x in value}",
        "{*value}",
        "{x: 1 for x in value}",
        "dict(value)",
        "{1}.union(value)",
        "{1}.symmetric_difference(value)",
        "{1}.issubset(value)",
        "{}.fromkeys(value, 1)",
        "{}.keys() | value",
        "value ^ {}.items()",
    ],
)
def test_equal_hashes_are_refused_where_nothing_is_counted(text: str) -> None:
    value: Any = EQUAL[0] if text != "dict(value)" else [(each, 1) for each in EQUAL[0]]
    expression = parse(text, NAMES)
    assert not expression.draws
    with pytest.raises(LimitError, match="equal hashes"):
        expression.function(["value"])(value)


HONEST: list[Any] = [
    [-1, -2] * 1000,
    [PRIME] * 5000,
    list(range(-20_000, 20_000)),
    [number / 7 for number in range(20_000)],
    [str(number) for number in range(20_000)],
    [(number, str(number)) for number in range(20_000)],
    [number * 2**70 for number in range(5000)],
    [None, True, 1, 1.0, "1", 0] * 100,
]


@pytest.mark.parametrize("which", range(len(HONEST)))
def test_honest_keys_are_as_in_python(which: int) -> None:
    value = HONEST[which]
    for text, wanted in (("set(value)", set(value)), ("{x: 1 for x in value}", dict.fromkeys(value, 1))):
        for found in (parse(text, NAMES).function(["value"])(value), drawing(text)(value, Budget())):
            assert found == wanted
            assert list(found) == list(wanted)


MEMORY: list[tuple[str, Any]] = [
    ("[[set(), set(), set()] for x in value]", [0] * 10_000),
    ("[[{}, {}, {}, {}, {}, {}, {}, {}, {}] for x in value]", "ab" * 5_000),
    ("[[list(), list(), dict(), dict(), set()] for x in value]", [0] * 10_000),
    ("[{'a': {'b': {'c': {'d': x}}}} for x in value]", [0] * 10_000),
    ("[[9 ** 1290, 9 ** 1290] for x in value]", [0] * 10_000),
    ("[x << 4000 for x in value]", [1] * 10_000),
    ("[str(x << 4000) for x in value]", [1] * 10_000),
    ("[x * y for x in value for y in value]", [2**2000] * 100),
    ("[x + y for x in value for y in value]", [2**4000] * 100),
    ("[-(x + 7 ** 1400) for x in value]", [1] * 10_000),
    ("[x + y for x in value for y in value]", ["a"] * 300),
    ("[list(enumerate('abcdef')) for x in value]", [0] * 10_000),
]


@pytest.mark.parametrize(("text", "value"), MEMORY, ids=[text for text, _ in MEMORY])
def test_the_memory_of_small_values_and_long_integers_is_charged(text: str, value: Any) -> None:
    assert parse(text, NAMES).draws
    with pytest.raises(LimitError, match=r"more than 1000000 bytes"):
        drawing(text)(value, Budget(max_bytes=1_000_000))


DENSE = "a[ab]{900}[ab]{900}[ab]{900}c"
SEARCHES: list[tuple[str, Any]] = [
    (f"re_search('{DENSE}', value)", "ab" * 1000),
    (f"re_match('{DENSE}', value)", "ab" * 1000),
    (f"re_groups('{DENSE}', value)", "ab" * 1000),
    (f"re_sub('{DENSE}', '', value)", "ab" * 1000),
    (f"re_split('{DENSE}', value)", "ab" * 1000),
    ("re_search(value.pattern, value.text)", {"pattern": DENSE, "text": "ab" * 1000}),
    ("re_match(value.pattern, value.text)", {"pattern": "a[ab]{900,}", "text": "ab" * 5000}),
    ("[re_search(str(x), 'a') for x in value]", range(2000)),
    ("[re_search('\\\\pL{' + str(x) + '}', 'a') for x in value]", range(20)),
    ("[re_groups('()()()()()()()()', x) for x in value]", ["a"] * 3000),
]


@pytest.mark.parametrize(("text", "value"), SEARCHES, ids=[text for text, _ in SEARCHES])
def test_a_search_is_charged_by_its_pattern(text: str, value: Any) -> None:
    assert parse(text, NAMES).draws
    with pytest.raises(LimitError, match=r"more than 1000000 steps"):
        drawing(text)(value, Budget(max_steps=1_000_000))


def test_a_pattern_is_charged_again_before_it_is_forgotten() -> None:
    budget = Budget()
    for _ in range(2):
        for number in range(regex.KEPT):
            budget.search(f"a{number}", "")
    patterns = 2 * regex.KEPT
    assert budget.max_steps - budget.steps > 1000 * patterns
    left = budget.steps
    budget.search(f"a{regex.KEPT - 1}", "")
    assert left - budget.steps < 1000


def nested(levels: int, last: int) -> Any:
    """Return a list of so many levels, which ends with many numbers."""
    made: Any = [*range(1000), last]
    for _ in range(levels - 1):
        made = [made]
    return made


def test_the_order_of_nested_lists_is_charged_by_their_levels() -> None:
    for text in ("[value[0] < value[1]]", "[max(value)]", "[min(value[0], value[1])]"):
        _, flat = spent(text, [nested(1, 1), nested(1, 2)])
        _, deep = spent(text, [nested(300, 1), nested(300, 2)])
        assert deep > 50 * flat


def test_lists_of_many_levels_are_not_sorted() -> None:
    sort = parse("sorted(value, key=lambda x: x)", NAMES).function(["value"])
    assert sort([nested(20, 2), nested(20, 1)]) == [nested(20, 1), nested(20, 2)]
    value = [nested(21, 2), nested(21, 1)]
    for text in ("sorted(value)", "sorted(value, key=lambda x: x)"):
        with pytest.raises(LimitError, match="lists of 21 levels; at most 20"):
            parse(text, NAMES).function(["value"])(value)
        with pytest.raises(LimitError, match="lists of 21 levels; at most 20"):
            drawing(text)(value, Budget())


def test_each_operation_of_a_loop_is_charged() -> None:
    functions = {"rest": Function("rest", ("x",), "x % 3 % 5 % 7 % 9")}
    for text in (
        "[x for x in value if x % 3 % 5 % 7 % 9 == 0]",
        "[x for x in value if rest(x) == 0]",
        "sorted(value, key=lambda x: x % 3 % 5 % 7 % 9)",
    ):
        budget = Budget()
        drawing(text, functions)(NUMBERS, budget)
        assert budget.max_steps - budget.steps > 30 * len(NUMBERS)


def test_a_record_has_one_budget_and_the_next_a_new_one() -> None:
    function, budget = drawing("value + value"), Budget(max_bytes=1_000_000)
    function("x" * 400_000, budget)
    with pytest.raises(LimitError, match=r"more than 1000000 bytes \(expression.max.bytes\)"):
        function("x" * 400_000, budget)
    budget.start()
    assert len(function("x" * 400_000, budget)) == 800_000


def test_steps_run_out() -> None:
    function, budget = drawing("[x for x in value if x in value]"), Budget(max_steps=100_000)
    with pytest.raises(LimitError, match=r"more than 100000 steps \(expression.max.steps\)"):
        function(NUMBERS, budget)


def test_a_paused_record_continues_with_the_rest() -> None:
    budget = Budget()
    budget.take(1000)
    left = budget.pause()
    budget.take(60_000_000)
    budget.resume(left)
    assert budget.bytes == budget.max_bytes - 1000


def test_a_known_size_is_that_of_the_same_record_only() -> None:
    budget, value = Budget(), ["x" * 1000]
    assert budget.size(value) == 1008
    value.append("y" * 1000)
    assert budget.size(value) == 1008
    budget.start()
    assert budget.size(value) == 2016


def test_functions_of_the_file_draw_on_the_same_budget() -> None:
    functions = {"twice": Function("twice", ("x",), "x + x"), "four": Function("four", ("x",), "twice(twice(x))")}
    function, budget = drawing("four(value)", functions), Budget(max_bytes=500_000)
    with pytest.raises(LimitError):
        function("x" * 100_000, budget)
    budget.start()
    assert len(function("x" * 50_000, budget)) == 200_000


FREE = [
    "value",
    "value.user",
    "value.price * 1.2 > 10",
    "value.a == 'x' and value.b is not None",
    "{'user': value.user, 'total': value.total}",
    "value.get('a')",
    "len(value) > 3",
    "aggregate + 1",
    "value.a if value.b else value.c",
    "[value.a, value.b]",
    "value.id % 10 == 0",
]


@pytest.mark.parametrize("text", FREE)
def test_what_can_make_nothing_large_has_no_twin(text: str) -> None:
    expression = parse(text, NAMES)
    assert not expression.draws
    assert expression.counted is None


ALONE = [
    "value.lower().split()",
    "[word for word in value.split() if len(word) > 3]",
    "sum(x.price * x.quantity for x in value.rows)",
    "[{'a': x.a, 'b': x.b} for x in value.rows]",
    "sorted(value.rows, key=lambda x: x.size)[:10]",
    "f'{value.a}-{value.b}'",
    "{x.id: x for x in value.rows}",
    "[t for x in value.rows for t in x.tags]",
    "value.price * value.quantity",
    "aggregate + [value]",
    "{**aggregate, value.id: 1}",
]


@pytest.mark.parametrize("text", ALONE)
def test_what_grows_as_its_input_does_counts_nothing_alone(text: str) -> None:
    assert not parse(text, NAMES).draws


COUNTED = [
    "[x for x in value.a if x in value.b]",
    "[[x, value] for x in value.rows]",
    "[x for x in value for y in value]",
    "[value.a for x in value.rows]",
    "[x * value.n for x in value.rows]",
    "value.a.rfind(value.b)",
    "[" + ", ".join(["value"] * 40) + "]",
    " + ".join(["value"] * 33),
    "sorted(value, key=lambda x: [value, x])",
    "[x for x in range(value.n) for y in range(value.m)]",
]


@pytest.mark.parametrize("text", COUNTED)
def test_what_may_grow_faster_is_counted(text: str) -> None:
    assert parse(text, NAMES).draws


def test_constant_parts_are_bounded_when_the_file_is_read() -> None:
    for text in ("[x for x in range(2000) for y in range(2000) for z in range(2000)]", "'x' * 20000000"):
        with pytest.raises(TopologyError):
            parse(text, NAMES)


def test_an_expression_that_draws_can_be_pickled() -> None:
    import pickle

    expression: Expression = pickle.loads(pickle.dumps(parse("[x for x in value if x in value]", NAMES)))
    assert expression.function(["value"])([1, 2]) == [1, 2]


def test_a_condition_of_a_loop_may_read_a_field_of_a_constant() -> None:
    text = "[each for each in [1, 2] if (value or {'n': 1, 's': 'j'}).n > 2]"
    assert parse(text, NAMES).growth is not None


def test_round_of_small_integers_needs_no_power_of_ten() -> None:
    make_round = parse("round(key, value)", NAMES).function(["key", "value"])
    for number in (*range(-70, 70), 449, 450, 451, 10**9):
        for digits in range(-12, 3):
            assert make_round(number, digits) == round(number, digits), (number, digits)
    assert make_round(True, -1) == 0
