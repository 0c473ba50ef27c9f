"""Input at a steady rate, by the time of day: what recurs is bounded, and what does not recur expires."""

from __future__ import annotations

import json
import random
import threading
import time
from heapq import heappop, heappush

from streamkit.transport import open_transport

PAUSE_S = 0.05
USERS, PAGES = 2_000, 500
SHARES = {"clicks": 0.40, "visits": 0.20, "orders": 0.16, "users": 0.10}
"""Of all records; payments, which follow nine of ten orders, are the rest."""
VISITS, OPEN_VISITS = 10, 60
"""Records of a session, and how many sessions are open at a time."""
PAID, LATEST_PAYMENT_S = 0.9, 8.0


class Feeder:
    """Writes records until it is ended."""

    def __init__(self, address: str, prefix: str, rate: int, seed: int = 1):
        """rate: records a second; topics are called prefix.clicks and so on."""
        self.written = 0
        self.error: BaseException | None = None
        self._prefix = prefix
        self._rate = rate
        self._draw = random.Random(seed)
        self._number = self._visits = 0
        self._due: list[tuple[float, str]] = []
        self._owed = dict.fromkeys(SHARES, 0.0)
        self._end = threading.Event()
        self._producer = open_transport(address, {"producer": {"linger.ms": "5"}}, "unused").producer()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Write the last records. Raises what made writing fail."""
        self._end.set()
        self._thread.join()
        if self.error is not None:
            raise self.error
        self._producer.flush()
        self._producer.close()

    def _run(self) -> None:
        try:
            last = time.monotonic()
            while not self._end.wait(PAUSE_S):
                now = time.monotonic()
                rows = self._rows(now - last, now)
                last = now
                self._producer.send(rows)
                self.written += len(rows)
        except BaseException as error:
            self.error = error

    def _rows(self, seconds: float, now: float) -> list[tuple]:
        draw, stamp = self._draw, time.time_ns() // 1_000_000
        rows: list[tuple] = []

        def row(topic: str, key: str, value: str | bytes) -> None:
            data = value.encode() if isinstance(value, str) else value
            rows.append((f"{self._prefix}.{topic}", key.encode(), data, stamp, None, None))

        while self._due and self._due[0][0] <= now:
            row("payments", heappop(self._due)[1], draw.randrange(100_000).to_bytes(8, "big"))
        for topic, share in SHARES.items():
            self._owed[topic] += share * self._rate * seconds
            for _ in range(int(self._owed[topic])):
                self._owed[topic] -= 1
                self._number += 1
                user = f"u{draw.randrange(USERS)}"
                if topic == "clicks":
                    page = f"p{draw.randrange(PAGES)}"
                    row(topic, user, json.dumps({"page": page, "ms": draw.randrange(9_999)}))
                elif topic == "users":
                    row(topic, user, f"name {draw.randrange(10**9)}")
                elif topic == "visits":
                    self._visits += 1
                    row(topic, f"v{self._visits // VISITS - draw.randrange(OPEN_VISITS)}", "seen")
                else:
                    row(topic, f"o{self._number}", json.dumps({"item": f"i{draw.randrange(99)}"}))
                    if draw.random() < PAID:
                        heappush(self._due, (now + draw.random() * LATEST_PAYMENT_S, f"o{self._number}"))
        return rows
