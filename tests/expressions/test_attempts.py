"""Attempts to exhaust the machine or to reach the interpreter end in a right value or in one clear error."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.expressions.attempts import MAX_BYTES, MAX_STEPS, every

MEGABYTES = 450
"""Memory of the process, with all values that the attempts are on."""
NO_END = 300
"""Seconds after which the process is taken for one without an end."""


def test_every_attempt_ends_within_the_budget_of_a_record() -> None:
    # The process has 2 GB of address space.
    command = [sys.executable, "-m", "tests.expressions.attempts"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=NO_END, check=True)
    found = list(map(json.loads, done.stdout.splitlines()))
    assert [(each["kind"], each["on"], each["text"]) for each in found] == list(every())
    assert len(found) >= 200
    for each in found:
        end, text = each["end"], each["text"]
        assert end in ("value", "limit", "error", "problem"), text
        if end == "value":
            assert each["steps"] <= MAX_STEPS, text
            assert each["bytes"] <= MAX_BYTES, text
            # A program that counts nothing may run what does not draw: it gives the same.
            assert each["draws"] or each["same"], text
        else:
            assert each["message"], text
            assert "Memory" not in each["message"], text
            assert "Recursion" not in each["message"], text
        if end != "problem":
            assert each["megabytes"] < MEGABYTES, text
        else:
            assert all(line >= 1 and column >= 1 for line, column in each["places"]), text
            assert each["places"], text
