"""Files that are made to do harm, or are no text: each is refused with a message."""

from __future__ import annotations

import pytest

from streamkit import spec
from streamkit.errors import TopologyError
from tests.spec.helpers import HEAD, problems


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        "a: " * 50_000,
        "- " * 50_000,
        "{a: " * 50_000,
        HEAD + "description: " + "9" * 100_000,
        HEAD + "description: '" + "x" * 100_000,
        HEAD + "topics: {" + ", ".join(f"t{i}: {{keyy: x}}" for i in range(300)) + "}",
        "x" * 10_000_001,
    ],
    ids=["lists", "mappings", "sequences", "flow mappings", "digits", "open quote", "many", "long"],
)
def test_hostile_text_is_a_clean_problem(text):
    found = problems(text)
    assert found
    assert [line for line in found if len(line) >= 500] == []


def test_alias_bomb_is_refused():
    rows = "".join(f"  a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
    found = problems(f"{HEAD}config:\n  a0: &a0 [x]\n{rows}")
    assert "once its aliases are written out" in found[-1]


@pytest.mark.parametrize("data", [b"\xff\xfea\x00", b"application: \xe9", b"\x00", b"a: \xed\xa0\x80"])
def test_bytes_that_are_no_text(tmp_path, data):
    path = tmp_path / "t.yaml"
    path.write_bytes(data)
    with pytest.raises(TopologyError) as caught:
        spec.load(path)
    assert caught.value.problems[0].position.line == 1
