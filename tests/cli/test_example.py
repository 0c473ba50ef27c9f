"""The word count example: its README's commands on the embedded log, against a plain count."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.cli.support import streamkit

EXAMPLE = Path(__file__).parent.parent.parent / "topologies/word-count"
TOPOLOGY = EXAMPLE / "topology.yaml"


def test_the_counts_are_those_of_a_plain_count(tmp_path: Path) -> None:
    text = (EXAMPLE / "lines.txt").read_text(encoding="utf-8")
    state = {"STATE_DIR": str(tmp_path)}
    assert streamkit("produce", TOPOLOGY, "lines", "--lines", stdin=text, **state).code == 0
    done = streamkit("run", TOPOLOGY, "--until-idle", **state)
    assert (done.code, done.out, done.err) == (0, "", "")
    done = streamkit("consume", TOPOLOGY, "word-counts", "--until-idle", **state)
    counts = {record["key"]: record["value"] for record in map(json.loads, done.out.splitlines())}
    assert counts == Counter(re.findall("[a-z]+", text.lower()))
    shown = subprocess.run([sys.executable, EXAMPLE / "top.py"], input=done.out, capture_output=True, text=True)
    assert shown.returncode == 0
    assert shown.stdout.lstrip().startswith("the")


def test_its_small_input_can_be_tried() -> None:
    done = streamkit("try", TOPOLOGY, "--input", EXAMPLE / "records.jsonl")
    assert (done.code, done.err) == (0, "")
    counts = [(record["key"], record["value"]) for record in map(json.loads, done.out.splitlines())]
    assert counts[-3:] == [("join", 1), ("kafka", 3), ("summit", 1)]
