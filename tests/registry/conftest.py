"""The schema registry, started once for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.registry.server import SchemaRegistry


@pytest.fixture(scope="session")
def registry() -> Iterator[SchemaRegistry]:
    """A running schema registry; `registry.url` is the address of its Confluent API."""
    with SchemaRegistry() as running:
        yield running
