"""A program that floods an HTTP server with connections of which none is of use, until its stdin ends.

    python flood.py HOST PORT CONNECTIONS

It prints "flooding" once as many have been opened as asked for, and at the end how many were opened of each kind, as
JSON. What the server ends is opened again, as another one.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import select
import socket
import sys
from collections import Counter

KINDS = ("idle", "slow", "garbage", "huge", "half-closed", "half-closed request")
DRIP = b"GET /status HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"a" * 1000
HUGE = b"GET /status HTTP/1.1\r\n" + b"".join(b"X-Header-%d: %s\r\n" % (n, b"y" * 200) for n in range(2000))
ROUND_SECONDS = 0.05
OPENED_IN_A_ROUND = 100


class Client:
    """One connection of a kind."""

    def __init__(self, address: tuple[str, int], kind: str):
        self.kind = kind
        self.sent = 0
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.connect_ex(address)

    def go_on(self) -> bool:
        """Do what its kind does next; return whether it is still open."""
        try:
            self._send()
            return self.socket.recv(65_536) != b"" or self.kind == "idle"
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _send(self) -> None:
        if self.kind == "slow":
            self.sent += self.socket.send(DRIP[self.sent : self.sent + 1] or b"a")
        elif self.kind == "huge":
            self.sent += self.socket.send(HUGE[self.sent :] or b"z")
        elif self.sent == 0 and self.kind != "idle":
            self.sent = 1
            if self.kind == "garbage":
                self.socket.send(os.urandom(300) + b"\r\n\r\n")
            elif self.kind == "half-closed request":
                self.socket.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            if self.kind.startswith("half-closed"):
                self.socket.shutdown(socket.SHUT_WR)


def main(host: str, port: str, wanted: str) -> None:
    """Flood until stdin ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    number = int(wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, number + 100), hard))
    kinds, opened = itertools.cycle(KINDS), Counter[str]()
    clients: list[Client] = []
    told = False
    while not select.select([sys.stdin], [], [], ROUND_SECONDS)[0]:
        for _ in range(min(OPENED_IN_A_ROUND, number - len(clients))):
            client = Client((host, int(port)), next(kinds))
            opened[client.kind] += 1
            clients.append(client)
        if opened.total() >= number and not told:
            told = True
            print("flooding", flush=True)
        still = [client for client in clients if client.go_on()]
        for client in set(clients).difference(still):
            client.socket.close()
        clients = still
    print(json.dumps(opened))


if __name__ == "__main__":
    main(*sys.argv[1:])
