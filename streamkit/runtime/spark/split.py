"""Which stages may be cut finer than partitions, or run key by key: where what comes of a record depends on its key alone."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from streamkit.operators.aggregation import StreamAggregate
from streamkit.operators.filter import Filter
from streamkit.operators.flat_map_values import FlatMapValues
from streamkit.operators.map_values import MapValues, TableMapValues
from streamkit.operators.pass_through import PassThrough, TablePassThrough
from streamkit.operators.to_stream import ToStream
from streamkit.plan.model import ProcessorNode, SinkNode, SourceNode, SubTopology
from streamkit.runtime.spark import arrow_rows
from streamkit.runtime.spark.stages import Stage, expressions_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# None of them looks at stream time, which is that of all keys of a partition, and none gives a record another key.
_BY_KEY = (Filter, FlatMapValues, MapValues, PassThrough, StreamAggregate, TableMapValues, TablePassThrough, ToStream)


def can_split(stage: Stage, subs: Collection[SubTopology], read: Collection[str]) -> bool:
    """Return whether a stage may be cut by key; `read`: the topics that later stages read, whose order would suffer."""
    if stage.cyclic or len(stage.inputs) != 1 or not set(read).isdisjoint(stage.outputs):
        return False
    return all(_is_by_key(node) for sub in subs for node in sub.nodes.values())


def _is_by_key(node: Any) -> bool:
    if any("offset" in expression.names for expression in expressions_of(node)):
        return False  # rows without one are counted as they come
    if isinstance(node, SourceNode):
        return "use_partition_time" not in node.timestamps.values()
    if isinstance(node, SinkNode):
        return node.topic is not None
    return not isinstance(node, ProcessorNode) or isinstance(node.processor, _BY_KEY)


def with_place(frame: DataFrame) -> DataFrame:
    """Give rows a place in an order that goes by buckets of keys and brings those of a key as they were (arrow_rows.PLACE).

    Rows that stand by their offset alone have it in the place: by one number Spark sorts without comparing rows.
    """
    from pyspark.sql import functions as sf

    hashed = sf.xxhash64("key")
    if "source" in frame.columns:
        return frame.withColumn(arrow_rows.PLACE, hashed.bitwiseAND(sf.lit((1 << 63) - 1)))
    bucket = sf.shiftrightunsigned(hashed, arrow_rows.PLACE_BITS + 1)
    place = sf.shiftleft(bucket, arrow_rows.PLACE_BITS).bitwiseOR(sf.col("offset"))
    return frame.withColumn(arrow_rows.PLACE, place).drop("offset")


def together(frame: DataFrame, tasks: int, pieces: int) -> DataFrame:
    """Bring the rows of each partition into one Spark task, or into `pieces` of them, those of a key into the same one."""
    from pyspark.sql import functions as sf

    if tasks * pieces == 1:
        return frame.repartition(1)
    piece = sf.col("partition")
    if pieces > 1:
        piece = piece * pieces + sf.pmod(sf.hash("key"), sf.lit(pieces))
    return frame.repartitionById(tasks * pieces, piece)
