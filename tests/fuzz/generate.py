"""Draws a topology and its input from a seed; type-correct by construction."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import yaml

from tests.fuzz import ends, inputs, processors, steps
from tests.fuzz.forms import BYTES, DOUBLE, FLOAT, JSON, LONG, SHORT, STRING, UUID, VOID
from tests.fuzz.kinds import (
    GLOBAL,
    GROUPED,
    GROUPED_TABLE,
    SCALARS,
    STREAM,
    TABLE,
    VALUES,
    Type,
    Windowed,
    serde,
)
from tests.fuzz.options import named, store
from tests.fuzz.vocabulary import Expressions

# How often a form of its own stands at the top of an expression, by topology.
SHAPED = (0.0, 0.3, 0.8)
# Small ones evict in the middle of a record; where a global table shares the cache, only extremes are compared.
AMPLE = 100_000
CACHES = (0, 0, 1, 60, 100, 150, 200, 300, 500, 1000, 2000)
FANNED = tuple(processors.KEYS)
STREAM_TIME = ("__ts_", "spawn", "where", "Seen")
FORMAT = "dsl.store.format"
POLICIES = ("fail_on_invalid", "log_and_skip", "use_partition_time")


@dataclass(frozen=True)
class Flow:
    """What a pipeline has in hand: its kind, its types, and what later steps may do with it."""

    kind: str
    key: Type
    value: Type
    closes: bool = False  # a windowed table of which Java knows the grace period
    versioned: bool = False


@dataclass(frozen=True)
class Kept:
    """A store that processors can look into: that of a step, of a table, or a global one, which is only read."""

    name: str
    kind: str
    key: Type
    value: Type
    shared: bool = False


@dataclass
class Case:
    """A drawn topology as plain data, and its input lines."""

    topology: dict
    input: list[dict]

    def text(self) -> str:
        return yaml.safe_dump(self.topology, sort_keys=False, allow_unicode=True, width=1000)


@dataclass
class Draft:
    """The state of a drawing: random numbers, what was declared, and what can be referred to."""

    rng: random.Random
    scale: int
    topics: dict[str, dict] = field(default_factory=dict)
    types: dict[str, tuple[Type, Type]] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    pipelines: dict[str, dict] = field(default_factory=dict)
    ends: dict[str, Flow] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    stores: dict[str, dict] = field(default_factory=dict)
    kept: list[Kept] = field(default_factory=list)

    def __post_init__(self):
        self.failing = self.chance(0.12)
        self.functions = self.chance(0.2)
        self.undecodable = self.chance(0.1)
        self.late = False  # whether a processor needs a store that a step before it makes
        self.expressions = Expressions(self.rng, self.failing, self.functions, self.rng.choice(SHAPED))

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def unique(self, prefix: str) -> str:
        self.numbers[prefix] = self.numbers.get(prefix, 0) + 1
        return f"{prefix}{self.numbers[prefix]}"

    def default(self, side: str) -> str:
        return self.defaults.get(side, {"key": "string", "value": "json"}[side])

    def serde_option(self, side: str, kind: Type) -> dict:
        """`key_serde` or `value_serde`, where it is needed and now and then where not."""
        written = serde(kind)
        return {f"{side}_serde": written} if written != self.default(side) or self.chance(0.2) else {}

    def topic(self, prefix: str, key: Type, value: Type, role: str) -> str:
        """Declares a topic and gives the name of its entry."""
        name = self.unique(prefix)
        entry = {}
        if role != "out" and self.chance(0.05):
            entry["topic"] = f"physical.{name}"
        if serde(key) != self.default("key") or self.chance(0.2):
            entry["key"] = serde(key)
        if serde(value) != self.default("value") or self.chance(0.2):
            entry["value"] = serde(value)
        self.topics[name], self.types[name], self.roles[name] = entry, (key, value), role
        return name

    def keep(self, options: dict, kind: str, key: Type, value: Type, shared: bool = False) -> None:
        """Remembers the store of a step's options, where it has a name."""
        store = options.get("store")
        if isinstance(store, dict):
            kind = "versioned" if "versioned" in store else kind
            store = store.get("name")
        if store:
            self.kept.append(Kept(store, kind, key, value, shared))

    def duration(self, low: int = 1, high: int = 10) -> str:
        return f"{self.milliseconds(low, high)}ms"

    def milliseconds(self, low: int = 1, high: int = 10) -> int:
        return self.rng.randint(low, high) * self.scale

    def find(self, kind: str, accept=lambda flow: True) -> str | None:
        """The name of something of the kind that a later pipeline can refer to."""
        found = [name for name, flow in self.ends.items() if flow.kind == kind and accept(flow)]
        return self.rng.choice(found) if found else None

    def source(self, role: str) -> tuple[dict, Flow]:
        """A source of the role: the first line of a pipeline."""
        if role == STREAM and self.chance(0.35):
            used = [name for name, other in self.roles.items() if other == STREAM]
            if used:
                name = self.rng.choice(used)
                return {"stream": name}, Flow(STREAM, *self.types[name])
        key, value = self.rng.choice(SCALARS), self.rng.choice(VALUES)
        if role == STREAM and self.chance(0.03):
            key, value = self.rng.choice([(VOID, value), (key, VOID)])
        return self.new_source(role, key, value)

    def new_source(self, role: str, key: Type, value: Type) -> tuple[dict, Flow]:
        name = self.topic({STREAM: "in", TABLE: "tab", GLOBAL: "glob"}[role], key, value, role)
        start: dict = {{STREAM: "stream", TABLE: "table", GLOBAL: "global_table"}[role]: name}
        versioned = False
        if role == STREAM and (key, value) == (self.default("key"), self.default("value")) and self.chance(0.15):
            return self.pattern(name, key, value)
        if role == STREAM and self.chance(0.06):
            other = self.topic("in", key, value, "extra")
            start["stream"] = [name, other]
            # A set of topics may not overlap with another: neither name is read elsewhere.
            self.roles[name] = "extra"
        elif self.chance(0.08):
            self.topics[name]["timestamp"] = self.time(key, value)
        if role != STREAM and self.chance(0.5):
            start["store"] = store(
                self, "kv" if role == TABLE else "global", versions=role == TABLE, nameless=role == TABLE
            )
            versioned = isinstance(start["store"], dict) and "versioned" in start["store"]
            self.keep(start, "key_value", key, value, shared=role == GLOBAL)
        if self.chance(0.15):
            start["name"] = self.unique("source")
        return start, Flow(role, key, value, versioned=versioned)

    def time(self, key: Type, value: Type) -> str:
        """The `timestamp` of a topic."""
        plain = ["timestamp + 7", "timestamp // 2", "abs(timestamp - 50)", "timestamp - 9", *POLICIES]
        number = self.expressions.number("value", value)
        forms = [
            f"timestamp + 3 if {self.expressions.plain_condition(key, value, context=False)} else timestamp",
            "timestamp or 5",
            f"timestamp and abs({number})",
            f"max(timestamp, {number})",
            "[each + 1 for each in [timestamp]][0]",
            "timestamp | 1",
            "sorted([timestamp, 9], key=lambda each: -each)[0]",
            "max(*[timestamp, 4], offset)",
        ]
        return self.rng.choice(forms if self.chance(self.expressions.shaped) else plain)

    def pattern(self, name: str, key: Type, value: Type) -> tuple[dict, Flow]:
        """A source of every topic that begins with a name: those are read with the default serdes."""
        for topic in (name, f"{name}-b"):
            self.topics[topic], self.types[topic], self.roles[topic] = {}, (key, value), "extra"
        return {"stream": {"pattern": f"{name}(-[a-z]+)?"}}, Flow(STREAM, key, value)

    def inline(self, role: str, key: Type, value: Type) -> tuple[dict, Flow]:
        """An inline source for `with:`, without name and store."""
        name = self.topic({STREAM: "in", TABLE: "tab"}[role], key, value, role)
        return {role: name}, Flow(role, key, value)


def draw(seed: int) -> Case:
    """The case of a seed."""
    rng = random.Random(seed)
    draft = Draft(rng, scale=rng.choice([1, 5, 100, 1000, 1000, 20_000]))
    if draft.chance(0.6):
        keys = [STRING, STRING, STRING, LONG, LONG, DOUBLE, JSON, UUID, BYTES]
        values = [STRING, STRING, LONG, LONG, JSON, JSON, FLOAT, SHORT, BYTES]
        draft.defaults = {"key": rng.choice(keys), "value": rng.choice(values)}
    for _ in range(rng.choice([1, 1, 2, 2, 3, 3, 4, 5, 6, 8])):
        draft.rng.choices((pipeline, global_store, fan, look), (20, 1, 1, 3))[0](draft)
    order = list(draft.pipelines.items())
    if draft.chance(0.3) and not draft.late:
        rng.shuffle(order)
    topology: dict = {"streamkit": 1, "application": f"fuzz-{seed}"}
    if options := config(draft):
        topology["config"] = options
    if draft.defaults:
        topology["defaults"] = draft.defaults
    topology["topics"] = draft.topics
    if draft.functions:
        topology["functions"] = functions(draft)
    if draft.stores:
        topology["stores"] = draft.stores
    topology["pipelines"] = dict(order)
    case = Case(topology, inputs.draw(draft))
    if draft.chance(0.5):
        topology["config"] = {**topology.get("config", {}), FORMAT: "HEADERS"}
    return case


def without_format(case: Case) -> Case:
    """The same case for a version of Kafka Streams whose stores have another format, or none."""
    config = {name: value for name, value in case.topology.get("config", {}).items() if name != FORMAT}
    return Case({**case.topology, "config": config}, case.input)


def windows_in_memory(draft: Draft, options: dict) -> bool:
    """Whether a store of sliding or session windows may lie in memory."""
    text = f"{draft.pipelines}{options}"
    in_memory = any(words in text for words in ("in_memory", "InMemory", "'persistent': False"))
    return in_memory and any(kind in text for kind in ("'sliding'", "'session'"))


def java_fails_alone(draft: Draft) -> bool:
    """Whether Java may fail where streamkit does not (docs/guarantees.md), which a handler would hide.

    A record from a timer may reach a foreign-key join, and a record without a key a left join with grace.
    """
    text = str(draft.pipelines)
    timers = "'on':" in text and ("__ts_" in text or "__tw_" in text)
    return timers or ("left_join" in text and "'grace'" in text)


def functions(draft: Draft) -> dict:
    """The functions that expressions call: their bodies have the same forms at their tops."""
    letters = [
        "(text + text)[:count]",
        "text[:count] or text",
        "text if count > 3 else text + text",
        "f'{text}{count}'",
    ]
    letters += ["(text + text)[:count] if count and text else text", "max([text], key=lambda each: -len(each))"]
    either = ["a or b", "a and b", "a if a > b else b", "max(*[a, b])", "[each for each in [b, a]][0]", "a | b & 3"]
    return {
        "letters": {"params": ["text", "count"], "expr": draft.rng.choice(letters)},
        "either": {"params": ["a", "b"], "expr": draft.rng.choice(either)},
    }


def config(draft: Draft) -> dict:
    options: dict = {}
    if draft.chance(0.4):
        options["statestore.cache.max.bytes"] = draft.rng.choice(
            (0, AMPLE) if "global" in draft.roles.values() else CACHES
        )
    if draft.chance(0.1):
        options["default.dsl.store"] = draft.rng.choice(["in_memory", "in_memory", "rocksDB"])
    if draft.chance(0.05):
        options["processing.guarantee"] = "exactly_once_v2"
    if draft.chance(0.3):
        optimizations = [
            "all",
            "all",
            "none",
            "merge.repartition.topics",
            "reuse.ktable.source.topics",
            "single.store.self.join",
        ]
        options["topology.optimization"] = draft.rng.choice(optimizations)
    if draft.failing and draft.chance(0.9) and not java_fails_alone(draft):
        options["processing.exception.handler"] = "continue"
    # The time of a record that does not decode counts for timers here (docs/guarantees.md).
    draft.undecodable = draft.undecodable and not any(word in str(draft.pipelines) for word in STREAM_TIME)
    if draft.undecodable:
        options["deserialization.exception.handler"] = "continue"
    if draft.chance(0.1):
        options["default.dsl.store"] = draft.rng.choice(["in_memory", "in_memory", "rocksDB"])
    if draft.chance(0.07):
        suppliers = draft.rng.choice(["InMemory", "InMemory", "RocksDB"])
        options["dsl.store.suppliers.class"] = (
            f"org.apache.kafka.streams.state.BuiltInDslStoreSuppliers${suppliers}DslStoreSuppliers"
        )
    if windows_in_memory(draft, options) and 0 < options.get("statestore.cache.max.bytes", AMPLE) < AMPLE:
        # Which of their entries a full cache evicts is not followed (docs/guarantees.md).
        options["statestore.cache.max.bytes"] = AMPLE
    if windows_in_memory(draft, options) and "sput" in str(draft.pipelines):
        # Cached sessions in memory come twice in Java where several of a key end at one time (docs/guarantees.md).
        options["statestore.cache.max.bytes"] = 0
    return options


def pipeline(draft: Draft) -> None:
    """Adds a pipeline: a source, some steps, and where it writes to."""
    name = draft.unique("p")
    reference = draft.find(draft.rng.choice([STREAM, STREAM, TABLE, TABLE, GROUPED])) if draft.chance(0.5) else None
    if reference:
        body, flow = {"from": reference}, draft.ends[reference]
    else:
        body, flow = draft.source(draft.rng.choice([STREAM] * 6 + [TABLE] * 4 + [GLOBAL]))
    written: list = []
    if flow.kind != GLOBAL:
        for _ in range(draft.rng.choice([0, 1, 1, 2, 2, 3, 4, 5])):
            if flow.kind == STREAM and draft.chance(0.08):
                ends.branch(draft, name, flow, written)
                body["steps"] = written
                draft.pipelines[name] = body
                return
            flow = steps.step(draft, flow, written)
        if flow.kind in (GROUPED, GROUPED_TABLE) and draft.chance(0.85 if flow.kind == GROUPED else 1.0):
            flow = steps.aggregation(draft, flow, written)
        if flow.kind == TABLE and draft.chance(0.6):
            if draft.chance(0.5):
                # The table stays open to references: its records go out in a pipeline of their own.
                end(draft, name, body, written, flow)
                name, body, written = draft.unique("p"), {"from": name}, []
            flow = steps.to_stream(draft, flow, written)
    end(draft, name, body, written, flow)
    if flow.kind == STREAM and draft.chance(0.8):
        body["to"] = ends.to(draft, flow)
    if flow.kind == STREAM and "to" not in body and draft.chance(0.3):
        body["for_each"] = named(draft, {"call": "fuzz_functions:ignore"})


def global_store(draft: Draft) -> None:
    """A global store that a processor keeps, or the rows of its topic."""
    key, value = draft.rng.choice((STRING, LONG)), draft.rng.choice((STRING, LONG, JSON))
    topic = draft.topic("shared", key, value, GLOBAL)
    name = draft.unique("global-rows-")
    body = {"global_store": topic, "store": name}
    if draft.chance(0.5):
        body["process"] = f"fuzz_scripts:K__{name.replace('-', '_')}"
    if draft.chance(0.3):
        body["name"] = draft.unique("keeper")
    draft.stores[name] = {"type": "key_value", "key": key, "value": value}
    draft.pipelines[draft.unique("p")] = body
    draft.kept.append(Kept(name, "key_value", key, value, shared=True))


def fan(draft: Draft) -> None:
    """A processor that chooses which of its children get a record."""
    key, value = draft.rng.choice(FANNED), draft.rng.choice(VALUES)
    body, flow = draft.new_source(STREAM, key, value)
    name = draft.unique("p")
    children = [draft.unique("kid") for _ in range(draft.rng.choice([1, 2, 3]))]
    step, flow = processors.fan(draft, flow, children)
    draft.pipelines[name] = {**body, "steps": [step]}
    draft.ends[name] = flow
    for child in children:
        written = draft.rng.choice(
            [{"peek": {"do": "value", "name": child}}, {"filter": {"if": "True", "name": child}}]
        )
        draft.pipelines[draft.unique("p")] = {
            "from": name,
            "steps": [written],
            "to": draft.topic("out", flow.key, flow.value, "out"),
        }


def look(draft: Draft) -> None:
    """A processor that looks into the store of another step, for each record of a stream of its own."""
    keys = sorted({each.key for each in draft.kept if each.key in FANNED})
    if not keys:
        return pipeline(draft)
    body, flow = draft.new_source(STREAM, draft.rng.choice(keys), draft.rng.choice(VALUES))
    written: list = []
    flow = processors.look(draft, flow, written)
    end(draft, draft.unique("p"), {**body, "to": ends.to(draft, flow)}, written, flow)


def end(draft: Draft, name: str, body: dict, written: list, flow: Flow) -> None:
    if written:
        body["steps"] = written
    draft.pipelines[name] = body
    draft.ends[name] = replace(flow)


__all__ = ["GLOBAL", "GROUPED", "GROUPED_TABLE", "STREAM", "TABLE", "Case", "Draft", "Flow", "Windowed", "draw"]
