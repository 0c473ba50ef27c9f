"""Random topologies in which several pipelines, routes and dead letters write the same topics, with jobs over them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from streamkit.runtime.spark.job_options import FINAL, JSON_LINES, PARQUET, REST, UPDATES

INPUTS = ("l1", "l2", "l3")
MIDDLE = "middle"
OUTPUTS = ("out1", "out2", "dead")
LOG = "log"
"""In place of the format of an output."""


@dataclass(frozen=True)
class Case:
    """A topology with its input, and a job."""

    text: str
    records: list[dict]
    inputs: tuple[str, ...]
    """The topics that the job reads."""
    outputs: dict[str, str]
    """The format of each output, or LOG; empty: every topic goes to the log."""
    emit: str
    from_log: bool
    """Whether the input is on the log."""
    runs: int
    """Of a job with a checkpoint; 0: without one."""
    tables: frozenset[tuple[str, str]]
    """The topics of one table, and how it signs values: the job may write only the last record of each key."""
    ordered: bool
    """Whether each pipeline is one task, so that the records of a key and a writer have an order."""
    unsigned: frozenset[str]
    """The topics that get records which do not show who wrote them."""

    @property
    def final(self) -> frozenset[tuple[str, str]]:
        """The topics and signatures of which only the last record of each key counts."""
        return self.tables if self.emit == FINAL else frozenset()


class _Drawing:
    def __init__(self, draw: random.Random):
        self.draw = draw
        self.handler = draw.choice((None, None, None, "dead", "out1", MIDDLE))
        self.middle_is_input = draw.random() < 0.3
        self.names: dict[str, bool] = {}
        """The pipelines so far, and whether they read MIDDLE."""
        self.writers: dict[str, set[str]] = {}
        self.dead_letters: set[str] = set() if self.handler is None else {self.handler}
        self.routed = self.ordered = False
        self.chosen: set[str] = set()
        self.table_sinks: set[str] = set()

    def topology(self) -> str:
        draw = self.draw
        pipelines = "".join(self.pipeline(f"p{number}") for number in range(draw.randint(2, 5)))
        most = draw.choice((1, 3))
        self.ordered = most == 1
        topics = "".join(
            f"  {topic}: {{key: string, value: string, partitions: {draw.randint(1, most)}}}\n"
            for topic in (*INPUTS, MIDDLE, *OUTPUTS)
        )
        setting = "processing.exception.handler: continue, errors.dead.letter.queue.topic.name"
        config = f"config: {{{setting}: {self.handler}}}\n" if self.handler else ""
        return f"streamkit: 1\napplication: writers\n{config}topics:\n{topics}pipelines:\n{pipelines}"

    def pipeline(self, name: str) -> str:
        draw = self.draw
        source = f"stream: {draw.choice((*INPUTS, *INPUTS, MIDDLE, MIDDLE))}"
        of_middle = MIDDLE in source
        if of_middle and draw.random() < 0.15:
            return self.cycle(name)
        if self.names and draw.random() < 0.2:
            before = draw.choice(sorted(self.names))
            source, of_middle = f"from: {before}", self.names[before]
        steps = [self.step(of_middle) for _ in range(draw.randrange(3))]
        kind = draw.choice(("stream", "stream", "stream", "count", "windows"))
        body = "value[3:]"
        if kind != "stream":
            steps.append(draw.choice(("{group_by: 'value[-1:]'}", "group_by_key")))
            # The key of a count does not change after it, so that the topic has the changes of a table.
            windows = [
                "{window: {tumbling: 300ms, grace: 0ms}}",
                "{count: {}}",
                "{to_stream: {key: key.key, key_serde: string}}",
            ]
            steps += ["{count: {}}", "to_stream"] if kind == "count" else windows
            body = "str(value)"
        # The last step signs the value; no step looks at the signature.
        steps.append(f"{{map_values: {{value: '\"{name}:\" + {body}', value_serde: string}}}}")
        sink = self.sink(name, of_middle, kind == "count")
        self.names[name] = of_middle
        return _pipeline(name, source, steps, sink)

    def cycle(self, name: str) -> str:
        """A pipeline that reads what it writes, until values are long."""
        self.names[name] = True
        self.writers.setdefault(MIDDLE, set()).add(name)
        longer = f'{{map_values: {{value: \'"{name}:" + value[3:] + "xx"\', value_serde: string}}}}'
        return _pipeline(name, f"stream: {MIDDLE}", ["{filter: len(value) < 12}", longer], MIDDLE)

    def step(self, of_middle: bool) -> str:
        draw = self.draw
        kind = draw.randrange(6)
        if kind == 0:
            return f"{{filter: len(value) % 4 != {draw.randrange(4)}}}"
        if kind == 1:
            return "{map_values: {value: 'value + \"x\"', value_serde: string}}"
        if kind == 2:
            parts = '[value[:3] + part for part in value[3:].split("-")]'
            return f"{{flat_map_values: {{values: '{parts}', value_serde: string}}}}"
        if kind == 3:
            return "{select_key: {key: 'value[-1:]', key_serde: string}}"
        return self.assertion(of_middle)

    def assertion(self, of_middle: bool) -> str:
        """A step of which some records fail; they may not come back to it for ever."""
        condition = f"len(value) % 5 != {self.draw.randrange(5)}"
        if self.handler is not None and self.draw.random() < 0.5 and not (of_middle and self.handler == MIDDLE):
            return f"{{assert: {{if: '{condition}', message: odd}}}}"
        topic = self.draw.choice(OUTPUTS if of_middle else (*OUTPUTS, MIDDLE, MIDDLE))
        self.dead_letters.add(topic)
        return f"{{assert: {{if: '{condition}', message: odd, on_error: {{dead_letter: {topic}}}}}}}"

    def sink(self, name: str, of_middle: bool, is_table: bool) -> str:
        draw = self.draw
        if draw.random() < 0.15:
            self.routed = True
            chosen = draw.sample(("out1", "out2", "free"), 2)
            self.chosen.update(chosen)
            return f'{{route: \'"{chosen[0]}" if len(value) % 2 else "{chosen[1]}"\'}}'
        topics = [*OUTPUTS[:2], *OUTPUTS[:2], "dead"]
        if not of_middle:
            topics += [MIDDLE, MIDDLE, MIDDLE]
        topic = draw.choice(topics)
        self.writers.setdefault(topic, set()).add(name)
        if is_table:
            self.table_sinks.add(topic)
        return topic


def _pipeline(name: str, source: str, steps: list[str], sink: str) -> str:
    return (
        f"  {name}:\n    {source}\n    steps:\n" + "".join(f"      - {step}\n" for step in steps) + f"    to: {sink}\n"
    )


def drawn(seed: int) -> Case:
    """Return a case."""
    draw = random.Random(seed)
    drawing = _Drawing(draw)
    text = drawing.topology()
    is_input = drawing.middle_is_input or MIDDLE not in {*drawing.writers, *drawing.dead_letters}
    inputs = (*INPUTS, MIDDLE) if is_input else INPUTS
    read = tuple(topic for topic in inputs if f"stream: {topic}\n" in text)
    emit = draw.choice((UPDATES, UPDATES, FINAL))
    runs = draw.choice((0, 0, 0, 2, 3))
    tables = {
        (topic, f"{next(iter(names))}:")
        for topic, names in drawing.writers.items()
        if len(names) == 1 and topic in drawing.table_sinks - drawing.dead_letters and f"stream: {topic}\n" not in text
    }
    if not read:
        return drawn(seed + 1_000_000)
    return Case(
        text,
        _records(draw, read),
        read,
        _outputs(draw, drawing),
        emit,
        draw.random() < 0.4 and MIDDLE not in read,
        runs,
        frozenset(tables),
        drawing.ordered,
        frozenset(drawing.dead_letters),
    )


def _outputs(draw: random.Random, drawing: _Drawing) -> dict[str, str]:
    formats = (JSON_LINES, JSON_LINES, PARQUET, LOG)
    names = draw.choice(((REST,), ("out1",), ("out1", "out2"), ("out1", REST), (MIDDLE, *OUTPUTS), ()))
    if drawing.routed and draw.random() < 0.3:
        names = (*names, "free")
    written = {REST, *drawing.writers, *drawing.chosen, *drawing.dead_letters}
    names = tuple(name for name in names if name in written)
    return {name: JSON_LINES if name == REST else draw.choice(formats) for name in names}


def _records(draw: random.Random, topics: tuple[str, ...]) -> list[dict]:
    time, found = 0, []
    for _ in range(draw.randint(5, 60)):
        # Times rise, so that a task which merges topics by time takes the records in the order of `try`.
        time += draw.randint(1, 40)
        words = "-".join(draw.choice("abc") * draw.randint(1, 3) for _ in range(draw.randint(1, 3)))
        key = draw.choice(("a", "b", "c", "d"))
        found.append({"topic": draw.choice(topics), "key": key, "value": f"in:{words}", "timestamp": time})
    return found
