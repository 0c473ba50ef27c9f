"""Draws processors: fixed ones of fuzz_functions.py, and scripts of fuzz_scripts.py over stores of every kind."""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz.forms import ANY, BYTES, DOUBLE, LIST, LONG, STRING, VOID, drawn
from tests.fuzz.kinds import (
    serde,
)

KINDS = ("key_value", "key_value", "window", "session", "versioned", "none")
# Operations by kind of store; a letter stands for what is drawn: b a bound, k a key, t a time ago, r 0 or 1.
ANYWHERE = ["where", "commit", "later", "spawn_t"]
OPERATIONS = {
    "none": ["where", "later", "spawn_t"],
    "key_value": ["get", "put", "put", "put", "clear", "absent", "delete", "range_b_b_r", "all_r", "range_b_b_r"],
    "window": ["wput_t", "wput_t", "wput_t", "wclear_t", "wget_t", "wfetch_t_r", "wfetchall_t_r", "all_r"],
    "session": ["sput_t", "sput_t", "sput_t", "sclear_t", "sremove_t", "sfetch_r", "sfind_t_r"],
    "versioned": ["vput_t", "vput_t", "vput_t", "vclear_t", "vdelete_t", "vget", "vasof_t"],
}
MOST = 4
# What only reads a store of a step; the words of its kind that write are for stores of numbers.
READING = {
    "key_value": ["get", "range_b_b_r", "all_r"],
    "window": ["wget_t", "wfetch_t_r", "wfetchall_t_r", "all_r"],
    "session": ["sfetch_r", "sfind_t_r"],
    "versioned": ["vget", "vasof_t"],
}
KEYS = {STRING: "string", LONG: "long", DOUBLE: "double", ANY: "json"}


def process(draft, flow, written, step: str = "process"):
    """A `process` or `process_values` step."""
    # Timers of one processor below those of another multiply records.
    if flow.key in KEYS and draft.numbers.get("script", 0) < MOST and draft.chance(0.7):
        draft.unique("script")
        call, options = script(draft, flow, step == "process")
        flow = replace(flow, value=LIST)
    elif step == "process_values":
        call, options = "fuzz_functions:again", {}
    elif flow.key == STRING and draft.chance(0.5):
        draft.stores.setdefault(
            "seen", {"type": "key_value", "key": STRING, "value": LONG, "persistent": draft.chance(0.5)}
        )
        call, options = "fuzz_functions:Seen", {"stores": ["seen"]}
        flow = replace(flow, value=LONG)
    else:
        # A timer of 1 ms before `twice`, which adds 1 ms, and a repartition topic behind it never end in a test driver.
        twice = "fuzz_functions:twice" if draft.scale > 1 else "fuzz_functions:Tick"
        call, options = draft.rng.choice([twice, "fuzz_functions:Tick"]), {}
    if step == "process":
        options |= draft.serde_option("key", flow.key)
    options |= draft.serde_option("value", flow.value)
    if draft.chance(0.2):
        options["name"] = draft.unique("node-")
    written.append({step: {"call": call, **options}})
    return flow


def process_values(draft, flow, written):
    return process(draft, flow, written, "process_values")


def script(draft, flow, free: bool) -> tuple[str, dict]:
    """The name of a script and the options of its step; `free`: whether it may change keys."""
    if draft.chance(0.5) and (found := kept(draft, flow.key)):
        return beside(draft, flow, found)
    kind = draft.rng.choice(KINDS)
    name = "none" if kind == "none" else store(draft, kind, flow.key)
    words = draft.rng.choices([*OPERATIONS[kind], *draft.rng.sample(ANYWHERE, 1)], k=draft.rng.choice([1, 2, 3, 4, 6]))
    if kind == "key_value" and flow.key == STRING and draft.chance(0.3):
        words.append("prefix_k")
    if free and draft.chance(0.15):
        words.append("rekey_k")
    words += timers(draft)
    if kind != "none" and draft.stores[name].get("caching"):
        words = without_surprises(words)
    return called(draft, flow, name, words), ({} if name == "none" else {"stores": [name]})


def without_surprises(words: list[str]) -> list[str]:
    """Java's cached stores read backwards yield deleted rows, and those of sessions fail before their first put."""
    return [word if word.startswith("t") else word.replace("_r", "_0") for word in words]


def timers(draft) -> list[str]:
    # Several timers of one interval are due together.
    intervals = [draft.rng.choice([1, 2, 3, 7]) for _ in range(2)]
    clocks = [draft.rng.choice(["ts", "ts", "ts", "tw"]) for _ in range(draft.rng.choice([0, 0, 1, 2, 3, 5]))]
    return [f"{clock}_{draft.rng.choice(intervals)}_{draft.rng.choice('nnrc')}" for clock in clocks]


def called(draft, flow, name: str, words: list[str]) -> str:
    """The name of the script of these words, with what is open in them drawn."""
    for word in words:
        drawn[f"script: {word.partition('_')[0]}"] += 1
    parts = [
        "S",
        name.replace("-", "_"),
        KEYS[flow.key],
        str(max(1, draft.scale)),
        *[filled(draft, word) for word in words],
    ]
    return f"fuzz_scripts:{'__'.join(parts)}"


def kept(draft, key):
    """A store of another step or a global one with keys of the type; None if there is none."""
    found = [each for each in draft.kept if each.key == key and each.value not in (BYTES, VOID)]
    kind = draft.rng.choice(sorted({each.kind for each in found})) if found else None
    return draft.rng.choice([each for each in found if each.kind == kind]) if kind else None


def look(draft, flow, written):
    """A step that does nothing but that, and the flow behind it."""
    found = kept(draft, flow.key)
    if not found:
        return flow
    call, options = beside(draft, flow, found)
    step = draft.rng.choice(["process", "process_values"])
    options |= draft.serde_option("value", LIST) | (draft.serde_option("key", flow.key) if step == "process" else {})
    written.append({step: {"call": call, **options}})
    return replace(flow, value=LIST)


def beside(draft, flow, found) -> tuple[str, dict]:
    """A script over the store of another step."""
    words = READING[found.kind]
    if found.value == LONG and not found.shared and draft.chance(0.4):
        words = OPERATIONS[found.kind]
    words = draft.rng.choices([*words, *draft.rng.sample(ANYWHERE, 1)], k=draft.rng.choice([1, 2, 3, 4]))
    words = without_surprises([*words, *timers(draft)])
    draft.late = True
    drawn[f"script beside: {found.kind}, {'global' if found.shared else 'step'}"] += 1
    return called(draft, flow, found.name, words), ({} if found.shared else {"stores": [found.name]})


def fan(draft, flow, children: list[str]):
    """A step whose script hands records to children by their names, and the flow behind it."""
    words = [f"to_{child.removeprefix('kid')}" for child in draft.rng.choices(children, k=draft.rng.choice([1, 2, 3]))]
    words += draft.rng.sample(ANYWHERE, 1) + timers(draft)
    draft.rng.shuffle(words)
    flow = replace(flow, value=LIST)
    step = draft.rng.choice(["process", "process_values"])
    options = draft.serde_option("value", LIST) | (draft.serde_option("key", flow.key) if step == "process" else {})
    return {step: {"call": called(draft, flow, "none", words), **options}}, flow


def filled(draft, word: str) -> str:
    name, *parts = word.split("_")
    if name in ("ts", "tw", "to"):
        return word
    choices = {"b": (0, 1, 2, 3, 9), "k": (0, 1, 2, 3), "t": (0, 0, 1, 2, 5), "r": (0, 1)}
    if name == "spawn":
        return f"spawn_{draft.rng.choice([1, 2, 3])}"
    return "_".join([name, *[str(draft.rng.choice(choices[part])) if part in choices else part for part in parts]])


def store(draft, kind: str, key: str) -> str:
    """A store of the file: a new one, or one that processors share."""
    wanted = {"type": kind, "key": serde(key)}
    shared = [name for name, body in draft.stores.items() if wanted.items() <= body.items() and name.startswith("own")]
    if shared and draft.chance(0.4):
        return draft.rng.choice(shared)
    body = {**wanted, "value": LONG}
    if kind != "versioned":
        if draft.chance(0.5):
            body["persistent"] = draft.chance(0.3)
        if draft.chance(0.4):
            body["caching"] = draft.chance(0.7)
    if kind == "session" and body.get("caching"):
        # Java's cached sessions in memory come twice where several of a key end at one time (docs/guarantees.md).
        body.pop("persistent", None)
    if draft.chance(0.2):
        body["logging"] = draft.chance(0.3)
    if kind in ("window", "session"):
        body["retention"] = draft.duration(4, 30)
    if kind == "window":
        body["window_size"] = draft.duration(1, 4)
    if kind == "versioned":
        body["history"] = draft.duration(3, 40)
    for option in body:
        drawn[f"store of a processor: {kind}, {option}"] += 1
    name = f"own{len(draft.stores)}"
    draft.stores[name] = body
    return name
