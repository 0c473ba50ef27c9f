"""Ports for servers that tests start."""

from __future__ import annotations

import itertools
import os
import socket

_FIRST_PORT, _BLOCKS, _BLOCK = 20_000, 120, 100
"""Ports of this module: up to 31,999; Linux chooses from 32,768 on."""
_numbers = itertools.count()


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on, for a server that starts later.

    They are below those that the system chooses from, which another process may get before the server has bound them, or
    while it restarts. Each process has ports of its own, as long as the ids of processes differ by less than _BLOCKS.
    """
    first = _FIRST_PORT + os.getpid() % _BLOCKS * _BLOCK
    found: list[int] = []
    for _ in range(_BLOCK):
        port = first + next(_numbers) % _BLOCK
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"no {count} ports are free from {first} to {first + _BLOCK - 1}")
