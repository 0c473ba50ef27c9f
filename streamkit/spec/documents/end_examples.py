"""Examples of sources and ends for the language reference; each is a test."""

from __future__ import annotations

from streamkit.spec.documents.step_examples import Shown

ENDS: tuple[Shown, ...] = (
    Shown(
        "A global store that a processor keeps, and a read-only store on a topic (one shard a task); a step looks into both.",
        topology="""streamkit: 1
application: priced-orders
topics:
  orders: {value: long}
  names: {value: string}
  prices: {value: long}
  priced: {value: json}
stores:
  names: {type: key_value, value: string}
  prices: {type: key_value, value: long}
pipelines:
  names:
    global_store: names
    store: names
    process: "shop:upper"
  prices:
    read_only_store: prices
    store: prices
    name: keep-prices
  priced:
    stream: orders
    steps:
      - process_values: {call: "shop:priced", stores: [prices]}
    to: priced
""",
        files={
            "shop.py": """def upper(record, context):
    context.store("names").put(record.key, record.value and record.value.upper())


def priced(record, context):
    name, price = context.store("names").get(record.key), context.store("prices").get(record.key)
    return record.replace(value={"name": name, "cents": record.value * (price or 0)})
"""
        },
        input="""{"topic": "names", "key": "a", "value": "apple", "timestamp": 0}
{"topic": "prices", "key": "a", "value": 20, "timestamp": 1}
{"topic": "orders", "key": "a", "value": 3, "timestamp": 2}
""",
        output="""{"topic": "priced", "key": "a", "value": {"name": "APPLE", "cents": 60}, "timestamp": 2}
""",
    ),
    Shown(
        "Several topics with serdes of their own, and a timestamp taken from the record.",
        topology="""streamkit: 1
application: all-readings
topics:
  old: {value: string}
  new: {value: json, timestamp: value.at}
  readings: {value: json}
pipelines:
  readings:
    stream: [old, new]
    steps:
      - map_values: 'float(value) if topic == "old" else value.celsius'
    to: readings
""",
        input="""{"topic": "old", "key": "hall", "value": "21.5", "timestamp": 5}
{"topic": "new", "key": "hall", "value": {"celsius": 19, "at": 70}, "timestamp": 6}
""",
        output="""{"topic": "readings", "key": "hall", "value": 21.5, "timestamp": 5}
{"topic": "readings", "key": "hall", "value": 19, "timestamp": 70}
""",
    ),
    Shown(
        "All topics that match a pattern.",
        topology="""streamkit: 1
application: all-logs
defaults: {key: string, value: string}
topics:
  logs: {}
pipelines:
  logs:
    stream: {pattern: "logs-.+"}
    steps:
      - map_values: {value: 'topic + ": " + value', value_serde: string}
    to: logs
""",
        input="""{"topic": "logs-web", "key": null, "value": "started", "timestamp": 0}
""",
        output="""{"topic": "logs", "key": null, "value": "logs-web: started", "timestamp": 0}
""",
    ),
    Shown(
        "`to` with the topic chosen for each record.",
        topology="""streamkit: 1
application: by-level
topics:
  logs: {value: json}
  logs-error: {value: json}
  logs-info: {value: json}
pipelines:
  by-level:
    stream: logs
    to: {route: '"logs-" + value.level'}
""",
        input="""{"topic": "logs", "key": "a", "value": {"level": "error"}, "timestamp": 0}
{"topic": "logs", "key": "a", "value": {"level": "info"}, "timestamp": 1}
""",
        output="""{"topic": "logs-error", "key": "a", "value": {"level": "error"}, "timestamp": 0}
{"topic": "logs-info", "key": "a", "value": {"level": "info"}, "timestamp": 1}
""",
    ),
    Shown(
        "`to` with the partition chosen for each record, and a dead-letter topic for records that fail.",
        topology="""streamkit: 1
application: spread-orders
topics:
  orders: {value: json}
  by-region: {value: json, partitions: 4}
  failed-orders: {value: json}
pipelines:
  by-region:
    stream: orders
    steps:
      - filter: {if: value.cents > 0, on_error: {dead_letter: failed-orders}}
    to: {topic: by-region, partition: value.region % partitions}
""",
        input="""{"topic": "orders", "key": "1", "value": {"region": 7, "cents": 5}, "timestamp": 0}
""",
        output="""{"topic": "by-region", "key": "1", "value": {"region": 7, "cents": 5}, "timestamp": 0}
""",
    ),
)
