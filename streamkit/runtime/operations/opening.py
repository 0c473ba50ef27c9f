"""Opens the log that a topology's settings name."""

from __future__ import annotations

from streamkit.plan.model import Plan
from streamkit.transport import Transport, open_transport

ROLES = ("common", "consumer", "main", "restore", "global", "producer", "admin")


def address(plan: Plan) -> str:
    """Return `bootstrap.servers` as text."""
    servers = plan.config.bootstrap_servers
    return servers if isinstance(servers, str) else ",".join(servers)


def silence_of(plan: Plan) -> str | None:
    """Return the failed attempts to reach the log, if no broker answers; None if one does, or may, or none is needed."""
    if address(plan).startswith("embedded"):
        return None
    from streamkit.transport.reachability import silence

    return silence(address(plan), tls="SSL" in plan.config.client("common").get("security.protocol", "").upper())


def open_log(plan: Plan, *, creates: bool = True) -> Transport:
    """Return the log that `bootstrap.servers` names; the caller closes it. Raises ConfigError, TransportError.

    creates False: an embedded log that does not exist is read as an empty one, and not created.
    """
    config = plan.config
    settings = {role: config.client(role) for role in ROLES}
    return open_transport(address(plan), settings, config.state_dir, creates=creates)
