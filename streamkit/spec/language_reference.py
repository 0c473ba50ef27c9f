"""The language reference: every operator's summary, options and example as Markdown, written into the pages of docs/language.

`python -m streamkit.spec.language_reference --write docs/language` replaces the text below the marker of each page;
`--check` exits 1 when a page is out of date. The text above the marker is not generated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field
from pathlib import Path

from streamkit.errors import UsageError
from streamkit.expressions.function_entry import LibraryFunction
from streamkit.expressions.function_table import SECTIONS
from streamkit.operators import OPERATORS
from streamkit.operators.core import fields as kinds
from streamkit.operators.core.operator import AnyOperator, Example
from streamkit.spec.markdown import block, cell

MARKER = "<!-- Below: written by `make generate` from streamkit/operators/. -->"

_KINDS: dict[type, str] = {
    kinds.Expr: "expression of {names}",
    kinds.SerdeField: "serde",
    kinds.Text: "text",
    kinds.Duration: "duration",
    kinds.SignedDuration: "duration, which may be negative (`-5m`)",
    kinds.Integer: "integer, at least {minimum}",
    kinds.Fraction: "number from 0 to 1",
    kinds.Choice: "{words}",
    kinds.Flag: "`true` or `false`",
    kinds.TopicConfig: "settings of a topic",
    kinds.DurationOr: "{words} or a duration",
    kinds.StoreField: "store",
    kinds.StoreNames: "list of stores",
    kinds.BaseName: "text",
    kinds.PipelineRef: "pipeline",
    kinds.CogroupInputs: "list of `{{from: PIPELINE, add: EXPRESSION}}`",
    kinds.Branches: "`{{NAME: condition}}`, `{{NAME: {{if, steps, to, for_each, chained}}}}`, or a list of them without NAME",
    kinds.DefaultBranch: "text, or `true`",
    kinds.HeaderMap: "`{{NAME: expression or null}}`",
    kinds.Callable_: "`module:object`",
    kinds.Arguments: "mapping of arguments",
    kinds.CacheField: "`{{size, ttl}}`",
}


def pages() -> dict[str, str]:
    """Return the generated part of each page, by the name of its file."""
    groups: dict[str, list[AnyOperator]] = {}
    for operator in _registered():
        groups.setdefault(group_of(operator), []).append(operator)
    found = {f"{group}.md": render(operators) for group, operators in groups.items()}
    ends = ["## Sources and ends", *map(_shown, ENDS)]
    found["topics.md"] += "\n" + "\n\n".join(ends) + "\n"
    return {"README.md": _index(groups), "functions.md": _functions(), **found}


def group_of(operator: AnyOperator) -> str:
    """Return the group of a step, after which its page is called: the package of its module."""
    return type(operator).__module__.split(".")[-2]


def render(operators: Iterable[AnyOperator]) -> str:
    """Return the sections of operators, in the order given."""
    return "\n\n".join(map(describe_operator, operators)) + "\n"


def _index(groups: dict[str, list[AnyOperator]]) -> str:
    lines = ["## Steps", ""]
    for group, operators in groups.items():
        steps = " ".join(f"[`{operator.name}`]({group}.md#{operator.name})" for operator in operators)
        lines.append(f"- [{group.capitalize()}]({group}.md): {steps}")
    return "\n".join(lines) + "\n"


def _functions() -> str:
    parts = []
    for title, entries in SECTIONS.items():
        rows = [f"| `{each.signature}` | {cell(each.doc)} | {_function_examples(each)} |" for each in entries]
        parts += [f"## {title}", "\n".join(["| function | result | |", "|---|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def describe_function(function: LibraryFunction) -> str:
    """Return the section of a function: its signature, what it gives, and examples."""
    examples = "\n".join(f"- `{written}` is `{shown}`" for written, shown in function.examples)
    return f"## `{function.signature}`\n\n{function.doc}\n\n{examples}\n"


def _function_examples(function: LibraryFunction) -> str:
    return cell("<br>".join(f"`{written}` is `{shown}`" for written, shown in function.examples))


def describe_operator(operator: AnyOperator) -> str:
    """Return the section of a step: what it does, its options, and examples."""
    parts = [f"## `{operator.name}`", operator.summary, f"On: {_words(operator.accepts)}."]
    if operator.main:
        parts[-1] += f" `{operator.name}: X` is short for `{operator.name}: {{{operator.main}: X}}`."
    if operator.is_extension:
        parts[-1] += " A step of streamkit's own, which Kafka Streams does not have."
    if operator.fields:
        rows = [
            f"| `{field.name}` | {describe_kind(field.kind)} | {_default(field)} | {cell(field.doc)} |"
            for field in operator.fields
        ]
        parts.append("\n".join(["| option | what | default | |", "|---|---|---|---|", *rows]))
    example = getattr(operator, "example", None)
    if example is not None:
        parts.append(_example(example))
    parts += map(_shown, STEPS.get(operator.name, ()))
    return "\n\n".join(parts)


def _shown(example: Shown) -> str:
    return f"{example.title}\n\n{_example(example)}"


def _example(example: Example | Shown) -> str:
    parts = [block("yaml", example.topology)]
    for name, text in example.files.items():
        parts += [f"`{name}`:", block("python", text)]
    parts += ["In and out:", block("json", example.input), block("json", example.output)]
    return "\n\n".join(parts)


def describe_kind(kind: kinds.Kind) -> str:
    """Return what a kind of field holds, in words.

    >>> describe_kind(kinds.Choice(("on_update", "on_close")))
    '`on_update` or `on_close`'
    """
    template = next((_KINDS[base] for base in type(kind).__mro__ if base in _KINDS), type(kind).__name__.lower())
    text = template.format(
        names=" ".join(f"`{name}`" for name in getattr(kind, "names", ())),
        minimum=getattr(kind, "minimum", 0),
        words=" or ".join(f"`{word}`" for word in getattr(kind, "words", ())),
    )
    return cell(text + ", or a list of them" if getattr(kind, "many", False) else text)


def _default(field: kinds.Field) -> str:
    if field.required:
        return "required"
    if isinstance(field.default, bool):  # as YAML has it
        return f"`{str(field.default).lower()}`"
    return "" if field.default in (None, MISSING) else f"`{field.default}`"


def _words(accepts: Iterable[str]) -> str:
    return ", ".join(name.replace("_", " ") for name in accepts)


def _registered() -> list[AnyOperator]:
    return list(OPERATORS.values())


def updated(text: str, generated: str) -> str:
    """Return a page's text with everything below the marker replaced. Raises UsageError without a marker."""
    head, marker, _ = text.partition(MARKER)
    if not marker:
        raise UsageError(f"no line {MARKER}")
    return f"{head}{MARKER}\n\n{generated}"


def main(arguments: list[str]) -> int:
    """Run the command line; return its exit code. `--plugins` prints the sections of the steps that installed plugins add."""
    if arguments == ["--plugins"]:
        from streamkit.operators import STEPS

        print(render(STEPS.added.values()))
        return 0
    if len(arguments) != 2 or arguments[0] not in ("--write", "--check"):
        print(
            "usage: python -m streamkit.spec.language_reference --write|--check FOLDER, or --plugins",
            file=sys.stderr,
        )
        return 2
    return max(_keep(Path(arguments[1]) / name, text, arguments[0] == "--write") for name, text in pages().items())


def _keep(path: Path, generated: str, write: bool) -> int:
    """Write a page or compare it; return the exit code."""
    try:
        before = path.read_text(encoding="utf-8")
        after = updated(before, generated)
    except (OSError, UsageError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return UsageError.exit_code
    if write:
        path.write_text(after, encoding="utf-8")
    elif before != after:
        print(f"{path} is out of date: make generate", file=sys.stderr)
        return 1
    return 0


# Further examples of steps for the language reference: a step's other forms; each is a test.


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
            "A function over batches: a class that is created with arguments, and takes and returns columns.",
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
            "Sessions: clicks at most 30 s apart belong together; a session that grows replaces the previous one.",
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
            "Hopping windows whose results are emitted once they have closed.",
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
            "At most one update of a row every 10 s.",
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
            "A foreign key: each row of the left table finds its row in the right table by `on`.",
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
            "Rows of a global table are found by any expression, regardless of their partition.",
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
            "On a table, a row that moves to another group is removed from its old group.",
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


# Examples of sources and ends for the language reference; each is a test.

ENDS: tuple[Shown, ...] = (
    Shown(
        "A global store that a processor keeps, and a read-only store on a topic (one shard a task); a step looks "
        "into both.",
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
