"""The session's broker as a log, and its folder for every test here: all of them need the broker's machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.kafka_broker import Broker
from tests.broker.support import Log


@pytest.fixture
def kafka(broker: Broker) -> Iterator[Log]:
    """The real broker."""
    log = Log(broker.address)
    yield log
    log.close()


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Log]:
    """An embedded log of the test's own, in a directory that any process may open."""
    log = Log(f"embedded:{tmp_path / 'log'}")
    yield log
    log.close()
