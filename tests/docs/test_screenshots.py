"""The drawing in the documentation is what streamkit draws."""

from __future__ import annotations

from tests.browser.screenshots import DRAWING, ROOT, drawing


def test_the_drawing_is_up_to_date_and_names_no_folder_of_a_machine() -> None:
    found = (ROOT / "docs" / "screenshots" / DRAWING).read_text(encoding="utf-8")
    assert found == drawing()
    assert str(ROOT) not in found
