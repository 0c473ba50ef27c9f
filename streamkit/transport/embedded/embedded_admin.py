"""Administration of the embedded log."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from secrets import randbits

from streamkit.errors import TopicError
from streamkit.record import TopicPartition
from streamkit.transport.embedded.database import Database, every, one
from streamkit.transport.embedded.embedded_groups import described, members, remove
from streamkit.transport.embedded.log_tables import BATCHES, bounds
from streamkit.transport.log_interface import Admin, GroupDescription, NewTopic, TopicInfo

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


class EmbeddedAdmin(Admin):
    """Administration by rows; a topic's settings are stored, but have no effect."""

    def __init__(self, directory: Path):
        self._database = Database(directory)

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        with self._database.read() as execute:
            known: dict[str, int] = dict(sorted(every(execute, "topics", "name, partitions")))
        wanted = known if names is None else [name for name in names if name in known]
        return {name: TopicInfo(name, known[name]) for name in wanted}

    def topic_config(self, name: str) -> dict[str, str]:
        with self._database.read() as execute:
            row = one(execute, "topics", "config", "name = ?", (name,))
        if row is None:
            raise TopicError(f"the settings of topic {name} could not be read: it does not exist")
        config: dict[str, str] = json.loads(row[0])
        return config

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        with self._database.read() as execute:
            known: dict[str, int] = dict(every(execute, "topics", "name, id"))
        return {name: str(known[name]) for name in names if name in known}

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        for topic in topics:
            check_new_topic(topic)
        with self._database.write() as execute:
            for topic in topics:
                # A random id is never used again; SQLite would use that of a deleted row again.
                row = execute(
                    "INSERT INTO topics (id, name, partitions, config) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING "
                    "RETURNING id",
                    (randbits(62), topic.name, topic.partitions, json.dumps(dict(topic.config))),
                ).fetchone()
                for number in range(topic.partitions if row else 0):
                    execute("INSERT INTO partitions (topic, number) VALUES (?, ?)", (row[0], number))

    def delete_topics(self, names: Sequence[str]) -> None:
        with self._database.write() as execute:
            for name in names:
                row = one(execute, "topics", "id", "name = ?", (name,))
                if row is None:
                    continue
                for table in BATCHES:
                    execute(f"DELETE FROM {table} WHERE partition IN (SELECT id FROM partitions WHERE topic = ?)", row)
                execute("DELETE FROM topics WHERE id = ?", row)
                execute("DELETE FROM partitions WHERE topic = ?", row)
                execute("DELETE FROM offsets WHERE topic = ?", (name,))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        with self._database.write() as execute:
            for partition, offset in before.items():
                found = bounds(execute, partition)
                offset = found.next if offset == -1 else offset
                if offset > found.next:
                    where = f"{partition.topic} [{partition.partition}]"
                    raise TopicError(
                        f"records of {where} before {offset} could not be deleted: it ends at {found.next}"
                    )
                execute("UPDATE partitions SET first = max(first, ?) WHERE id = ?", (offset, found.id))
                # A batch that ends after the offset stays complete; readers begin at `first`.
                for table in BATCHES:
                    execute(f"DELETE FROM {table} WHERE partition = ? AND last < ?", (found.id, offset))

    def describe_group(self, group: str) -> GroupDescription:
        with self._database.read() as execute:
            return described(execute, group)

    def remove_members(self, group: str) -> list[str]:
        with self._database.write() as execute:
            gone = sorted(members(execute, group))
            for member in gone:
                remove(execute, group, member)
        return gone

    def close(self) -> None:
        self._database.close()


def check_new_topic(topic: NewTopic) -> None:
    """Raise TopicError for a name or a number of partitions that Kafka rejects."""
    if not _NAME.fullmatch(topic.name) or topic.name in (".", ".."):
        raise TopicError(
            f"topic {topic.name!r} could not be created: names are of 1 to 249 ASCII letters, digits, . _ -"
        )
    if topic.partitions < 1:
        raise TopicError(f"topic {topic.name} could not be created: it needs a partition at least")
