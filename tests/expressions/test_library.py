"""The functions of the library: the examples of the reference, wrong arguments, types, and bounds."""

from __future__ import annotations

import ast
import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import LimitError, Position, SerdeError, TopologyError
from streamkit.expressions import Function, parse, regex
from streamkit.expressions.budget import Budget
from streamkit.expressions.function_table import LIBRARY
from streamkit.expressions.infer import infer
from streamkit.expressions.time_functions import format_time, from_epoch, strftime, strptime, time_format
from streamkit.expressions.types import INTEGER, NUMBER, TEXT, ListOf, Record

EXAMPLES = [(text, shown) for each in LIBRARY.values() for text, shown in each.examples]
LONG = "ab" * 2_000_000
NAMES = ("key", "value")


def evaluated(
    text: str,
    record: dict[str, Any],
    counts: bool,
    budget: Budget | None = None,
    functions: dict[str, Function] | None = None,
) -> Any:
    """Return the value of an expression; counts: with charges to a budget, where it has such a form."""
    expression = parse(text, NAMES, functions=functions)
    if counts:
        expression = expression if expression.draws else expression.counted or expression
    source = f"lambda key, value, _y_b: {expression.template.replace(chr(0), '')}"
    made = eval(source, {"__builtins__": {}, **expression.globals()})
    return made(record.get("key"), record.get("value"), budget or Budget())


@pytest.mark.parametrize(("text", "shown"), EXAMPLES)
def test_an_example_gives_what_the_reference_shows(text: str, shown: str) -> None:
    for hidden in (text, hide(text)):
        for counts in (False, True):
            assert repr(evaluated(hidden, {"value": CONSTANTS}, counts)) == shown


CONSTANTS: list[Any] = []


def hide(text: str) -> str:
    """Return the expression with its constants read from the record, so that nothing of it is folded."""
    CONSTANTS.clear()
    tree = ast.parse(text, mode="eval").body

    class Hiding(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.AST:
            CONSTANTS.append(node.value)
            return ast.parse(f"value[{len(CONSTANTS) - 1}]", mode="eval").body

    return ast.unparse(Hiding().visit(tree))


def test_each_function_has_an_example() -> None:
    assert [each.name for each in LIBRARY.values() if each.name not in str(each.examples)] == []


MISTAKES = {
    "parse_time()": "parse_time(text[, default]) takes 1 to 2 arguments, by position",
    "format_time(time=value)": "format_time(time[, zone]) takes 1 to 2 arguments, by position",
    "format_time(value, 'Europe/Zurch')": "there is no time zone 'Europe/Zurch'; did you mean 'Europe/Zurich'?",
    "strftime(value, '%Y %Q')": "has '%Q'; there are: %Y %y",
    "strftime(value, '%')": "has '%'; there are: %Y %y",
    "strptime(value, '%H:%M')": "has no day: it needs %Y or %y",
    "strptime(value, '%Y-%j %I')": "needs %I and %p together",
    "strptime(value, '%Y-%j %Y')": "has a directive twice",
    "strptime(value, '%Y-%j %d')": "has %d and %j, which give the same part of a time",
    "strptime(value, '%Y-%j %H %I %p')": "has %H and %I, which give the same part of a time",
    "strptime(value, '%Y-%j', 'a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a')": "no time zone",
    "strptime(value, '%Y-%j', '../UTC')": "there is no time zone '../UTC'",
    "strptime(value, 5)": "a format is text, not 5",
    "get(*value)": "get(value, path[, default]) takes 2 to 3 arguments, by position",
    "time_part(value, 'yeer')": "'yeer' is none of year, quarter",
    "from_epoch(value, 'm')": "'m' is none of s, ms, us, ns",
    "truncate_time(value, '1 hour')": "truncate_time() takes a duration that must be a duration such as",
    "truncate_time(value, 0)": "must be at least 1 ms",
    "re_search('[', value)": "not an RE2 pattern",
    "re_sub('(?<=a)b', '', value)": "not an RE2 pattern",
    "round_to(value, 2, 'half')": "'half' is none of half_even",
    "round_to(value, 101)": "decimals must be a whole number from -100 to 100",
    "format_number(value, 2, ', ')": "the separator of thousands must be one character",
    "uuid5('tcp', value)": "uuid5() takes a namespace of dns, url, oid, x500, or a UUID, not 'tcp'",
    "sha265(value)": "unknown function 'sha265'; did you mean 'sha256'?",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_wrong_argument_is_reported_at_its_place(text: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse(f"[0, {text}]", NAMES, Position("f.yaml", 3, 10))
    (problem,) = caught.value.problems
    assert MISTAKES[text] in problem.message
    assert (problem.position.line, problem.position.column >= 14) == (3, True)


FAILURES: dict[str, tuple[Any, type[Exception], str]] = {
    "parse_time(value)": ("soon", ValueError, "takes an ISO 8601 time"),
    "format_time(value)": (10**17, ValueError, "years 1 to 9999"),
    "time_part(value, 'day')": ("x", TypeError, "takes a whole number, not str"),
    "to_epoch(value, 'ns')": (2**60, ValueError, "64 bits"),
    "from_json(value)": ("{", SerdeError, "not JSON"),
    "to_json(value)": ({1, 2}, SerdeError, "can't hold a set"),
    "base64_decode(value)": ("a!", ValueError, "not base64"),
    "re_sub('(a)', value, 'a')": ("\\2", ValueError, "names group 2, but the pattern has 1"),
    "re_search(value, 'a')": ("(", ValueError, "not an RE2 pattern"),
    "round_to(value)": (float("inf"), ValueError, "finite"),
    "format_number(value, -1)": (5, ValueError, "0 or more decimals"),
    "get(value, 5)": ({}, TypeError, "takes a path"),
    "windowed_key('a', value, 5)": (6, ValueError, "not before it"),
    "murmur2(value)": ([1], TypeError, "text or bytes"),
}


@pytest.mark.parametrize("text", FAILURES)
@pytest.mark.parametrize("counts", [False, True])
def test_what_an_argument_does_not_allow_is_an_error(text: str, counts: bool) -> None:
    value, kind, message = FAILURES[text]
    with pytest.raises(kind, match=message):
        evaluated(text, {"value": value}, counts)


ATTACKS: dict[str, Any] = {
    "re_sub('', value, value)": LONG,
    "re_sub('a', 'x' * 1000, value)": LONG,
    "url_encode(value)": LONG,
    "to_json([value] * 5)": LONG,
    "from_json(value)": "[" + ",".join(["[]"] * 3_000_000) + "]",
    "base64_encode(value)": LONG * 2,
}


@pytest.mark.parametrize("text", ATTACKS)
@pytest.mark.parametrize("counts", [False, True])
def test_a_result_that_is_too_large_is_refused(text: str, counts: bool) -> None:
    with pytest.raises(LimitError):
        evaluated(text, {"value": ATTACKS[text]}, counts)


LOOPS = [
    "[murmur2(value) for x in range(1000)]",
    "[sha256(value + str(x)) for x in range(1000)]",
    "[re_search(str(x) + '$', value) for x in range(1000)]",
    "[re_groups('((((a*)b)*)*)', value) for x in range(1000)]",
    "[re_sub('b', '', value) for x in range(1000)]",
    "[from_json(to_json([value])) for x in range(1000)]",
    "[url_decode(value) for x in range(1000)]",
    "[xxhash64(value, x) for x in range(10000)]",
]


@pytest.mark.parametrize("text", LOOPS)
def test_a_record_pays_for_the_work_of_functions(text: str) -> None:
    expression = parse(text, NAMES)
    assert not expression.growth.is_bounded
    with pytest.raises(LimitError, match=r"expression\.max\."):
        evaluated(text, {"value": LONG[:1_000_000]}, True, Budget(seconds=1000))


def test_the_type_of_a_result_is_known() -> None:
    order = Record("Order", {"user": Record("User", {"name": TEXT}), "lines": ListOf(NUMBER)})

    def found(text: str) -> Any:
        problems: list[Any] = []
        result = infer(parse(text, NAMES), {"value": order, "key": TEXT}, problems)
        return problems[0].message if problems else result

    assert found("murmur2(key)") is INTEGER
    assert found("get(value, 'user.name')") is TEXT
    assert found("get(value, 'lines.0', 0.5)") is NUMBER
    assert found("windowed_key(key, 0, 1).key") is TEXT
    assert found("windowed_key(key, 0, 1).strt") == "a windowed key has no field 'strt'; did you mean 'start'?"
    assert found("get(value, 'user').nme") == "User has no field 'nme'; did you mean 'name'?"
    assert found("re_search('a', key).x") == "text has no field 'x'"


def test_a_function_of_the_file_goes_first() -> None:
    mine = {"get": Function("get", ("a",), "a + 1")}
    assert evaluated("get(value)", {"value": 1}, False, functions=mine) == 2


@given(st.integers(0, 4_000_000_000_000))
def test_times_come_back(time: int) -> None:
    assert evaluated("parse_time(format_time(value))", {"value": time}, False) == time


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(), st.lists))
def test_json_comes_back(value: Any) -> None:
    assert evaluated("from_json(to_json(value))", {"value": value}, False) == json.loads(json.dumps(value))


@given(st.text(), st.binary())
def test_texts_come_back(text: str, data: bytes) -> None:
    assert evaluated("url_decode(url_encode(value))", {"value": text}, False) == text
    assert evaluated("base64_decode(base64_encode(value))", {"value": data}, False) == data
    assert evaluated("sha256(value)", {"value": data}, True) == hashlib.sha256(data).hexdigest()


def test_a_part_that_is_not_there_gives_the_default() -> None:
    value = {"a": [{"b": None}, {"b": 0}]}
    paths = {"a.1.b": 0, "a.0.b": 7, "a.2.b": 7, "a.x": 7, "b": 7, "a.1.b.c": 7, "": 7}
    for path, expected in paths.items():
        assert evaluated("get(value, key, 7)", {"value": value, "key": path}, False) == expected


def _written_once(time: int, format: str, zone: str) -> str:
    moment = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)).astimezone(ZoneInfo(zone))
    return time_format(format).write(moment)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Zurich", "America/St_Johns", "Pacific/Apia"])
@given(st.integers(-60_000_000_000_000, 200_000_000_000_000))
def test_a_time_is_written_as_python_writes_it_and_read_again(zone: str, time: int) -> None:
    moment = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)).astimezone(ZoneInfo(zone))
    shown = strftime(time, "%Y-%m-%dT%H:%M:%S.%f", zone)
    assert shown == moment.replace(tzinfo=None).isoformat(timespec="microseconds")
    # Of two equal local times the earlier one is read.
    earlier = (moment.replace(fold=0) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    for format in ("%A %d %B %Y, %I:%M:%S.%f %p", "%Y/%j %H%M%S.%f", "%b %d %Y %H:%M:%S.%f %a"):
        assert strptime(strftime(time, format, zone), format, zone) == earlier
    for format in ("%Y-%m-%d", "%H", "%I %p", "%j %H:%M", "%H:%M:%S %z", "day"):
        # Texts are kept; those of times that share one are the same.
        for near in (time, time + 1, time + 999, time + 59_999):
            assert strftime(near, format, zone) == _written_once(near, format, zone)


@pytest.mark.parametrize(
    "text", ["2025-02-30", "2025-13-01", "2025-1", "2025-01-01 ", "٢٠٢٥-01-01", "", "0000-01-01", 5, None]
)
def test_a_text_that_is_no_such_time_is_an_error_or_the_default(text: Any) -> None:
    assert strptime(text, "%Y-%m-%d", "UTC", "none") == "none"
    with pytest.raises(ValueError, match="strptime\\(\\) takes a time of the form"):
        strptime(text, "%Y-%m-%d")


def test_offsets_and_changes_of_the_clock() -> None:
    for text in ("2025-01-31T09:00+01:00", "2025-01-31T09:00+0100", "2025-01-31T08:00Z"):
        assert strptime(text, "%Y-%m-%dT%H:%M%z", "Asia/Tokyo") == 1738310400000
    format, zone = "%Y-%m-%d %H:%M", "Europe/Zurich"
    assert format_time(strptime("2025-10-26 02:30", format, zone)) == "2025-10-26T00:30:00.000Z"
    assert format_time(strptime("2025-03-30 02:30", format, zone), zone) == "2025-03-30T03:30:00.000+02:00"


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_are_no_time(number: float) -> None:
    with pytest.raises(ValueError, match="from_epoch\\(\\) takes a finite number, not"):
        from_epoch(number, "s")


@pytest.mark.parametrize("pattern", ["é+", "(a|😀)(b)?", "()", "^(.)(.)$", "[^a]*", r"(\w)|(é)", r"\b漢"])
@given(text=st.text("aé漢😀b\n", max_size=8))
def test_the_first_match_is_that_of_the_package_for_re2(pattern: str, text: str) -> None:
    found, whole = re2.search(pattern, text), re2.fullmatch(pattern, text)
    expected = None if found is None else [found[0], *found.groups()]
    assert (regex.compiled(pattern).first(text), regex.match(pattern, text)) == (expected, whole is not None)
