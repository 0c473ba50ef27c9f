"""A topology of 8 sub-topologies and more than 60 nodes: orders are enriched, counted by six keys, and joined with payments."""

from __future__ import annotations

_KEYS = ("country", "shop", "device", "channel", "brand", "colour")
_HEAD = """\
streamkit: 1
application: marketplace
config:
  bootstrap.servers: embedded
  poll.ms: 10
defaults: {key: string, value: json}
topics:
  orders: {partitions: 2}
  payments: {partitions: 2}
  customers: {partitions: 2}
  paid-orders: {partitions: 2}
  large-orders: {partitions: 2}
  alerts: {partitions: 2}
"""
_PIPELINES = """\
pipelines:
  customers: {table: customers, store: customers}
  valid:
    stream: orders
    steps:
      - filter: {if: value.amount > 0, name: valid}
      - left_join: {with: customers, value: "{**left, 'country': right.country if right is not None else 'unknown'}"}
      - map_values: "{**value, 'brand': value.shop[:2]}"
  large:
    from: valid
    steps:
      - filter: value.amount > 1000
      - map_values: "{'amount': value.amount, 'user': key}"
    to: large-orders
  paid:
    from: valid
    steps:
      - join: {with: {stream: payments}, within: 10s, value: "{**left, 'paid': right.paid}"}
    to: paid-orders
  alerts:
    stream: payments
    steps:
      - select_key: value.card
      - filter: value.paid > 5000
      - group_by_key
      - window: {tumbling: 1m}
      - count: payments-per-card
      - to_stream
      - filter: value > 3
      - map: {key: key.key, value: "{'payments': value}"}
    to: alerts
"""


def large_topology() -> str:
    """Return the file."""
    topics = "".join(f"  by-{key}: {{value: json, partitions: 2}}\n" for key in _KEYS)
    return _HEAD + topics + _PIPELINES + "".join(map(_counted, _KEYS))


def _counted(key: str) -> str:
    return f"""\
  by-{key}:
    from: valid
    steps:
      - group_by: {{key: "value.{key}", name: by-{key}}}
      - aggregate: {{initial: "{{'orders': 0, 'amount': 0}}", add: "{{'orders': aggregate.orders + 1, 'amount': aggregate.amount + value.amount}}", store: orders-by-{key}}}
      - to_stream
      - map_values: "{{**value, 'mean': value.amount / value.orders}}"
      - filter: value.orders > 0
    to: by-{key}
"""
