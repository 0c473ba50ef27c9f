"""What Spark's page shows of a job: the names of its jobs and stages, and the lines of the topology's file that they run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamkit.plan.model import Plan, SinkNode, SubTopology
from streamkit.runtime.spark.spark_session import classic_context
from streamkit.runtime.spark.stage_plan import Stage, where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ADAPTIVE = "spark.sql.adaptive.enabled"


@dataclass(frozen=True)
class WorkName:
    """The name of work for Spark."""

    name: str
    """Of jobs and stages: `word-count / sub-topology 1 / counts`."""
    description: str
    """Of jobs and queries, with the place of the output in the file: `word-count / counts (topology.yaml:26)`."""
    details: str = ""
    """What `+details` shows of a stage: the steps that it runs, with their lines."""

    @staticmethod
    def of(*parts: str) -> WorkName:
        """Return the name of work that is no sub-topology's: its application, a topic, and what is done."""
        text = " / ".join(parts)
        return WorkName(text, text)


def output_name(plan: Plan, stages: Sequence[Stage], outputs: Collection[str], what: str) -> WorkName:
    """Return the name of what stages write to topics on the log. what: the topics in a few words."""
    subs = _subs(plan, stages)
    name = " / ".join((plan.application, *_numbers(subs), what))
    return WorkName(name, _with_place(plan, subs, outputs, what), _steps(plan, subs))


def input_name(
    plan: Plan, stage: Stage, writers: Sequence[Stage], outside: Sequence[str], others: str = ""
) -> WorkName:
    """Return the name of what gives a stage its rows: stages before it, and topics from outside. others: further rows."""
    topics = [topic for topic in stage.inputs if any(topic in writer.outputs for writer in writers)]
    subs = _subs(plan, writers)
    parts = [" / ".join((*_numbers(subs), ", ".join(_short(plan, topic) for topic in topics)))] if subs else []
    parts += [f"{', '.join(outside)} / read"] if outside else []
    parts += [f"{others} / read"] if others else []
    name = f"{plan.application} / {' + '.join(parts)}"
    return WorkName(name, name, _steps(plan, subs))


def _subs(plan: Plan, stages: Sequence[Stage]) -> list[SubTopology]:
    numbers = {number for stage in stages for number in stage.subs}
    return [sub for sub in plan.sub_topologies if sub.id in numbers]


def _numbers(subs: Sequence[SubTopology]) -> tuple[str, ...]:
    if not subs:
        return ()
    return (f"{'sub-topology' if len(subs) == 1 else 'sub-topologies'} {', '.join(str(sub.id) for sub in subs)}",)


def _short(plan: Plan, topic: str) -> str:
    """Return the name of a topic without the application, as the plan has it."""
    own = {plan.internal_name(name): name for name in plan.internal_topics}
    return own.get(topic, topic)


def _with_place(plan: Plan, subs: Sequence[SubTopology], outputs: Collection[str], what: str) -> str:
    sinks = [node for sub in subs for node in sub.nodes.values() if isinstance(node, SinkNode)]
    positions = [node.origin.position for node in sinks if node.origin is not None and node.topic in outputs]
    text = f"{plan.application} / {what}"
    return f"{text} ({positions[0].file}:{positions[0].line})" if positions else text


def _steps(plan: Plan, subs: Sequence[SubTopology]) -> str:
    return "\n".join(dict.fromkeys(where(plan, node) for sub in subs for node in sub.nodes.values()))


@contextmanager
def named(spark: SparkSession, name: WorkName) -> Iterator[None]:
    """Give jobs and stages that Spark makes in the block a name; Spark Connect does not take one."""
    context = classic_context(spark)
    if context is None:
        yield
        return
    from pyspark.traceback_utils import SCCallSiteSync

    own = {
        "spark.job.description": name.description,
        "callSite.short": name.name,
        "callSite.long": name.details or name.name,
    }
    before = {label: context.getLocalProperty(label) for label in own}
    # PySpark names what it collects by the line that calls it, but not inside another such block.
    with SCCallSiteSync(context):  # type: ignore[no-untyped-call]
        for label, text in own.items():
            context.setLocalProperty(label, text)
        try:
            yield
        finally:
            for label, old in before.items():
                context.setLocalProperty(label, old)  # type: ignore[arg-type]


def planned(frame: DataFrame) -> DataFrame:
    """Return the same rows, planned now: Spark names a stage when it plans it. Nothing runs.

    Adaptive execution would run a query up to its last shuffle, and name all of its stages alike.
    """
    spark = frame.sparkSession
    if classic_context(spark) is None:
        return frame
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    adaptive = str(spark.conf.get(_ADAPTIVE))
    spark.conf.set(_ADAPTIVE, "false")
    try:
        rows = frame._jdf.queryExecution().toRdd()
    finally:
        spark.conf.set(_ADAPTIVE, adaptive)
    return ClassicFrame(spark._jsparkSession.internalCreateDataFrame(rows, frame._jdf.schema(), False), spark)
