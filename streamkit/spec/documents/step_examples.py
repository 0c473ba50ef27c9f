"""Further examples of steps for the language reference: a step's other forms; each is a test."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Shown:
    """A runnable example with a title: a whole topology file, modules beside it, its input and its output."""

    title: str
    topology: str
    input: str
    output: str
    files: dict[str, str] = field(default_factory=dict)


STEPS: dict[str, tuple[Shown, ...]] = {
    "map_values": (
        Shown(
            "A function over batches: a class that is made with arguments, and takes and gives columns.",
            topology="""streamkit: 1
application: scores
topics:
  measurements: {value: json}
  scores: {value: double}
pipelines:
  scores:
    stream: measurements
    steps:
      - map_values: {call: "model:Score", with: {weights: {size: 0.5, age: 2}}, batch: 512, as: numpy, value_serde: double}
    to: scores
""",
            files={
                "model.py": """class Score:
    def __init__(self, weights: dict):
        self.weights = weights

    def __call__(self, keys, values):
        return sum(values[name] * weight for name, weight in self.weights.items())
"""
            },
            input="""{"topic": "measurements", "key": "a", "value": {"size": 3, "age": 1}, "timestamp": 0}
{"topic": "measurements", "key": "b", "value": {"size": 1, "age": 4}, "timestamp": 1}
""",
            output="""{"topic": "scores", "key": "a", "value": 3.5, "timestamp": 0}
{"topic": "scores", "key": "b", "value": 8.5, "timestamp": 1}
""",
        ),
    ),
    "process": (
        Shown(
            "A class with a store and a timer; its module lies beside the file.",
            topology="""streamkit: 1
application: first-orders
topics:
  orders: {value: json}
  first-orders: {value: json}
stores:
  seen: {type: key_value, value: long}
pipelines:
  first-orders:
    stream: orders
    steps:
      - process: {call: "shop:Deduplicate", stores: [seen]}
    to: first-orders
""",
            files={
                "shop.py": """class Deduplicate:
    def init(self, context):
        self.context, self.seen = context, context.store("seen")
        context.schedule("1m", "stream_time", self.forget)

    def process(self, record):
        if self.seen.put_if_absent(record.key, record.timestamp) is None:
            self.context.forward(record)

    def forget(self, now):
        for key, time in self.seen.all():
            if time <= now - 60_000:
                self.seen.delete(key)
"""
            },
            input="""{"topic": "orders", "key": "a", "value": 1, "timestamp": 0}
{"topic": "orders", "key": "a", "value": 2, "timestamp": 30000}
{"topic": "orders", "key": "b", "value": 3, "timestamp": 61000}
{"topic": "orders", "key": "a", "value": 4, "timestamp": 62000}
""",
            output="""{"topic": "first-orders", "key": "a", "value": 1, "timestamp": 0}
{"topic": "first-orders", "key": "b", "value": 3, "timestamp": 61000}
{"topic": "first-orders", "key": "a", "value": 4, "timestamp": 62000}
""",
        ),
        Shown(
            "A timer has no record to go on from, so it makes one.",
            topology="""streamkit: 1
application: heartbeats
topics:
  events: {value: string}
  counts: {value: long}
pipelines:
  counts:
    stream: events
    steps:
      - process: {call: "beats:Count", value_serde: long}
    to: counts
""",
            files={
                "beats.py": """from streamkit.record import Record


class Count:
    def init(self, context):
        self.context, self.events = context, 0
        context.schedule("1m", "wall_clock", self.tick)

    def process(self, record):
        self.events += 1

    def tick(self, now):
        self.context.forward(Record("events", self.events, now))
"""
            },
            input="""{"topic": "events", "key": "a", "value": "x", "timestamp": 0}
{"topic": "events", "key": "b", "value": "y", "timestamp": 5}
{"advance_wall_clock": "1m"}
""",
            output="""{"topic": "counts", "key": "events", "value": 2, "timestamp": 60000}
""",
        ),
    ),
    "process_values": (
        Shown(
            "On a table: the class gives each row its value, from what it had before.",
            topology="""streamkit: 1
application: price-changes
defaults: {key: string, value: integer}
topics:
  prices: {}
  changes: {}
stores:
  last: {type: key_value}
pipelines:
  changes:
    table: prices
    steps:
      - process_values: {call: "prices:Change", stores: [last], store: changes, value_serde: integer}
      - to_stream
    to: changes
""",
            files={
                "prices.py": """class Change:
    def init(self, context):
        self.last = context.store("last")

    def transform(self, key, value):
        before = self.last.get(key) or 0
        self.last.put(key, value)
        return None if value is None else value - before
"""
            },
            input="""{"topic": "prices", "key": "a", "value": 5, "timestamp": 0}
{"topic": "prices", "key": "a", "value": 7, "timestamp": 1}
{"topic": "prices", "key": "a", "value": null, "timestamp": 2}
""",
            output="""{"topic": "changes", "key": "a", "value": 5, "timestamp": 0}
{"topic": "changes", "key": "a", "value": 2, "timestamp": 1}
{"topic": "changes", "key": "a", "value": null, "timestamp": 2}
""",
        ),
    ),
    "window": (
        Shown(
            "Sessions: clicks at most 30 s apart belong together, a session that grew replaces the one before.",
            topology="""streamkit: 1
application: visits
topics:
  clicks: {value: string}
  visits: {key: {session_windowed: string}, value: long}
pipelines:
  visits:
    stream: clicks
    steps:
      - group_by_key
      - window: {session: 30s}
      - count
      - to_stream
    to: visits
""",
            input="""{"topic": "clicks", "key": "ada", "value": "/", "timestamp": 0}
{"topic": "clicks", "key": "ada", "value": "/buy", "timestamp": 20000}
""",
            output="""{"topic": "visits", "key": {"key": "ada", "start": 0, "end": 0}, "value": 1, "timestamp": 0}
{"topic": "visits", "key": {"key": "ada", "start": 0, "end": 0}, "value": null, "timestamp": 0}
{"topic": "visits", "key": {"key": "ada", "start": 0, "end": 20000}, "value": 2, "timestamp": 20000}
""",
        ),
        Shown(
            "Hopping windows that come out when they have closed.",
            topology="""streamkit: 1
application: rush
topics:
  clicks: {value: string}
  rush: {key: {windowed: string, size: 1m}, value: long}
pipelines:
  rush:
    stream: clicks
    steps:
      - group_by_key
      - window: {hopping: 1m, advance: 30s, grace: 5s, emit: on_close}
      - count
      - to_stream
    to: rush
""",
            input="""{"topic": "clicks", "key": "ada", "value": "/", "timestamp": 40000}
{"topic": "clicks", "key": "ada", "value": "/", "timestamp": 65000}
{"topic": "clicks", "key": "ada", "value": "/", "timestamp": 95000}
""",
            output="""{"topic": "rush", "key": {"key": "ada", "start": 0, "end": 60000}, "value": 1, "timestamp": 40000}
{"topic": "rush", "key": {"key": "ada", "start": 30000, "end": 90000}, "value": 2, "timestamp": 65000}
""",
        ),
    ),
    "suppress": (
        Shown(
            "At most one update of a row in 10 s.",
            topology="""streamkit: 1
application: calm-prices
topics:
  prices: {value: long}
  calm: {value: long}
pipelines:
  calm:
    table: prices
    steps:
      - suppress: {until: 10s, max_records: 1000, when_full: emit_early}
      - to_stream
    to: calm
""",
            input="""{"topic": "prices", "key": "tea", "value": 3, "timestamp": 0}
{"topic": "prices", "key": "tea", "value": 4, "timestamp": 5000}
{"topic": "prices", "key": "milk", "value": 1, "timestamp": 10000}
""",
            output="""{"topic": "calm", "key": "tea", "value": 4, "timestamp": 5000}
""",
        ),
    ),
    "join": (
        Shown(
            "Two streams join within a window.",
            topology="""streamkit: 1
application: paid
topics:
  orders: {value: json}
  payments: {value: json}
  paid: {value: json}
pipelines:
  paid:
    stream: orders
    steps:
      - join: {with: {stream: payments}, value: '{"order": left, "paid": right}', within: 5m}
    to: paid
""",
            input="""{"topic": "orders", "key": "1", "value": "tea", "timestamp": 0}
{"topic": "payments", "key": "1", "value": 250, "timestamp": 60000}
{"topic": "payments", "key": "1", "value": 250, "timestamp": 360000}
""",
            output="""{"topic": "paid", "key": "1", "value": {"order": "tea", "paid": 250}, "timestamp": 60000}
""",
        ),
        Shown(
            "A foreign key: each row of the left table finds its row of the right one by `on`.",
            topology="""streamkit: 1
application: orders-with-customers
topics:
  orders: {value: json}
  customers: {value: string}
  named: {value: json}
pipelines:
  customers:
    table: customers
  named:
    table: orders
    steps:
      - join: {with: customers, on: value.customer, value: '{"cents": left.cents, "name": right}'}
      - to_stream
    to: named
""",
            input="""{"topic": "orders", "key": "1", "value": {"customer": "c7", "cents": 250}, "timestamp": 0}
{"topic": "customers", "key": "c7", "value": "Ada", "timestamp": 1}
{"topic": "customers", "key": "c7", "value": "Ada L.", "timestamp": 2}
""",
            output="""{"topic": "named", "key": "1", "value": {"cents": 250, "name": "Ada"}, "timestamp": 1}
{"topic": "named", "key": "1", "value": {"cents": 250, "name": "Ada L."}, "timestamp": 2}
""",
        ),
        Shown(
            "A global table is found by any expression, wherever its rows lie.",
            topology="""streamkit: 1
application: in-euros
topics:
  prices: {value: json}
  rates: {value: double}
  euros: {value: double}
pipelines:
  rates:
    global_table: rates
  euros:
    stream: prices
    steps:
      - join: {with: rates, on: value.currency, value: left.amount * right, value_serde: double}
    to: euros
""",
            input="""{"topic": "rates", "key": "USD", "value": 0.5, "timestamp": 0}
{"topic": "prices", "key": "tea", "value": {"currency": "USD", "amount": 3}, "timestamp": 1}
""",
            output="""{"topic": "euros", "key": "tea", "value": 1.5, "timestamp": 1}
""",
        ),
    ),
    "group_by": (
        Shown(
            "On a table, a row that moves to another group is taken from its old one.",
            topology="""streamkit: 1
application: residents
topics:
  people: {value: json}
  ages: {value: long}
pipelines:
  ages:
    table: people
    steps:
      - group_by: {key: value.city, value: value.age, value_serde: long}
      - aggregate: {initial: 0, add: aggregate + value, subtract: aggregate - value, value_serde: long}
      - to_stream
    to: ages
""",
            input="""{"topic": "people", "key": "1", "value": {"city": "Bonn", "age": 30}, "timestamp": 0}
{"topic": "people", "key": "1", "value": {"city": "Ulm", "age": 30}, "timestamp": 1}
""",
            output="""{"topic": "ages", "key": "Bonn", "value": 30, "timestamp": 0}
{"topic": "ages", "key": "Bonn", "value": 0, "timestamp": 1}
{"topic": "ages", "key": "Ulm", "value": 30, "timestamp": 1}
""",
        ),
    ),
}
