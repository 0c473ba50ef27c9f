"""The stores at the end of a job as changelogs with their committed offsets: a live run continues from these."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from streamkit.errors import StateError
from streamkit.plan.model import Plan
from streamkit.plan.partitions import Layout
from streamkit.record import TopicPartition
from streamkit.runtime.execution import metadata
from streamkit.runtime.spark.rows.log_rows import Address, LogRange
from streamkit.transport.log_interface import CommittedOffset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_seedable(plan: Plan, address: Address, layout: Layout) -> None:
    """Raise StateError unless the application is stopped and has neither changelogs with records nor offsets."""
    names = [topic.name for topic in layout.changelogs]
    with address.admin() as admin:
        members = admin.group_members(plan.application)
        if members:
            raise StateError(
                f"--write-state: application {plan.application} is running ({len(members)} members); stop it first"
            )
        found = admin.topics(names)
    places = [TopicPartition(name, number) for name, info in found.items() for number in range(info.partitions)]
    with address.consumer() as consumer:
        ends = consumer.end_offsets(places)
    taken = sorted({place.topic for place, end in ends.items() if end > 0})
    if taken:
        raise StateError(
            f"--write-state: changelog {taken[0]} already holds records; `streamkit reset-offsets` removes what the "
            "application has"
        )


def create_topics(address: Address, layout: Layout) -> None:
    """Create changelogs and repartition topics as a live run would."""
    with address.admin() as admin:
        admin.create_topics([*layout.repartitions, *layout.changelogs])


def commit(plan: Plan, address: Address, offsets: DataFrame, ranges: Iterable[LogRange]) -> None:
    """Commit the offsets of the tasks for the application's group; for partitions without records, the ends of the ranges."""
    globals_ = {topic for sub in plan.sub_topologies if sub.is_global for topic in sub.source_topics}
    found = {
        each.place: CommittedOffset(each.stop, metadata.encode(metadata.UNKNOWN))
        for each in ranges
        if each.place.topic not in globals_
    }
    for row in offsets.select("key", "value").collect():
        offset, text = json.loads(bytes(row["value"]))
        found[TopicPartition(*json.loads(bytes(row["key"])))] = CommittedOffset(offset, text)
    with address.consumer(plan.application) as consumer:
        consumer.commit(found)
