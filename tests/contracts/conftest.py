"""What the tests of every log share: Kafka and the embedded log, a topic, a consumer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.kafka import KafkaTransport, native_client
from streamkit.transport.log_interface import (
    Consumer,
    Transport,
)
from tests.contracts.records import KAFKA, KAFKA_IN_PYTHON, create


@pytest.fixture(params=[KAFKA, KAFKA_IN_PYTHON, "embedded"])
def transport(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Transport]:
    made: Transport
    if request.param == KAFKA_IN_PYTHON.values[0]:
        monkeypatch.setenv(native_client.SWITCH, native_client.OFF)
    if request.param != "embedded":
        made = KafkaTransport(request.getfixturevalue("broker").address)
    else:
        made = EmbeddedTransport(tmp_path / "log")
    yield made
    made.close()


@pytest.fixture
def topic(transport: Transport) -> str:
    """A topic of one partition."""
    return create(transport, 1)


@pytest.fixture
def consumer(transport: Transport) -> Iterator[Consumer]:
    made = transport.consumer(f"group-{uuid4()}", read_committed=True)
    yield made
    made.close()
