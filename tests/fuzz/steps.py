"""Draws single steps: each adds itself to the pipeline and gives the flow behind it."""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz import grouping, joins, processors
from tests.fuzz.forms import LIST, STRING, drawn
from tests.fuzz.vocabulary import SCALARS, VALUES, Windowed, serde

STREAM, TABLE, GROUPED, GROUPED_TABLE = "stream", "table", "grouped", "grouped_table"


def store(draft, kind: str, retention: int = 0, versions: bool = False, nameless: bool = True):
    """The `store` option: a name, or the long form; `kind` is kv, window or global."""
    name = draft.unique("store-")
    if draft.chance(0.45):
        return name
    options: dict = {} if nameless and draft.chance(0.15) else {"name": name}
    if versions and "name" in options and draft.chance(0.35):
        options["versioned"] = draft.duration(1, 40)
        if draft.chance(0.2):
            options["segment_interval"] = draft.duration(1, 30)
        return options
    if draft.chance(0.4):
        options |= lying(draft)
    if draft.chance(0.35):
        options["caching"] = draft.chance(0.3)
    if draft.chance(0.15):
        options["logging"] = draft.chance(0.3)
    elif kind != "global" and draft.chance(0.1):
        options["config"] = {"segment.bytes": "1000000"}
    if kind == "window" and draft.chance(0.35):
        options["retention"] = f"{retention + draft.milliseconds(0, 20)}ms"
    for option in options:
        drawn[f"store: {kind}, {option}"] += 1
    return options or name


def lying(draft) -> dict:
    """Where a store lies, in either form."""
    persistent = draft.chance(0.2)
    return draft.rng.choice([{"persistent": persistent}, {"type": "persistent" if persistent else "in_memory"}])


def named(draft, options: dict, chance: float = 0.2) -> dict:
    if draft.chance(chance):
        options["name"] = draft.unique("node-")
    return options


def is_versioned(options: dict) -> bool:
    """Whether the step's store is a versioned one."""
    return isinstance(options.get("store"), dict) and "versioned" in options["store"]


def called(draft, name: str, text):
    """The expression, or now and then a Python callable of fuzz_functions.py in its place."""
    if not draft.chance(0.06):
        return text
    drawn[f"called: {name}"] += 1
    return {"call": f"fuzz_functions:{name}"}


def write(draft, written: list, step: str, main: str | None, options: dict) -> None:
    """Adds a step in its shortest form, or now and then in the long one."""
    options = {name: value for name, value in options.items() if value is not None}
    if not options:
        written.append(step)
    elif list(options) == [main] and not isinstance(options[main], dict) and draft.chance(0.7):
        written.append({step: options[main]})
    else:
        written.append({step: options})


def step(draft, flow, written: list):
    """One step that suits the flow, or an aggregation in several."""
    draft.expressions.context = flow.kind in (STREAM, GROUPED)
    if flow.kind in (GROUPED, GROUPED_TABLE):
        return grouping.aggregation(draft, flow, written)
    if flow.kind == TABLE:
        return draft.rng.choice(TABLE_STEPS)(draft, flow, written)
    return draft.rng.choice(STREAM_STEPS)(draft, flow, written)


def filter_(draft, flow, written):
    options = named(draft, {"if": called(draft, "odd", draft.expressions.condition(flow.key, flow.value))})
    versioned = flow.versioned
    if flow.kind == TABLE and draft.chance(0.35):
        options["store"] = store(draft, "kv", versions=True)
        versioned = is_versioned(options)
        draft.keep(options, "key_value", flow.key, flow.value)
    write(draft, written, draft.rng.choice(["filter", "filter", "filter_not"]), "if", options)
    return replace(flow, versioned=versioned)


def map_values(draft, flow, written):
    value = draft.rng.choice([*VALUES, LIST])
    null = 0.08 if flow.kind == TABLE else 0.04
    text = draft.expressions.of_record(value, flow.key, flow.value, null)
    options = named(draft, {"value": called(draft, "text", text) if value == STRING else text})
    options |= draft.serde_option("value", value)
    versioned = flow.versioned
    if flow.kind == TABLE and draft.chance(0.35):
        options["store"] = store(draft, "kv", versions=True)
        versioned = is_versioned(options)
        draft.keep(options, "key_value", flow.key, value)
    write(draft, written, "map_values", "value", options)
    return replace(flow, value=value, versioned=versioned)


def map_(draft, flow, written):
    key, value = draft.rng.choice(SCALARS), draft.rng.choice(VALUES)
    options: dict = named(draft, {})
    new = {}
    if draft.chance(0.7):
        options["key"] = draft.expressions.new_key(key, flow.key, flow.value)
        options |= draft.serde_option("key", key)
        new["key"] = key
    if not new or draft.chance(0.6):
        options["value"] = draft.expressions.of_record(value, flow.key, flow.value, 0.04)
        options |= draft.serde_option("value", value)
        new["value"] = value
    written.append({"map": options})
    return replace(flow, **new)


def select_key(draft, flow, written):
    key = draft.rng.choice(SCALARS)
    text = draft.expressions.new_key(key, flow.key, flow.value)
    options = named(draft, {"key": called(draft, "letter", text) if key == STRING else text})
    write(draft, written, "select_key", "key", options | draft.serde_option("key", key))
    return replace(flow, key=key)


def flat_map_values(draft, flow, written):
    value = draft.rng.choice(VALUES)
    expressions = draft.expressions
    text = expressions.items(lambda: expressions.of_record(value, flow.key, flow.value), flow.key, flow.value)
    if draft.chance(0.2) and text.startswith("["):
        text = f"[] if {expressions.condition(flow.key, flow.value)} else {text}"
    options = named(draft, {"values": text}) | draft.serde_option("value", value)
    write(draft, written, "flat_map_values", "values", options)
    return replace(flow, value=value)


def flat_map(draft, flow, written):
    key, value = draft.rng.choice(SCALARS), draft.rng.choice(VALUES)

    def pair() -> str:
        first = draft.expressions.new_key(key, flow.key, flow.value)
        return f"({first}, {draft.expressions.of_record(value, flow.key, flow.value)})"

    options = named(draft, {"records": draft.expressions.items(pair, flow.key, flow.value)})
    write(
        draft,
        written,
        "flat_map",
        "records",
        options | draft.serde_option("key", key) | draft.serde_option("value", value),
    )
    return replace(flow, key=key, value=value)


def peek(draft, flow, written):
    text = draft.expressions.of_record(draft.rng.choice(VALUES), flow.key, flow.value)
    write(draft, written, "peek", "do", named(draft, {"do": called(draft, "text", text)}))
    return flow


def print_(draft, flow, written):
    write(draft, written, "print", "label", named(draft, {"label": "look"}))
    return flow


def merge(draft, flow, written):
    others = []
    for _ in range(draft.rng.choice([1, 1, 2])):
        found = draft.find(STREAM, lambda other: (other.key, other.value) == (flow.key, flow.value))
        if found:
            others.append(found)
        elif not isinstance(flow.key, Windowed) and flow.value != LIST:
            others.append(draft.inline(STREAM, flow.key, flow.value)[0])
    if not others:
        return flow
    if len(others) > 1:
        written.append({"merge": others})
    elif isinstance(others[0], dict):
        written.append({"merge": named(draft, {"with": others[0]})})
    else:
        write(draft, written, "merge", "with", named(draft, {"with": others[0]}))
    return flow


def repartition(draft, flow, written):
    options: dict = named(draft, {}, 0.4)
    if draft.chance(0.4):
        options["partitions"] = draft.rng.choice([1, 2, 4])
    options |= in_hand(draft, flow)
    if draft.chance(0.15):
        options["partition"] = draft.rng.choice(["0", "None", "partitions - 1", "[0]", "0 if key is None else None"])
    write(draft, written, "repartition", "partitions", options)
    return flow


def in_hand(draft, flow) -> dict:
    """The serdes that the records have, written down once more."""
    options = {}
    if draft.chance(0.2) and not isinstance(flow.key, Windowed):
        options["key_serde"] = serde(flow.key)
    if draft.chance(0.2):
        options["value_serde"] = serde(flow.value)
    return options


def set_headers(draft, flow, written):
    headers: dict = {}
    for name in draft.rng.sample(["h", "new", "third"], draft.rng.choice([1, 1, 2])):
        text = draft.expressions.of_record(STRING, flow.key, flow.value, 0.1)
        headers[name] = None if draft.chance(0.2) else text
    written.append({"set_headers": named(draft, {"headers": headers})})
    return flow


def to_table(draft, flow, written):
    options = named(draft, {})
    if draft.chance(0.5):
        options["store"] = store(draft, "kv", versions=True)
        draft.keep(options, "key_value", flow.key, flow.value)
    write(draft, written, "to_table", "store", options)
    return replace(flow, kind=TABLE, versioned=is_versioned(options))


def to_stream(draft, flow, written):
    draft.expressions.context = False
    options = named(draft, {})
    key = flow.key
    if draft.chance(0.2):
        key = draft.rng.choice(SCALARS)
        options["key"] = draft.expressions.new_key(key, flow.key, flow.value)
        options |= draft.serde_option("key", key)
    write(draft, written, "to_stream", "key", options)
    return replace(flow, kind=STREAM, key=key, closes=False, versioned=False)


def suppress(draft, flow, written):
    if flow.closes and draft.chance(0.7):
        options: dict = {"until": "window_closes"}
        if draft.chance(0.2):
            options |= {"max_records": draft.rng.choice([1000, 1000, 3])}
            if draft.chance(0.3):
                options["when_full"] = "shut_down"
    else:
        options = {"until": draft.duration(1, 8)}
        if draft.chance(0.4):
            options["max_records"] = draft.rng.choice([1, 2, 3])
        if draft.chance(0.2):
            # Java's default serde carries a tag here, so that sizes in between differ where a step names no store.
            options["max_bytes"] = draft.rng.choice([1, 20, 1_000_000])
        if len(options) > 1 and draft.chance(0.3):
            options["when_full"] = "emit_early"
    if draft.chance(0.2):
        options["logging"] = False
    elif draft.chance(0.1):
        options["config"] = {"segment.bytes": "1000000"}
    write(draft, written, "suppress", "until", named(draft, options))
    return replace(flow, versioned=False)


def transform(draft, flow, written):
    """`process_values` of a table."""
    options = named(draft, {"call": "fuzz_functions:marked", **draft.serde_option("value", STRING)})
    if draft.chance(0.5):
        options["store"] = store(draft, "kv")
    written.append({"process_values": options})
    return replace(flow, value=STRING, versioned=False)


def branch(draft, name: str, flow, written: list) -> None:
    """A branch step, the pipeline's last; its branches become open to references."""
    from tests.fuzz import generate

    draft.expressions.context = True
    listed = draft.chance(0.25)
    when: list = []
    open_ends = {}
    for at, branch_name in enumerate(draft.rng.sample(["one", "two", "three"], draft.rng.choice([1, 2, 3])), 1):
        body, end = below_branch(draft, flow)
        if listed and draft.chance(0.7):
            open_ends[f"{name}.{at}"] = end
            when.append(body)
        else:
            open_ends[f"{name}.{branch_name}"] = end
            when.append(({"name": branch_name} | body) if listed and isinstance(body, dict) else (branch_name, body))
    if listed:
        # A bare condition has no place for a name.
        when = [{"name": each[0], "if": each[1]} if isinstance(each, tuple) else each for each in when]
    options: dict = {"when": when if listed else dict(when)}
    if draft.chance(0.5):
        options["default"] = True if listed and draft.chance(0.5) else "rest"
        open_ends[f"{name}.0" if options["default"] is True else f"{name}.rest"] = flow
    if draft.chance(0.3):
        options["name"] = draft.unique("split-") + "-"
    drawn["branch: list" if listed else "branch: names"] += 1
    written.append({"branch": options})
    for reference, end in open_ends.items():
        draft.ends[reference] = generate.Flow(STREAM, end.key, end.value)


def below_branch(draft, flow):
    """A branch's condition, or a mapping with it and what hangs below; and the flow at the branch's end."""
    condition = called(draft, "odd", draft.expressions.condition(flow.key, flow.value))
    if draft.chance(0.5) and isinstance(condition, str):
        return condition, flow
    inner: list = []
    end = flow
    for _ in range(draft.rng.choice([0, 1, 2])):
        end = draft.rng.choice(SIMPLE_STEPS)(draft, end, inner)
    body: dict = {"if": condition}
    if inner:
        body["steps"] = inner
    if draft.chance(0.6):
        body["to"] = to(draft, end)
    elif draft.chance(0.3):
        body["for_each"] = {"call": "fuzz_functions:ignore"}
    if (inner or len(body) > 1) and draft.chance(0.2):
        body["chained"] = True
        drawn["branch: chained"] += 1
    return body, end


def to(draft, flow):
    """Where a stream is written to: a topic, sometimes by a route, by a partition or read again later."""
    draft.expressions.context = True
    topic = draft.topic("out", flow.key, flow.value, "out")
    if draft.chance(0.07):
        other = draft.topic("out", flow.key, flow.value, "out")
        condition = draft.expressions.plain_condition(flow.key, flow.value)
        forms = [
            f'"{topic}" if {condition} else "{other}"',
            f'{condition} and "{topic}" or "{other}"',
            f'["{topic}", "{other}"][bool({condition})]',
            f'min([each for each in ["{topic}", "{other}"] if {condition}] or ["{other}"], key=lambda each: each)',
        ]
        route = draft.rng.choice(forms if draft.expressions.shaped else forms[:1])
        return named(draft, {"route": route})
    if draft.chance(0.08) and not isinstance(flow.key, Windowed) and flow.value != LIST:
        draft.roles[topic] = "through"
        draft.ends[reader(draft, topic)] = replace(flow, kind=STREAM, closes=False)
    if draft.chance(0.2):
        options = named(draft, {"topic": topic}, 0.7)
        return options | ({"partition": partition(draft, flow)} if draft.chance(0.3) else {})
    return topic


def partition(draft, flow) -> str:
    """A partition of the one that each topic has."""
    number = draft.expressions.number("value", flow.value)
    condition = draft.expressions.plain_condition(flow.key, flow.value)
    return draft.rng.choice(
        [
            "0",
            f"abs({number}) % partitions",
            f"0 if {condition} else partitions - 1",
            f"None if {condition} else partitions - 1",
            f"[] if {condition} else [0, partitions - 1]",
            f"{condition} and 0 or 0",
            "0 or partitions - 1",
            "min([partitions - 1, 5], key=lambda each: each)",
        ]
    )


def reader(draft, topic: str) -> str:
    """A pipeline that reads a written topic again."""
    name = draft.unique("p")
    draft.pipelines[name] = {"stream": topic}
    return name


def aggregation(draft, flow, written):
    return grouping.aggregation(draft, flow, written)


SIMPLE_STEPS = [filter_, map_values, map_, select_key, peek, set_headers]
STREAM_STEPS = (
    SIMPLE_STEPS
    + [
        filter_,
        map_values,
        select_key,
        flat_map_values,
        flat_map,
        print_,
        merge,
        merge,
        repartition,
        to_table,
        processors.process,
        processors.process,
        processors.process_values,
    ]
    + [grouping.group] * 7
    + [joins.stream_stream] * 4
    + [joins.stream_table] * 4
    + [joins.stream_global] * 2
)
TABLE_STEPS = (
    [filter_, filter_, map_values, map_values, transform, to_stream, to_stream, suppress, suppress]
    + [grouping.group_table] * 4
    + [joins.table_table] * 4
    + [joins.foreign_key] * 3
)
