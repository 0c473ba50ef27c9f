"""Entry points that streamkit leaves out cost a warning each."""

from __future__ import annotations

from pathlib import Path

import pytest

import streamkit
from streamkit import plugins

ENTRY_POINTS = """\
[streamkit.functions]
len = json:dumps
nothing = json
text = json:dumps
[streamkit.serdes]
string = json:JSONEncoder
nothing = json
"""
TEXT = """\
streamkit: 1
application: a
topics: {in: {value: SERDE}}
pipelines:
  p: {stream: in, steps: [filter: FUNCTION(value) != '1'], to: in}
"""


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    folder = tmp_path / "fake-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: fake\nVersion: 1\n")
    (folder / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    searches = (plugins.load, plugins.references, plugins.warn_of_own)
    for each in searches:
        each.cache_clear()
    yield
    for each in searches:
        each.cache_clear()


@pytest.mark.parametrize(
    ("serde", "function", "problem"),
    [("json", "nothing", "unknown function 'nothing'"), ("nothing", "len", "no serde is called 'nothing'")],
)
def test_names_of_streamkit_and_modules_are_left_out(
    caplog: pytest.LogCaptureFixture, serde: str, function: str, problem: str
):
    found = [str(each) for each in streamkit.load(TEXT.replace("SERDE", serde).replace("FUNCTION", function)).problems]
    assert [each for each in found if problem in each]
    own = "string" if serde == "nothing" else "len"
    assert f"The plugin {own} is left out: that name is streamkit's own" in caplog.messages
    module = "The plugin nothing of fake is left out: the entry point names no object: json; expected MODULE:OBJECT"
    assert module in caplog.messages


def test_a_function_of_a_package_is_known(caplog: pytest.LogCaptureFixture):
    assert streamkit.load(TEXT.replace("SERDE", "json").replace("FUNCTION", "text")).problems == []
