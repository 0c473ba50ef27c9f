"""Which stages may be cut finer than partitions: by key, where what comes of a record depends on records of its key alone."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from streamkit.operators.aggregation import StreamAggregate
from streamkit.operators.filter import Filter
from streamkit.operators.flat_map_values import FlatMapValues
from streamkit.operators.map_values import MapValues, TableMapValues
from streamkit.operators.pass_through import PassThrough, TablePassThrough
from streamkit.operators.to_stream import ToStream
from streamkit.plan.model import ProcessorNode, SinkNode, SubTopology
from streamkit.runtime.spark.stages import Stage

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
    if isinstance(node, SinkNode):
        return node.topic is not None
    return not isinstance(node, ProcessorNode) or isinstance(node.processor, _BY_KEY)


def cut(frame: DataFrame, tasks: int, pieces: int) -> DataFrame:
    """Bring the rows of each partition into `pieces` Spark tasks, those of a key into the same one."""
    from pyspark.sql import functions as sf

    piece = sf.col("partition") * pieces + sf.pmod(sf.hash("key"), sf.lit(pieces))
    return (
        frame.withColumn("_streamkit_piece", piece)
        .repartitionById(tasks * pieces, "_streamkit_piece")
        .drop("_streamkit_piece")
    )
