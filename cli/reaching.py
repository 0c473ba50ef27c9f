"""Why brokers can't be reached: their addresses are tried one by one, as plain connections."""

from __future__ import annotations

import socket

_SECONDS = 3.0


def attempts(addresses: str) -> dict[str, str]:
    """Return what came of connecting to each HOST:PORT of a list that commas separate."""
    return {address: _attempt(address) for each in addresses.split(",") if (address := each.strip())}


def _attempt(address: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _SECONDS).close()
    except socket.gaierror as error:
        return f"the name {host!r} can't be resolved ({error.strerror})"
    except TimeoutError:
        return f"no answer within {_SECONDS:g} s: a firewall, or the wrong address"
    except OSError as error:
        return f"{error.strerror or error}: nothing listens there, or it can't be reached from here"
    except ValueError:
        return "is not HOST:PORT"
    return "accepts connections: it may be no Kafka broker, or expect another security.protocol"
