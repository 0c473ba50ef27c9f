"""docs/commands.md and docs/lint.md say what the commands say."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamkit_cli import reference

DOCS = Path(__file__).parents[2] / "docs"


def test_the_pages_are_up_to_date() -> None:
    assert reference.main(["--check", str(DOCS)]) == 0


def test_a_missing_page_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "commands", lambda: "# Commands")
    assert reference.main(["--write", str(tmp_path)]) == 0
    assert reference.main(["--check", str(tmp_path)]) == 0
    (tmp_path / "lint.md").write_text("old")
    assert reference.main(["--check", str(tmp_path)]) == 1
    assert "lint.md is out of date" in capsys.readouterr().err
