"""Converts librdkafka's settings of a group member to those of kafka-python."""

from __future__ import annotations

from collections.abc import Mapping

from streamkit.errors import ConfigError
from streamkit.transport.kafka.python_client import python_settings

# kafka-python rejects a request time-out as long as the time after which it closes idle connections (9 minutes).
_MAX_REQUEST_MS = 500_000
_NUMBERS = {
    "session.timeout.ms": "session_timeout_ms",
    "max.poll.interval.ms": "max_poll_interval_ms",
    "socket.timeout.ms": "request_timeout_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "topic.metadata.refresh.interval.ms": "metadata_max_age_ms",
}
# The response to a heartbeat announces a rebalance: with Kafka's 3 s a task that moves would pause for that long.
_HEARTBEAT_MS, _SESSION_MS = 500, 45_000


def client_config(settings: Mapping[str, str], timeout: float) -> dict[str, object]:
    """Return the arguments of KafkaConsumer, without group and assignor.

    `timeout`: seconds to wait for the first broker. Raises ConfigError.
    """
    config: dict[str, object] = {
        **python_settings(settings),
        "bootstrap_timeout_ms": int(timeout * 1000),
        "enable_auto_commit": False,
        "allow_auto_create_topics": False,
        "metrics_enabled": False,
    }
    for name, target in _NUMBERS.items():
        if name in settings:
            number = int(settings[name])
            config[target] = min(number, _MAX_REQUEST_MS) if target == "request_timeout_ms" else number
    if settings.get("group.instance.id"):
        config["group_instance_id"] = settings["group.instance.id"]
    config["heartbeat_interval_ms"] = _heartbeat(settings)
    return config


def _heartbeat(settings: Mapping[str, str]) -> int:
    session = int(settings.get("session.timeout.ms", _SESSION_MS))
    if "heartbeat.interval.ms" not in settings:
        return min(_HEARTBEAT_MS, max(1, session // 3))
    interval = int(settings["heartbeat.interval.ms"])
    if interval >= session:
        raise ConfigError(f"heartbeat.interval.ms is {interval}; it must be less than session.timeout.ms, {session}")
    return interval
