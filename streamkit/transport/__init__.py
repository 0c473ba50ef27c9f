"""The log: Kafka or the embedded log, behind one interface."""

from __future__ import annotations

from pathlib import Path

from streamkit.errors import ConfigError
from streamkit.transport.kafka import KafkaTransport, Settings
from streamkit.transport.log_interface import Transport as Transport

EMBEDDED = "embedded"


def open_transport(bootstrap_servers: str, settings: Settings | None, state_dir: str | Path) -> Transport:
    """Return the transport that `bootstrap.servers` names: `embedded` (below state_dir), `embedded:DIR`, else Kafka.

    settings: librdkafka's settings per role; the embedded log takes only the group's timeouts from them. The
    transport connects on first use.
    """
    if not bootstrap_servers.strip():
        raise ConfigError("bootstrap.servers is empty: give host:port, `embedded` or `embedded:DIR`")
    kind, _, place = bootstrap_servers.partition(":")
    if kind != EMBEDDED or place.isdigit():
        return KafkaTransport(bootstrap_servers, settings)
    from streamkit.transport.embedded import MAX_POLL_INTERVAL_MS, SESSION_TIMEOUT_MS, EmbeddedTransport

    found = {**(settings or {}).get("common", {}), **(settings or {}).get("consumer", {})}
    return EmbeddedTransport(
        Path(place) if place else Path(state_dir) / EMBEDDED,
        int(found.get("session.timeout.ms", SESSION_TIMEOUT_MS)),
        int(found.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS)),
    )
