"""A topology that a program of Python builds, with functions that no module has, as a job on Spark's workers."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

PROGRAM = """
import streamkit

minimum = 3
topology = streamkit.Topology("large-orders")


@topology.processor(stores={"seen": {"key": "string", "value": "long"}})
def first_of_user(record, context):
    if context.store("seen").put_if_absent(record.key, record.timestamp) is None:
        yield record


orders = topology.stream("orders", key="string", value="json").filter(lambda order: order["n"] >= minimum)
orders.process(first_of_user, value_serde="json").to("first", value="json")
sums = orders.group_by(lambda order: order["user"], key_serde="string").aggregate(
    lambda: 0, add=lambda aggregate, value: aggregate + value["n"], value_serde="long", store="sums"
)
sums.to_stream().to("sums", value="long")
outputs = {topic: f"{folder}/{topic}" for topic in ("sums", "first")}
topology.submit("local[2]", {"orders": f"{folder}/orders.jsonl"}, outputs, emit="final")
"""


@pytest.mark.usefixtures("own_session")
def test_lambdas_run_on_the_workers_of_spark(tmp_path: Path):
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    orders = [{"topic": "orders", "key": f"k{n % 2}", "value": {"user": f"u{n % 3}", "n": n}} for n in range(8)]
    text = "".join(json.dumps({**order, "timestamp": n}) + "\n" for n, order in enumerate(orders))
    (tmp_path / "orders.jsonl").write_text(text, encoding="utf-8")
    runpy.run_path(str(tmp_path / "program.py"), {"folder": tmp_path}, "__main__")
    found = {
        topic: sorted(
            (each["key"], each["value"])
            for part in (tmp_path / topic).glob("part-*")
            for each in map(json.loads, part.read_text(encoding="utf-8").splitlines())
        )
        for topic in ("sums", "first")
    }
    assert found["sums"] == [("u0", 3 + 6), ("u1", 4 + 7), ("u2", 5)]
    assert [(key, value["n"]) for key, value in found["first"]] == [("k0", 4), ("k1", 3)]
