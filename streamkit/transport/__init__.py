"""The log: Kafka or the embedded log, behind one interface."""

from __future__ import annotations

from pathlib import Path

from streamkit.config import Config
from streamkit.errors import ConfigError
from streamkit.transport.kafka import KafkaTransport, Settings
from streamkit.transport.log_interface import Transport as Transport

EMBEDDED = "embedded"


def open_transport(
    bootstrap_servers: str, settings: Settings | None, state_dir: str | Path, *, creates: bool = True
) -> Transport:
    """Return the transport that `bootstrap.servers` names: `embedded` (below state_dir), `embedded:DIR`, else Kafka.

    settings: librdkafka's settings per role; the embedded log uses only the group's time-outs. creates False: an embedded log
    that does not exist is read as an empty one and is not created. The transport connects on first use.
    """
    if not bootstrap_servers.strip():
        raise ConfigError("bootstrap.servers is empty: give host:port, `embedded` or `embedded:DIR`")
    kind, _, place = bootstrap_servers.partition(":")
    if kind != EMBEDDED or place.isdigit():
        return KafkaTransport(bootstrap_servers, settings)
    from streamkit.transport.embedded import EmbeddedTransport, EmptyLog

    configured = {**(settings or {}).get("common", {}), **(settings or {}).get("consumer", {})}
    log = EmbeddedTransport(
        Path(place) if place else Path(state_dir) / EMBEDDED,
        int(configured.get("session.timeout.ms", Config.session_timeout_ms.default)),
        int(configured.get("max.poll.interval.ms", Config.max_poll_interval_ms.default)),
    )
    missing = None if creates else log.missing()
    return log if missing is None else EmptyLog(Path(missing))
