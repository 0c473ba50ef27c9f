"""The log that a topology's settings name."""

from __future__ import annotations

from streamkit.plan.model import Plan
from streamkit.transport import Transport, open_transport

ROLES = ("common", "consumer", "main", "restore", "global", "producer", "admin")


def address(plan: Plan) -> str:
    """Return `bootstrap.servers` as text."""
    servers = plan.config["bootstrap.servers"]
    return servers if isinstance(servers, str) else ",".join(servers)


def open_log(plan: Plan) -> Transport:
    """Return the log that `bootstrap.servers` names; the caller closes it. Raises ConfigError, TransportError."""
    config = plan.config
    return open_transport(address(plan), {role: config.client(role) for role in ROLES}, config["state.dir"])
