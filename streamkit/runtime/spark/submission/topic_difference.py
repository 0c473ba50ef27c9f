"""The differences between the result of a job and the records of a topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamkit.plan.model import Plan
from streamkit.runtime.records import RecordJson

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

EXAMPLES = 5


@dataclass(frozen=True)
class Difference:
    """Numbers of rows: one row per key for a table, else one per record, matched by key and position among the key's records."""

    topic: str
    equal: int
    different: int
    missing: int
    """Rows that are only in the result."""
    surplus: int
    """Rows that are only in the topic."""
    examples: tuple[dict[str, object], ...]
    """Objects with the fields key, n, now and reprocessed; values in JSON form."""

    @property
    def is_none(self) -> bool:
        """Whether the result and the topic are equal."""
        return not (self.different or self.missing or self.surplus)


def compare(reprocessed: DataFrame, existing: DataFrame, plan: Plan, topic: str, is_table: bool) -> Difference:
    """Compare rows with a topic's existing rows, key by key and in order; for a table, only the last row of each key."""
    from pyspark.sql import functions as sf

    left, right = _numbered(reprocessed, is_table), _numbered(existing, is_table)
    pairs = left.alias("made").join(
        right.alias("existing"),
        sf.col("made.key").eqNullSafe(sf.col("existing.key")) & (sf.col("made.n") == sf.col("existing.n")),
        "full_outer",
    )
    same = sf.col("made.value").eqNullSafe(sf.col("existing.value"))
    pairs = pairs.select(
        sf.coalesce("made.key", "existing.key").alias("key"),
        sf.coalesce("made.n", "existing.n").alias("n"),
        sf.col("made.value").alias("made"),
        sf.col("existing.value").alias("existing"),
        sf.when(sf.col("made.n").isNull(), "surplus")
        .when(sf.col("existing.n").isNull(), "missing")
        .when(same, "equal")
        .otherwise("different")
        .alias("verdict"),
    ).persist()
    counts = {row["verdict"]: row["count"] for row in pairs.groupBy("verdict").count().collect()}
    shown = pairs.filter(pairs.verdict != "equal").orderBy("key", "n").limit(EXAMPLES).collect()
    pairs.unpersist()
    equal, different, missing, surplus = (
        counts.get(verdict, 0) for verdict in ("equal", "different", "missing", "surplus")
    )
    examples = tuple(_example(RecordJson(plan), topic, row) for row in shown)
    return Difference(topic, equal, different, missing, surplus, examples)


def _numbered(frame: DataFrame, is_table: bool) -> DataFrame:
    """Return each record's key, value and position among the records of its key; for a table, only last records that are not null."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    order = [sf.col("order"), sf.col("source"), sf.col("offset")]
    if is_table:
        last = Window.partitionBy("key").orderBy(*[column.desc() for column in order])
        ranked = frame.withColumn("n", sf.row_number().over(last)).filter("n = 1")
        return ranked.filter(ranked.value.isNotNull()).select("key", "value", "n")
    return frame.withColumn("n", sf.row_number().over(Window.partitionBy("key").orderBy(*order))).select(
        "key", "value", "n"
    )


def _example(form: RecordJson, topic: str, row: Row) -> dict[str, object]:
    def value(data: bytearray | None) -> object:
        raw = None if data is None else bytes(data)
        return form.decode((topic, key, raw, 0, None, None))["value"]

    key = None if row["key"] is None else bytes(row["key"])
    return {
        "key": form.decode((topic, key, None, 0, None, None))["key"],
        "n": row["n"],
        "now": value(row["existing"]),
        "reprocessed": value(row["made"]),
    }


def describe(difference: Difference) -> list[str]:
    """Return the lines of a report on differences."""
    from streamkit.serdes.formats.json_text import to_text

    lines = [
        f"{difference.topic}: {difference.equal} equal, {difference.different} different, {difference.missing} missing from the topic, "
        f"{difference.surplus} only in the topic"
    ]
    for example in difference.examples:
        key, now, reprocessed = (to_text(example[name]).decode() for name in ("key", "now", "reprocessed"))
        lines.append(f"  key {key}, record {example['n']}: now {now}, reprocessed {reprocessed}")
    return lines
