"""Converts the rows of a changelog: from the serdes of one version to those of the next, and to other partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamkit.changes.finding import Verdict
from streamkit.changes.forms.form import RowForm
from streamkit.changes.forms.serde_forms import Reads, reads, serde_form, shown
from streamkit.changes.rows import CONVERTIBLE, compare_rows, has_same_layout
from streamkit.errors import MigrationError, SerdeError
from streamkit.record import OutputTuple, RecordBatch, TopicPartition
from streamkit.serdes.formats.windowed import SessionWindowedSerde, TimeWindowedSerde
from streamkit.serdes.partitioner import partition
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import StoreDef
from streamkit.state.keys import LONG8

Convert = Callable[[bytes], bytes]

_TIME = LONG8.size
_AROUND = {
    "key_value": (0, 0),
    "versioned": (0, 0),
    "suppress": (0, 0),
    "window": (0, _TIME + 4),
    "join_window": (0, _TIME + 4),
    "session": (0, 2 * _TIME),
    "outer_join": (_TIME + 1, 0),
    "join_grace": (_TIME + 1, 4),
}
"""The bytes before and after the serialized key in the keys of changelogs, by kind of store (`state.stores`).

Subscriptions are missing: their values contain the partition of the row that they answer.
"""


@dataclass(frozen=True)
class RowConversion:
    """How rows change. None: keys, or values, stay as they are.

    routing: returns the part of a changelog's key by which its record is partitioned; None: rows can't change partitions.
    """

    key: Convert | None = None
    value: Convert | None = None
    routing: Convert | None = None

    @property
    def copies_bytes(self) -> bool:
        """Whether all bytes stay as they are."""
        return self.key is None and self.value is None


def conversion_of(old: StoreDef, new: StoreDef, old_rows: RowForm, new_rows: RowForm) -> RowConversion:
    """Return the conversion of the rows of a store. Raises MigrationError where there is none."""
    kind = old_rows.kind
    if not has_same_layout(old_rows, new_rows):
        reasons = [why for verdict, why in compare_rows(old_rows, new_rows) if verdict is Verdict.INCOMPATIBLE]
        raise MigrationError("; ".join(reasons))
    key = _side(old.key_serde, new.key_serde)
    value = _side(old.value_serde, new.value_serde)
    right = old.right_serde is not None and new.right_serde is not None and _side(old.right_serde, new.right_serde)
    if (key or value or right) and kind not in CONVERTIBLE:
        changed = [
            f"{name} {shown(before)}, is {shown(after)}"
            for name, before, after in (
                ("its key was", old_rows.key, new_rows.key),
                ("its value was", old_rows.value, new_rows.value),
                ("its right value was", old_rows.right, new_rows.right),
            )
            if before != after
        ]
        why = "; ".join(changed) or "schema ids of a registry belong to one topic"
        raise MigrationError(f"rows of {old.kind.rows} have a layout of their own, whose serdes can't change: {why}")
    return RowConversion(_inside(kind, key), value, _routing(kind, old.key_serde))


def _side(old: Serde, new: Serde) -> Convert | None:
    before, after = serde_form(old), serde_form(new)
    # Serdes of one form differ where a registry has another subject for them: schema ids are not copied to other topics.
    if old == new or (before != after and reads(before, after)[0] is Reads.YES):
        return None
    decode, encode = old.decode, new.encode
    return lambda data: encode(decode(data))


def _inside(kind: str, convert: Convert | None) -> Convert | None:
    """Return a conversion of the serialized key within the keys of a changelog."""
    before, after = _AROUND.get(kind, (0, 0))
    if convert is None or not after:
        return convert
    return lambda data: data[:before] + convert(data[before:-after]) + data[-after:]


def _routing(kind: str, serde: Serde) -> Convert | None:
    if kind not in _AROUND:
        return None
    before, after = _AROUND[kind]
    # Records with windowed keys are partitioned by the key alone (WindowedStreamPartitioner).
    if isinstance(serde, TimeWindowedSerde):
        after += _TIME
    elif isinstance(serde, SessionWindowedSerde):
        after += 2 * _TIME
    return lambda data: data[before : len(data) - after]


@dataclass(frozen=True)
class Partitions:
    """The partition counts of a copy."""

    old: int
    new: int


def converted(
    batch: RecordBatch, target: str, conversion: RowConversion, partitions: Partitions | None
) -> list[OutputTuple]:
    """Return the rows for the target topic; tombstones stay tombstones. partitions None: rows stay in their partitions.

    Raises MigrationError for a row that does not convert, or that is not in the partition of its key.
    """
    columns = zip(batch.keys, batch.values, batch.timestamps, batch.headers, strict=True)
    if conversion.copies_bytes and partitions is None:
        number = batch.partition
        return [(target, key, value, time, headers, number) for key, value, time, headers in columns]
    found: list[OutputTuple] = []
    for key, value, time, headers in columns:
        try:
            found.append(_row(target, key, value, conversion, partitions, batch.partition, (time, headers)))
        except (SerdeError, MigrationError) as error:
            place = TopicPartition(batch.topic, batch.partition)
            raise MigrationError(
                f"{place.topic}-{place.partition} offset {batch.offsets[len(found)]}: {error}"
            ) from error
    return found


def _row(
    target: str,
    key: bytes | None,
    value: bytes | None,
    conversion: RowConversion,
    partitions: Partitions | None,
    number: int,
    rest: tuple[int, list[tuple[str, bytes | None]] | None],
) -> OutputTuple:
    if key is None:
        raise MigrationError("the record has no key")
    new_key = key if conversion.key is None else conversion.key(key)
    if partitions is not None:
        assert conversion.routing is not None
        if partition(conversion.routing(key), partitions.old) != number:
            raise MigrationError("the record is not in the partition that Kafka's default partitioner gives its key")
        number = partition(conversion.routing(new_key), partitions.new)
    new_value = value if value is None or conversion.value is None else conversion.value(value)
    return target, new_key, new_value, *rest, number
