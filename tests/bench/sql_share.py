"""How many of the conformance topologies `submit` runs as Spark SQL, and the most frequent reasons why not.

    python -m tests.bench.sql_share

Each input of a case counts as a table with the columns of the case's records, and each output as Parquet. No session of Spark is needed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import types

from streamkit.errors import StreamkitError
from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.runtime.spark.job import Job
from streamkit.runtime.spark.job_options import PARQUET, JobOptions, Place
from streamkit.runtime.spark.rows.files import FILES
from streamkit.runtime.spark.sql.sources import InputColumns
from streamkit.runtime.spark.sql.stages import SQL
from streamkit.runtime.spark.stage_plan import topics_read, written_topics
from streamkit.runtime.spark.submission.submit_job import declared_counts
from tests.conformance_cases import CASES

_SCALARS: dict[type, types.DataType] = {
    bool: types.BooleanType(),
    int: types.LongType(),
    float: types.DoubleType(),
    str: types.StringType(),
}


def type_of(values: Iterable[Any]) -> types.DataType:
    """The type that a column of a lake has for values."""
    found = [value for value in values if value is not None]
    kinds = {type(value) for value in found}
    if kinds == {dict}:
        names = dict.fromkeys(name for value in found for name in value)
        return types.StructType(
            [types.StructField(name, type_of(value.get(name) for value in found)) for name in names]
        )
    if kinds == {list}:
        return types.ArrayType(type_of(each for value in found for each in value))
    if kinds == {int, float}:
        return types.DoubleType()
    return _SCALARS.get(kinds.pop(), types.NullType()) if len(kinds) == 1 else types.NullType()


def columns(records: list[dict[str, Any]]) -> InputColumns:
    """The columns of a table of records."""
    fields = [types.StructField(part, type_of(record.get(part) for record in records)) for part in ("key", "value")]
    schema = types.StructType([*fields, types.StructField("timestamp", types.LongType())])
    return InputColumns(schema, False, FILES, numbered=1)


def job_of(plan: Plan, records: list[dict[str, Any]]) -> Job:
    """The job over all inputs of a topology, whose outputs are Parquet."""
    inputs = {topic: (Place(topic, PARQUET),) for topic in topics_read(plan)}
    outputs = {
        topic: Place(f"out/{topic}", PARQUET) for sub in plan.sub_topologies for topic in written_topics(plan, sub)
    }
    external = {topic: place for topic, place in outputs.items() if topic in plan.external_topics}
    found = {topic: [columns([record for record in records if record["topic"] == topic])] for topic in inputs}
    counts = {topic: plan.external_topics[topic].partitions or 1 for topic in plan.external_topics}
    return Job(plan, {**counts, **declared_counts(plan, inputs)}, JobOptions(inputs, external), columns=found)


def kind_of(reason: str) -> str:
    """The reason without the names of the case."""
    plain = re.sub(r"^/\S+:\d+: ", "", reason)
    plain = re.sub(r"pipeline \S+, step (\w+): .*", r"step \1", plain)
    plain = re.sub(
        r"stage \d+, which \w+ \S+, runs in Python.*",
        "another stage, with which it shares records, runs in Python",
        plain,
    )
    plain = re.sub(r"the output \S+ is", "an output is", plain)
    return re.sub(r"^.*: ", "an expression: ", plain)


def main() -> None:
    """Print the counts."""
    whole: Counter[str] = Counter()
    stages: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for case in CASES:
        folder = Path(case)
        records = [json.loads(line) for line in (folder / "input.jsonl").read_text().splitlines() if line.strip()]
        try:
            job = job_of(load(folder / "topology.yaml"), [record for record in records if "topic" in record])
        except StreamkitError:
            whole["no batch job"] += 1
            continue
        engines = [choice.engine for choice in job.engines.values()]
        whole["whole" if set(engines) == {SQL} else "in part" if SQL in engines else "not"] += 1
        stages.update(engines)
        reasons.update({kind_of(choice.reason) for choice in job.engines.values() if choice.reason})
    print(dict(whole), dict(stages))
    for reason, count in reasons.most_common():
        print(count, reason)


if __name__ == "__main__":
    main()
