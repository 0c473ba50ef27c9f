"""Topologies that would exhaust the machine, run one after the other: `python -m tests.compile.attacks FOLDER`.

Prints a JSON line for each with the error that it ends in, and at the end the most memory that the process had, in kB.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamkit.errors import StreamkitError
from streamkit.plan import load
from streamkit.runtime.driver import Driver

PRIME = 2**61 - 1
LONG = "ab" * 500_000
SPACE = 2 << 30


@dataclass
class Attack:
    """Steps between the topics `in` and `out`, and the values of the records that come in."""

    steps: list[str]
    values: list[Any]
    functions: str = "{}"
    topics: str = "in: {value: json}, other: {value: json}, out: {value: json}"
    pipelines: str = ""

    def topology(self) -> str:
        """Return the text of the file."""
        steps = "".join(f"      - {step}\n" for step in self.steps)
        plain = f"  p:\n    stream: in\n    steps:\n{steps}    to: out\n"
        return (
            f"streamkit: 1\napplication: app\ntopics: {{{self.topics}}}\nfunctions: {self.functions}\n"
            f"pipelines:\n{self.pipelines or plain}"
        )


def _map(expression: str) -> str:
    return f"map_values: {json.dumps(expression)}"


def _aggregate(add: str, initial: str = "'x'") -> list[str]:
    return [
        "group_by_key",
        f"aggregate: {{initial: {json.dumps(initial)}, add: {json.dumps(add)}}}",
        "to_stream",
    ]


def _merges(levels: int) -> str:
    """Return pipelines of which each merges the one before with itself, over a filter."""
    text = "  p0:\n    stream: in\n"
    for level in range(levels):
        text += (
            f"  a{level}:\n    from: p{level}\n    steps:\n      - filter: 'True'\n"
            f"  p{level + 1}:\n    from: p{level}\n    steps:\n      - merge: a{level}\n"
        )
    return text + f"  end:\n    from: p{levels}\n    to: out\n"


_DEEP = ["[value, value]"] * 30
_PAIR = "{'a': [value.a, value.a], 'b': [value.b, value.b]}"
_NESTED = "{two: {params: [x], expr: '[x, x]'}, four: {params: [x], expr: two(two(two(two(x))))}}"
ATTACKS: dict[str, Attack] = {
    "lists of lists": Attack([_map(each) for each in _DEEP], ["x"]),
    "text doubled": Attack([_map("value + value")] * 30, ["x"]),
    "keys doubled": Attack(["select_key: '[key, key]'", *["select_key: key + key"] * 30], ["x"]),
    "headers": Attack(["set_headers: {headers: {a: \"str(value) * 3 + (header('a') or '')\"}}", _map("[header('a')] * 9")] * 30, [LONG[:9]]),
    "aggregate doubled": Attack(_aggregate("aggregate + aggregate"), [1] * 40),
    "aggregate that collects": Attack(_aggregate("{**aggregate, str(len(aggregate)): value}", "{}"), [LONG] * 40),
    "aggregate that collects itself": Attack(_aggregate("{**aggregate, str(len(aggregate)): aggregate}", "{}"), [1] * 40),
    "top list": Attack(["group_by_key", "top: {n: 10000, by: len(value)}", "to_stream"], [LONG] * 40),
    "texts of JSON": Attack([_map("to_json([value, value])")] * 30, ["x\""]),
    "matches replaced": Attack([_map("re_sub('a', value, value)")] * 9, ["aaa"]),
    "set of equal hashes": Attack([_map("len(set(value))")], [[PRIME * at for at in range(1, 50_000)]]),
    "object of equal hashes": Attack([_map("len({x: 1 for x in value})")], [[PRIME * at for at in range(1, 50_000)]]),
    "strip": Attack([_map("[value.strip(x) for x in ['ab', 'ba', value]]")], [LONG]),
    "rfind": Attack([_map("[value.rfind('b' + x + 'a' * 300) for x in value[:2000]]")], ["a" * 1_000_000]),
    "count": Attack([_map("[value.count(x + 'zz') for x in value]")], [LONG]),
    "in": Attack([_map("[x + 'zz' in value for x in value]")], [LONG]),
    "replace": Attack([_map("len([value.replace(x, x + x) for x in value])")], [LONG]),
    "split": Attack([_map("len([value.split(x) for x in value])")], [LONG]),
    "slices": Attack([_map("[" + ", ".join(f"value[{at}:]" for at in range(60)) + "]")], [LONG]),
    "loops in loops": Attack([_map("len([z for x in value for y in value for z in value])")], [list(range(3000))]),
    "keys that are long": Attack([_map("sorted(value.rows, key=lambda x: [value.big, x])[0]")], [{"big": list(range(50_000)), "rows": list(range(3000))}]),
    "comparing": Attack([_map(_PAIR)] * 30 + [_map("value.a == value.b")], [{"a": [1], "b": [1]}]),
    "str": Attack([_map(each) for each in _DEEP[:22]] + [_map("len(str(value))")], ["x"]),
    "widths": Attack([_map("[value % 1, value % 2, value % 3, value % 4, value % 5, value % 6, value % 7, value % 8]")], ["%9999999d"]),
    "records": Attack(["flat_map_values: '[value, value]'"] * 30, ["x"]),
    "pairs": Attack(["flat_map: '[(key, value), (key, value)]'"] * 30, ["x"]),
    "functions": Attack([_map("four(" * 7 + "value" + ")" * 7)], ["x"], _NESTED),
    "repeated": Attack([_map("[" + ", ".join(f"value * {9_000_000 + at}" for at in range(8)) + "]")], ["x"]),
    "powers": Attack([_map("[(x * y) // (x + 1) for x in value for y in value]")], [[2**2000 + at for at in range(4000)]]),
    "patterns": Attack([_map("[re_match('(a|b)*c' + str(x), value) for x in range(2000)]")], [LONG]),
    "merges": Attack([], ["x"], pipelines=_merges(30)),
    "windows": Attack(
        ["group_by_key", "window: {hopping: 1d, advance: 1s}", "aggregate: {initial: \"''\", add: value}", "to_stream", "select_key: \"'k'\""],
        ["y" * 100_000],
    ),
    "tables looked up": Attack(
        [],
        [LONG[:50]],
        pipelines="  t:\n    table: other\n    steps:\n"
        + "".join("      - map_values: '[value, value]'\n" for _ in range(30))
        + "  p:\n    stream: in\n    steps:\n      - join: {with: t, value: right}\n    to: out\n",
    ),
}  # fmt: skip


def run(folder: Path) -> Iterator[dict[str, str]]:
    """Run all attacks and yield what each of them ends in."""
    for name, attack in ATTACKS.items():
        path = folder / "topology.yaml"
        path.write_text(attack.topology(), encoding="utf-8")
        ended = ""
        driver: Driver | None = None
        try:
            driver = Driver(load(path))
            driver.pipe({"topic": "other", "key": "k", "value": "x", "timestamp": 0}) if "table" in name else None
            for at, value in enumerate(attack.values):
                driver.pipe({"topic": "in", "key": "k", "value": value, "timestamp": 1_000_000_000 + at})
        except StreamkitError as error:
            ended = str(error)
        finally:
            driver = None
            gc.collect()
        yield {"name": name, "error": ended}


def most_memory() -> int:
    """Return the most memory (kB) that this process had; `ru_maxrss` begins with that of the process that started it."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise AssertionError("the system does not show how much memory the process had")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (SPACE, SPACE))
    for line in run(Path(sys.argv[1])):
        print(json.dumps(line), flush=True)
    print(most_memory())
