"""Stages that can run in several Spark tasks a partition, or key by key: their results depend on the records of a key alone."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from streamkit.operators.codegen.code_writer import ProcessorNode
from streamkit.operators.core.plain_nodes import PassThrough, TablePassThrough
from streamkit.operators.steps.aggregations.aggregate_node import StreamAggregate
from streamkit.operators.steps.stateless.filter import Filter
from streamkit.operators.steps.stateless.flat_map_values import FlatMapValues
from streamkit.operators.steps.stateless.map_values import MapValues, TableMapValues
from streamkit.operators.steps.tables.to_stream import ToStream
from streamkit.plan.model import PlanNode, SinkNode, SourceNode, SubTopology
from streamkit.runtime.spark.rows import arrow_rows
from streamkit.runtime.spark.stages.stage_plan import Stage, expressions_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# None reads stream time, which all keys of a partition share, and none changes the key of a record.
_BY_KEY = (Filter, FlatMapValues, MapValues, PassThrough, StreamAggregate, TableMapValues, TablePassThrough, ToStream)


def can_split(stage: Stage, subs: Collection[SubTopology], read: Collection[str]) -> bool:
    """Return whether a stage can be cut by key; `read`: topics that later stages read, whose records must stay in order."""
    if stage.cyclic or len(stage.inputs) != 1 or not set(read).isdisjoint(stage.outputs):
        return False
    return all(_is_by_key(node) for sub in subs for node in sub.nodes.values())


def _is_by_key(node: PlanNode) -> bool:
    if any("offset" in expression.names for expression in expressions_of(node)):
        return False  # rows without an offset get one in the order of their arrival
    if isinstance(node, SourceNode):
        return "use_partition_time" not in node.timestamps.values()
    if isinstance(node, SinkNode):
        return node.topic is not None
    return not isinstance(node, ProcessorNode) or isinstance(node.processor, _BY_KEY)


def with_place(frame: DataFrame) -> DataFrame:
    """Add a place to rows, for an order by buckets of keys that keeps the order within a key (arrow_rows.PLACE).

    The place includes the offset where rows are ordered by that alone: Spark sorts by one number without comparing rows.
    """
    from pyspark.sql import functions as sf

    hashed = sf.xxhash64("key")
    if "source" in frame.columns:
        return frame.withColumn(arrow_rows.PLACE, hashed.bitwiseAND(sf.lit((1 << 63) - 1)))
    bucket = sf.shiftrightunsigned(hashed, arrow_rows.PLACE_BITS + 1)
    place = sf.shiftleft(bucket, arrow_rows.PLACE_BITS).bitwiseOR(sf.col("offset"))
    return frame.withColumn(arrow_rows.PLACE, place).drop("offset")


def repartition(frame: DataFrame, tasks: int, pieces: int) -> DataFrame:
    """Move the rows of each partition to one Spark task, or to `pieces` of them, all rows of a key to the same one."""
    from pyspark.sql import functions as sf

    if tasks * pieces == 1:
        return frame.repartition(1)
    if pieces == 1:
        return frame.repartitionById(tasks, "partition")
    piece = sf.col("partition") * pieces + sf.pmod(sf.hash("key"), sf.lit(pieces))
    return frame.repartitionById(tasks * pieces, piece)
