"""A language server without the pause after typing, which the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.editor.client import Client


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    found = Client({"debounceMs": 0})
    yield found
    assert found.stop() == 0
