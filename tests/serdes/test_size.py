"""What is too large or too deep to be written: refused before any of it is made, whoever made it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit import serdes
from streamkit.errors import SerdeError
from streamkit.operators.core.task_services import FailedRecord
from streamkit.operators.steps.stateless.print import shown as printed
from streamkit.runtime.execution.handlers import describe_failure
from streamkit.serdes.formats.json_text import from_text, to_text
from streamkit.serdes.plain import shown
from streamkit.serdes.size import MAX_BYTES, MAX_DEPTH, check_value, least_size, limit

MEGABYTE = "x" * (1 << 20)


def doubled(levels: int, value: Any = 1) -> Any:
    """Return a value of 2**levels parts that are all the same."""
    for _ in range(levels):
        value = [value, value]
    return value


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def circle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


TOO_LARGE = {
    "doubled": doubled(40),
    "doubled object": {"a": doubled(40, {"b": 1})},
    "doubled tuple": (doubled(40),),
    "one text often": [MEGABYTE] * 65,
    "one field's name often": [{MEGABYTE: 1}] * 65,
    "one integer often": [1 << 4095] * 60_000,
    "many lists": [[]] * 1_100_000,
    "with a number that Java writes otherwise": [1e10, doubled(40)],
}


@pytest.mark.parametrize("value", TOO_LARGE.values(), ids=TOO_LARGE)
def test_what_is_too_large_is_refused_by_every_serde_of_structured_values(value: Any) -> None:
    for refuse in (check_value, serdes.parse("json").encode):
        with pytest.raises(SerdeError, match=r"too large to be written: [\d,]+ bytes or more"):
            refuse(value)


def test_other_serdes_refuse_what_is_too_large() -> None:
    with pytest.raises(SerdeError, match="too large"):
        serdes.parse("string").encode("x" * (MAX_BYTES + 1))
    with pytest.raises(SerdeError, match="too large"):
        serdes.parse("bytes").encode(b"x" * (MAX_BYTES + 1))
    with pytest.raises(SerdeError, match="too large"):
        serdes.parse("lines").encode([MEGABYTE] * 65)
    with pytest.raises(SerdeError, match="too large"):
        serdes.parse({"csv": [f"c{number}" for number in range(65)]}).encode(
            {f"c{number}": MEGABYTE for number in range(65)}
        )


def test_a_text_of_control_characters_is_measured_when_it_is_written() -> None:
    with pytest.raises(SerdeError, match="too large"):
        to_text("\0" * (MAX_BYTES // 5))


def test_the_limit_is_max_request_size_where_it_is_set() -> None:
    small_parts = [[1]] * 250_000
    try:
        limit(100_000)
        with pytest.raises(SerdeError, match=r"100,004 bytes; at most 100,000 are allowed \(max.request.size\)"):
            to_text(["x" * 100_000])
        assert len(to_text("x" * 99_998)) == 100_000
        limit(1 << 20)
        assert len(to_text(small_parts)) == 1_000_001
        limit(64 << 20)
        assert len(to_text([MEGABYTE] * 63)) == 63 * (len(MEGABYTE) + 3) + 1
    finally:
        limit(None)
    with pytest.raises(SerdeError, match=r"at most 16,777,216 are allowed \(max.request.size\)"):
        to_text("\0" * (MAX_BYTES // 5))
    with pytest.raises(SerdeError, match="each list and object counts 64; at most 16,777,216 are allowed"):
        to_text(small_parts + small_parts[:20_000])


@pytest.mark.parametrize(
    "make", [lambda: deep(MAX_DEPTH + 1), lambda: deep(100_000), circle, lambda: {"a": deep(100_000)}]
)
def test_what_is_nested_too_deeply_is_refused(make: Callable[[], Any]) -> None:
    value = make()
    for refuse in (to_text, check_value):
        with pytest.raises(SerdeError, match="nested more than 500 levels deep, or holds itself"):
            refuse(value)


def test_as_many_levels_as_are_allowed_are_written_read_compared_and_shown() -> None:
    value = deep(MAX_DEPTH)
    data = to_text(value)
    assert data == b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH
    assert from_text(data) == value
    # The slow way, for a number that Java writes in its own way.
    assert to_text([deep(MAX_DEPTH - 1), 1e10]) == data[:-1] + b",1.0E10]"


def test_sizes_up_to_the_limit_are_written() -> None:
    value = [MEGABYTE] * 15
    assert len(to_text(value)) == 15 * (len(MEGABYTE) + 3) + 1
    numbers = list(range(500_000))
    assert to_text(numbers) == orjson.dumps(numbers)
    assert to_text([1e10, *numbers]) == b"[1.0E10," + orjson.dumps(numbers)[1:]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(0.01, 1e6) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=10), inner, max_size=5),
    max_leaves=40,
)


@given(JSON)
def test_small_values_have_the_same_text_and_are_shown_as_ever(value: Any) -> None:
    assert to_text(value) == orjson.dumps(value)
    assert shown(value, 1_000_000) == repr(value)
    # The estimate is no more than the text and what containers count beside it.
    assert least_size(value)[0] <= len(orjson.dumps(value)) + 64 * 200


def test_what_is_shown_of_a_huge_value_is_its_beginning() -> None:
    assert shown(doubled(60), 20) == "[" * 19 + "…"
    assert len(shown(doubled(25), 100)) == 100
    assert shown(deep(100_000), 1_000).startswith("[[[")
    assert shown({"a": doubled(40)}, 10) == "{'a': [[[…"
    assert shown(1 << 100_000, 100) == "an integer of 100001 bits"
    record = FailedRecord("in", 0, 5, 1, None, None, None, None, doubled(60))
    assert len(describe_failure(None, SerdeError("no"), record)) < 400
    with pytest.raises(SerdeError, match="takes text, not a list"):
        serdes.parse("string").encode(doubled(60))


def test_a_record_that_is_too_large_is_not_printed() -> None:
    assert printed("here", None, [1]) == "[here]: null, [1]"
    with pytest.raises(SerdeError, match="too large"):
        printed("here", None, doubled(60))


# What a topology makes of small records in a process of its own, whose memory is measured.

AGGREGATES = {
    "text that doubles": ("'x'", "aggregate + aggregate", "makes more than 67108864 bytes|too large to be written"),
    "a list of itself often": (
        "[1]",
        "[aggregate for i in range(8)]",
        "makes more than 67108864 bytes|too large to be written",
    ),
    "an object of itself often": (
        "{}",
        "{str(i): aggregate for i in range(8)}",
        "makes more than 67108864 bytes|too large to be written",
    ),
    "a list within itself": ("[]", "[aggregate]", "nested more than 500 levels"),
    "texts of a megabyte": (
        "[]",
        "aggregate + [value * 500_000 for i in range(40)]",
        "makes more than 67108864 bytes|too large to be written",
    ),
}
PROGRAM = """
import resource, sys
from pathlib import Path
from streamkit.errors import StreamkitError
from streamkit.plan import load as load_plan
from streamkit.runtime.driver import Driver, Remains

resource.setrlimit(resource.RLIMIT_AS, (1_500_000_000, 1_500_000_000))
with Driver(load_plan(sys.argv[1]), Remains(logs=False)) as driver:
    try:
        for number in range(600):
            driver.pipe({"topic": "in", "key": "k", "value": str(number % 10) * 2, "timestamp": number})
    except StreamkitError as error:
        print(len(str(error)), str(error))
        # The row of the last record that went well is still there.
        assert len(driver.stores()["s"]) == (number > 0), driver.stores()
    # `ru_maxrss` begins with the memory of the process that started this one.
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    print(number, next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024)
"""


@pytest.mark.parametrize("name", AGGREGATES)
def test_an_aggregate_that_outgrows_the_limit_is_one_error_in_little_memory(name: str, tmp_path: Path) -> None:
    initial, add, expected = AGGREGATES[name]
    topology = tmp_path / "grows.yaml"
    topology.write_text(
        f"""streamkit: 1
application: grows
config: {{expression.max.bytes: 2000000000}}
topics:
  in: {{key: string, value: json}}
  out: {{key: string, value: json}}
pipelines:
  p:
    stream: in
    steps:
      - group_by_key
      - aggregate: {{store: s, initial: "{initial}", add: "{add}", value_serde: json}}
      - to_stream
    to: out
""",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(topology)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    error, last = done.stdout.splitlines()
    length, text = error.split(" ", 1)
    assert int(length) < 1_000
    assert f"{topology}:12: pipeline p, step aggregate: topic in, partition 0, offset {last.split()[0]}:" in text
    assert re.search(expected, text), text
    assert int(last.split()[1]) < 500
