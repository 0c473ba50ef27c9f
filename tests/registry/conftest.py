"""The schema registry, started once for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.registry.server import SchemaRegistry, available


@pytest.fixture(scope="session")
def registry() -> Iterator[SchemaRegistry]:
    """A running schema registry; `registry.url` is the address of its Confluent API."""
    if not available():
        pytest.fail("a real schema registry needs java 17 and Maven (mvn) on the path")
    with SchemaRegistry() as running:
        yield running
