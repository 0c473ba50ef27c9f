"""Forms of applications as JSON: what comes back compares as the form itself does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamkit.changes.compare_versions import compare
from streamkit.changes.finding import worst
from streamkit.changes.form import Form, from_json, to_json
from streamkit.changes.of_plan import form_of
from streamkit.plan import load
from tests.conformance_cases import CASES


def restored(form: Form) -> Form:
    return from_json(json.loads(json.dumps(to_json(form))))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_comes_back(case: Path) -> None:
    form = form_of(load(case / "topology.yaml"), "file")
    assert compare(restored(form), restored(form)) == []
    other = form_of(load(CASES[CASES.index(case) - 1] / "topology.yaml"), "file")
    assert worst(compare(restored(other), restored(form))) is worst(compare(other, form))


@pytest.mark.parametrize("data", [[], {}, {"label": "file"}, {"label": "file", "stores": 3}])
def test_data_that_is_no_form(data: object) -> None:
    with pytest.raises(ValueError, match="not the form of an application"):
        from_json(data)
