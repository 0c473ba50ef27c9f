"""Versions of an application, on the embedded log or on both logs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.kafka_broker import Broker
from tests.broker.support import Log
from tests.changes.migrating import Versions


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.broker)])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    broker: Broker | None = request.getfixturevalue("broker") if request.param == "kafka" else None
    found = Log(broker.address if broker is not None else f"embedded:{tmp_path / 'log'}")
    yield found
    found.close()


@pytest.fixture
def versions(log: Log, tmp_path: Path) -> Versions:
    return Versions(tmp_path, log)


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Versions]:
    log = Log(f"embedded:{tmp_path / 'log'}")
    yield Versions(tmp_path, log)
    log.close()
