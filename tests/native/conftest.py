"""Clients with a link of the extension."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer

from streamkit.transport.kafka.native_client import create_consumer, create_producer

if TYPE_CHECKING:
    from streamkit import _native

NOWHERE = "127.0.0.1:1"
"""An address that refuses connections."""
QUIET = logging.getLogger("streamkit.kafka")


@pytest.fixture
def consumer() -> Iterator[tuple[Consumer, _native.Consumer]]:
    client, link = create_consumer({"bootstrap.servers": NOWHERE, "group.id": "group"}, QUIET)
    assert link is not None
    yield client, link
    client.close()


@pytest.fixture
def producer() -> tuple[Producer, _native.Producer]:
    client, link = create_producer({"bootstrap.servers": NOWHERE}, QUIET)
    assert link is not None
    return client, link
