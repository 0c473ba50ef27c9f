"""How long clients wait before they connect again: as Java's, unless the settings give it."""

from __future__ import annotations

import pytest

from streamkit.transport.kafka import KafkaTransport


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ("50", "1000")),
        ({"reconnect.backoff.ms": "2000"}, ("2000", "2000")),
        ({"reconnect.backoff.max.ms": "7000"}, ("50", "7000")),
        ({"reconnect.backoff.ms": "10", "reconnect.backoff.max.ms": "20"}, ("10", "20")),
    ],
)
def test_the_backoff_of_a_lost_connection(settings: dict[str, str], expected: tuple[str, str]) -> None:
    config, _ = KafkaTransport("127.0.0.1:1", {"producer": settings})._config({}, ("producer",), "")
    assert (config["reconnect.backoff.ms"], config["reconnect.backoff.max.ms"]) == expected
