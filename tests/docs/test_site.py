"""The site of docs/: it is built without a warning, loads nothing from elsewhere, and works where its files are opened from a disk."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.browser.chromium import Browser
from tests.browser.conftest import browser  # noqa: F401 - a fixture
from tests.packaging.environments import ROOT, run

LOADED = re.compile(r"""<(?:script|link|img|iframe)[^>]* (?:src|href)=["']?(https?:[^"'> ]*)|url\((https?:[^)]*)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site's first version; a page outside of the navigation, a broken link or anchor fails here."""
    folder = tmp_path_factory.mktemp("site") / "1.0"
    run(
        sys.executable, "-m", "mkdocs", "build", "--strict", "-f", ROOT / "deploy" / "site" / "mkdocs.yml", "-d", folder
    )
    return folder


def test_every_page_is_there_and_loads_nothing_from_another_host(site: Path) -> None:
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    for path in (ROOT / "docs").rglob("*.md"):
        name = path.relative_to(ROOT / "docs").as_posix().replace("README.md", "index.md")
        assert f"{name.removesuffix('.md')}.html" in pages
    texts = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert [found for path in texts for found in LOADED.findall(path.read_text(encoding="utf-8"))] == []
    assert '"1.0"' in (site.parent / "versions.json").read_text(encoding="utf-8")
    assert "1.0/index.html" in (site.parent / "index.html").read_text(encoding="utf-8")


def test_pages_fit_a_phone_and_the_search_works_from_a_disk(site: Path, browser: Browser) -> None:  # noqa: F811
    browser.resize(400, 800)
    for name in ("index", "language/joins", "guarantees", "benchmarks/index"):
        browser.open((site / f"{name}.html").as_uri())
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert browser.evaluate("[...document.images].filter(each => !each.naturalWidth).map(each => each.src)") == []
    browser.resize(1400, 900)
    browser.open((site / "index.html").as_uri())
    browser.click("[data-md-component=search-query]")
    for letter in "outer_join":
        browser.press(letter)
    found = browser.until("document.querySelector('.md-search-result__link')?.href")
    assert "language/joins.html" in found
