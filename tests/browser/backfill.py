"""Five pipelines that share no topic, after a backfill: old records first, then those of now, some of which fail."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import NewTopic
from tests.http.support import served

TOPOLOGY = """\
streamkit: 1
application: marketplace
config:
  bootstrap.servers: embedded
  poll.ms: 10
  commit.interval.ms: 500
  errors.dead.letter.queue.topic.name: failed
  processing.exception.handler: continue
defaults: {key: string, value: json}
topics:
  orders: {partitions: 3}
  payments: {partitions: 3}
  clicks: {partitions: 3}
  sensors: {partitions: 3}
  reviews: {partitions: 3}
  large-orders: {partitions: 3}
  revenue: {value: json, partitions: 3}
  clicks-per-page: {value: long, partitions: 3}
  alerts: {partitions: 3}
  stars: {partitions: 3}
pipelines:
  large-orders:
    stream: orders
    steps:
      - filter: value.amount > 500
      - map_values: "{'amount': value.amount, 'shop': value.shop}"
    to: large-orders
  revenue:
    stream: payments
    steps:
      - group_by: value.shop
      - aggregate: {initial: "{'paid': 0}", add: "{'paid': aggregate.paid + value.paid}", store: revenue}
      - to_stream
    to: revenue
  clicks-per-page:
    stream: clicks
    steps:
      - filter: value.page is not None
      - group_by: value.page
      - window: {tumbling: 1m}
      - count: clicks
      - to_stream
      - select_key: key.key
    to: clicks-per-page
  alerts:
    stream: sensors
    steps:
      - map_values: "{'celsius': (value.fahrenheit - 32) * 5 / 9}"
      - filter: value.celsius > 40
    to: alerts
  stars:
    stream: reviews
    steps:
      - group_by_key
      - aggregate: {initial: "{'n': 0, 'sum': 0}", add: "{'n': aggregate.n + 1, 'sum': aggregate.sum + value.stars}", store: stars}
      - to_stream
      - map_values: value.sum / value.n
    to: stars
"""
DAY_MS = 86_400_000
OLDEST_DAYS = 687
OLD = 3000
ROUND_S = 0.2


@contextmanager
def backfilled(folder: Path, log: EmbeddedTransport, old: int = OLD) -> Iterator[str]:
    """Run the five pipelines over records of the last 687 days while new ones arrive, and give the address."""
    admin = log.admin()
    admin.create_topics(
        [NewTopic(name, 3) for name in ("orders", "payments", "clicks", "sensors", "reviews", "failed")]
    )
    admin.close()
    now = time.time_ns() // 1_000_000
    write(log, range(old), [now - OLDEST_DAYS * DAY_MS + at * OLDEST_DAYS * DAY_MS // old for at in range(old)])
    stop = threading.Event()
    writer = threading.Thread(target=_write_on, args=(log, stop))
    with served(folder / "backfill", log, text=TOPOLOGY) as (address, _):
        writer.start()
        try:
            yield address
        finally:
            stop.set()
            writer.join()


def _write_on(log: EmbeddedTransport, stop: threading.Event) -> None:
    first = 0
    while not stop.wait(ROUND_S):
        write(log, range(first, first + 12), [time.time_ns() // 1_000_000] * 12)
        first += 12


def write(log: EmbeddedTransport, numbers: range, times: list[int]) -> None:
    """Write one record to each input for each number; every tenth record of the sensors has no temperature."""
    producer = log.producer()
    rows: list[tuple] = []
    for number, at in zip(numbers, times, strict=True):
        user = b"user-%02d" % (number % 37)
        values = {
            "orders": {"amount": number * 37 % 2000, "shop": f"shop-{number % 7}"},
            "payments": {"paid": number * 53 % 900, "shop": f"shop-{number % 7}"},
            "clicks": {"page": f"/page/{number % 11}"},
            "sensors": {"fahrenheit": 60 + number % 70} if number % 10 else {},
            "reviews": {"stars": 1 + number % 5},
        }
        rows += [(topic, user, json.dumps(value).encode(), at, None, number % 3) for topic, value in values.items()]
    producer.send(rows)
    producer.flush()
    producer.close()
