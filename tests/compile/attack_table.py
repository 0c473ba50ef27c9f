"""The table of what topologies that would exhaust the machine end in: `make attacks`.

Each row is run by `streamkit try` and by `streamkit run --until-idle` on the embedded log, as a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

from tests.compile.attacks import LONG, PRIME, Attack

LONGEST = 120
"""Seconds after which a row is taken for one without an end."""


def _map(expression: str) -> str:
    return f"map_values: {json.dumps(expression)}"


def _aggregate(initial: str, add: str) -> list[str]:
    return ["group_by_key", f"aggregate: {{initial: {json.dumps(initial)}, add: {json.dumps(add)}}}", "to_stream"]


_EQUAL = [PRIME * at for at in range(1, 50_000)]
ROWS: dict[str, Attack] = {
    "30 steps [value, value]": Attack([_map("[value, value]")] * 30, ["x"]),
    "30 steps value + value": Attack([_map("value + value")] * 30, ["x"]),
    "aggregate + aggregate, 40 records": Attack(_aggregate("'x'", "aggregate + aggregate"), [1] * 40),
    "an object of a field a record, itself each, 100 records": Attack(
        _aggregate("{}", "{**aggregate, str(len(aggregate)): aggregate}"), [1] * 100
    ),
    "an object of a field a record, 1 MB each, 100 records": Attack(
        _aggregate("{}", "{**aggregate, str(len(aggregate)): value}"), [LONG] * 100
    ),
    "an object of a field a record, 5,000 records": Attack(
        _aggregate("{}", "{**aggregate, str(value): value}"), list(range(5_000))
    ),
    "a set of equal hashes": Attack([_map("len(set(value))")], [_EQUAL]),
    "an object of equal hashes": Attack([_map("{x: 1 for x in value}")], [_EQUAL]),
    "strip in a loop over 1 MB": Attack([_map("[value.strip(x) for x in ['ab', 'ba', value]]")], [LONG]),
    "rfind in a loop over 1 MB": Attack(
        [_map("[value.rfind('b' + x + 'a' * 300) for x in value[:2000]]")], ["a" * 1_000_000]
    ),
    "60 slices of 1 MB": Attack([_map("[" + ", ".join(f"value[{at}:]" for at in range(60)) + "]")], [LONG]),
}


@dataclass
class Outcome:
    """What a command ended in; seconds of processor time, MB of memory at most, MB of output."""

    code: int
    error: str
    seconds: float
    memory: float
    output: float


def measured(folder: Path, *arguments: str, records: Path | None = None) -> Outcome:
    """Run the command line in a folder, as a process of its own."""
    out, err = folder / "stdout", folder / "stderr"
    environment = {**os.environ, "STREAMKIT_STATE_DIR": str(folder / "state")}
    command = [sys.executable, "-m", "streamkit_cli", *arguments]
    with open(out, "wb") as stdout, open(err, "wb") as stderr, open(records or os.devnull, "rb") as stdin:
        process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, cwd=folder, env=environment)
        guard = Timer(LONGEST, process.kill)
        guard.start()
        _, status, usage = os.wait4(process.pid, 0)
        guard.cancel()
    process.returncode = code = os.waitstatus_to_exitcode(status)
    return Outcome(
        code,
        err.read_text(encoding="utf-8", errors="replace").strip(),
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
        out.stat().st_size / 1e6,
    )


def outcomes(attack: Attack, folder: Path) -> Iterator[tuple[str, Outcome]]:
    """Run a topology by both commands and yield the command with what it ended in."""
    (folder / "topology.yaml").write_text(attack.topology(), encoding="utf-8")
    records = folder / "records.jsonl"
    with open(records, "w", encoding="utf-8") as file:
        for at, value in enumerate(attack.values):
            file.write(json.dumps({"topic": "in", "key": "k", "value": value, "timestamp": 1_000_000_000 + at}) + "\n")
    yield "try", measured(folder, "try", "topology.yaml", "--input", "records.jsonl")
    produced = measured(folder, "produce", "topology.yaml", records=records)
    assert produced.code == 0, produced.error
    yield "run", measured(folder, "run", "topology.yaml", "--until-idle")


if __name__ == "__main__":
    for name, attack in ROWS.items():
        if len(sys.argv) > 1 and not any(word in name for word in sys.argv[1:]):
            continue
        with tempfile.TemporaryDirectory() as folder:
            for command, found in outcomes(attack, Path(folder)):
                print(
                    f"{name} | {command} | exit {found.code} | {found.seconds:.1f} s | {found.memory:.0f} MB"
                    f" | {found.output:.1f} MB out | {found.error[:300] or 'no error'}",
                    flush=True,
                )
