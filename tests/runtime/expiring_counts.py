"""Counts that end one second after their last record: their topology, and a model of them, for tests of rows with a time to live."""

from __future__ import annotations

COUNT = """
streamkit: 1
application: app
topics:
  in: {key: string, value: string, partitions: 2}
  out: {key: string, value: long, partitions: 1}
pipelines:
  p:
    stream: in
    steps:
      - group_by_key
      - count: {store: {name: counts, ttl: 1s}}
      - to_stream
    to: out
"""
TTL, TICK = 1_000, 10
Written = tuple[str, int | None, int]
"""Key, value and timestamp of a record."""


class Model:
    """A count by key whose rows are deleted at the first tick at or after their timestamp plus the time to live."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[int, int]] = {}
        self.time = self.looked_at = -1

    def take(self, key: str, time: int) -> list[Written]:
        """Count a record; return what comes out."""
        count, latest = self.rows.get(key, (0, time))
        self.rows[key] = row = (count + 1, max(latest, time))
        out: list[Written] = [(key, *row)]
        self.time = max(self.time, time)
        now = self.time // TICK * TICK
        if now > self.looked_at:
            self.looked_at = now
            due = [(-((latest + TTL) // -TICK) * TICK, key) for key, (_, latest) in self.rows.items()]
            for at, key in sorted(each for each in due if each[0] <= now):
                del self.rows[key]
                out.append((key, None, at))
        return out
