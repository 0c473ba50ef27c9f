"""A real browser, started once for all tests of pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.chromium import Browser


@pytest.fixture
def browser() -> Iterator[Browser]:
    """A browser with an empty page; no page may leave an error in its console."""
    running = Browser()
    try:
        yield running
        errors = running.errors
    finally:
        running.close()
    assert errors == []
