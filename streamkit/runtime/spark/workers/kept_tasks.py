"""The tasks of a job and their state between runs: restoring a task from its state, and returning the state as rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

from streamkit.errors import StateError, StreamkitError, TransportError
from streamkit.record import TopicPartition
from streamkit.runtime.execution.task import Task
from streamkit.runtime.spark.stage_plan import where
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.arrow_rows import pack, unpack
from streamkit.runtime.spark.workers.task_stores import KeptStores
from streamkit.serdes.plain import Document, Json
from streamkit.state.definitions import Volatile
from streamkit.transport.log_interface import CommittedOffset

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from streamkit.plan.model import Plan
    from streamkit.runtime.execution.punctuation import Punctuator
    from streamkit.runtime.execution.task_environment import TaskEnvironment, TaskSpec

MEMORY = "memory of tasks"
"""Replaces the topic in rows that contain a task's state outside of its stores. No topic can have this name."""
_STATE = "state of "
DELTA, BASE = "delta", "base"
STATE_SOURCE, STATE_ORDER = -1, -(1 << 62)
"""The values of the order columns that sort store rows before all records of their partition."""
_BATCH = 20_000
_PART_BYTES = 4 * 1024 * 1024
"""Limits of a state file: the number of store rows in one Spark row, and the bytes of a file with more than one row. When a file is
read, it is one Spark row."""
_KINDS = (DELTA, BASE)
_PUT_BACK = "put it back, or begin with a new checkpoint and a new output"
STATE_NAMES = ("store", "kind", "partition", "part", "key", "value")
STATE_DDL = "store string, kind string, partition int, part int, key binary, value binary"
"""The columns of store rows in a checkpoint. Each part of a partition is a file."""


def state_of(store: str) -> str:
    """Return the name that replaces the topic in the rows of a store."""
    return _STATE + store


@dataclass(frozen=True)
class Kept:
    """The state from which a job continues. Spark sends this object to the workers."""

    tasks: Mapping[str, Document] = field(default_factory=dict)
    """The state of each task outside of its stores, by the task's id."""
    deltas: frozenset[tuple[str, int]] = frozenset()
    """The stores and partitions of which only changes are written; all rows are written of all others."""
    rows: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """The number of rows in the state files, by store and partition."""
    files: Mapping[str, int] = field(default_factory=dict)
    """The CRC-32 of each state file, by its path below the state folders; older checkpoints have none."""

    def orders_of(self, subs: Collection[int]) -> dict[tuple[str, int], int]:
        """Return the highest timestamps (ms) that the tasks of sub-topologies have read, by topic and partition."""
        return {
            (topic, partition): time
            for name, saved in self.tasks.items()
            if int(name.partition("_")[0]) in subs
            for topic, partition, time in saved.get("orders", ())
        }


@dataclass
class Reading:
    """The positions of a Spark task in its input."""

    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    """The next offset of each partition whose records have no offsets from the log."""
    orders: dict[tuple[str, int], int] = field(default_factory=dict)
    """The highest timestamp so far (ms), by which topics merge."""
    own: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """The first and the last offset of each partition whose records have offsets, in this run."""
    known: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """The lowest and the highest such offset of earlier runs."""

    def restore(self, saved: Document) -> None:
        """Continue after the positions that `memory_of` returned."""
        self.offsets = {(topic, partition): offset for topic, partition, offset in saved["offsets"]}
        self.orders = {(topic, partition): time for topic, partition, time in saved["orders"]}
        # Older releases do not save these positions.
        self.known = {(topic, partition): (low, high) for topic, partition, low, high in saved.get("own", ())}

    def note(self, rows: pa.RecordBatch, topic: str, partition: int) -> None:
        """Record the highest timestamp of one topic's rows, if it is known.

        Raises TransportError for an offset that two rows have, or that earlier runs may have read.
        """
        self._check_offsets(rows, topic, partition)
        order = rows.column(arrow_rows.ORDER)
        if len(rows) and not order.null_count:
            self.orders[topic, partition] = order[len(rows) - 1].as_py()

    def _check_offsets(self, rows: pa.RecordBatch, topic: str, partition: int) -> None:
        import numpy as np

        offsets = rows.column(arrow_rows.OFFSET).to_numpy()[rows.column(arrow_rows.SOURCE).to_numpy() == 0]
        if not len(offsets):
            return
        place = topic, partition
        first, last = self.own.get(place, (int(offsets[0]), -1))
        twice = np.flatnonzero(np.diff(offsets, prepend=last) == 0)
        if len(twice):
            raise TransportError(
                f"{topic}-{partition}: two rows have the offset {offsets[twice[0]]}, so their order is undefined"
            )
        low, high = self.known.get(place, (0, -1))
        again = offsets[(offsets >= low) & (offsets <= high)]
        if len(again):
            raise TransportError(
                f"{topic}-{partition}: the offset {again[0]} is within the range that earlier runs have read, {low} to {high}, so "
                "its record would count twice; remove repeated rows, or begin with a new checkpoint and a new output"
            )
        self.own[place] = first, int(offsets[-1])

    def to_json(self) -> dict[str, Json]:
        """Return the positions in the form that `restore` takes."""
        own = dict(self.known)
        for place, (first, last) in self.own.items():
            low, high = own.get(place, (first, last))
            own[place] = min(low, first), max(high, last)
        return {
            "offsets": [[*place, number] for place, number in sorted(self.offsets.items())],
            "orders": [[*place, number] for place, number in sorted(self.orders.items())],
            "own": [[*place, *numbers] for place, numbers in sorted(own.items())],
        }


class BatchTask(Task):
    """A task without a clock."""

    def __init__(self, spec: TaskSpec, environment: TaskEnvironment):
        self.timers: list[Punctuator] = []
        """The timers of processors, in the order in which they were scheduled."""
        self.first_timers = 0
        """The number of timers that processors scheduled in `init`."""
        super().__init__(spec, environment)

    def schedule(
        self, node: int, interval_ms: int, kind: str, callback: Callable[[int], None], start: int | None = None
    ) -> Punctuator:
        """Call back at "stream_time" intervals. Raises StreamkitError for "wall_clock"."""
        if kind == "wall_clock":
            raise StreamkitError(
                "schedule: a batch job has no wall clock, so that its result does not depend on when it runs"
            )
        timer = super().schedule(node, interval_ms, kind, callback, start)
        self.timers.append(timer)
        return timer

    def start(self, committed: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Start the task, and record the number of timers after that."""
        super().start(committed)
        self.first_timers = len(self.timers)

    def stream_timers(self) -> tuple[Punctuator, ...]:
        """Return the timers by stream time, in the order of their heap."""
        return self._stream_punctuators.schedules

    def restore_timers(self, timers: Iterable[Punctuator]) -> None:
        """Replace the timers by those that `stream_timers` returned."""
        self._stream_punctuators.restore(timers)

    def volatile_objects(self) -> dict[str, Volatile]:
        """Return, by name, the stores and the program's objects that may have volatile numbers."""
        objects = {name: object_ for name, object_ in self._bound.instances.items() if isinstance(object_, Volatile)}
        return {**objects, **{f"store {name}": store for name, store in self.stores.items()}}

    def wall_clock(self) -> int:
        """Raise StreamkitError."""
        raise StreamkitError("a batch job has no wall clock, so that its result does not depend on when it runs")


def resume(task: BatchTask, saved: Document) -> None:
    """Start a task at its saved position. saved: the result of `memory_of`, None for a new task. Raises StateError."""
    if saved is None:
        task.start({})
        return
    objects = task.volatile_objects()
    for name, values in saved["volatile"].items():
        if name in objects:
            objects[name].restore_volatile(values)
    # The offset is not used: the job itself tracks what it has read.
    task.start({TopicPartition(topic, number): CommittedOffset(0, text) for topic, number, text in saved["times"]})
    timers = task.timers
    schedules = []
    for index, due, cancelled in saved["timers"]:
        if index >= len(timers):
            raise StateError(f"task {task.task_id}: a processor schedules fewer timers than in the previous run")
        timers[index].due, timers[index].cancelled = due, cancelled
        schedules.append(timers[index])
    task.restore_timers(schedules)


def memory_of(task: BatchTask, plan: Plan) -> dict[str, Document]:
    """Commit a task, close its processors, and return its state outside of its stores. Raises StateError."""
    task.flush_stores()
    places = {id(timer): index for index, timer in enumerate(task.timers)}
    schedules = []
    for timer in task.stream_timers():
        index = places[id(timer)]
        if index < task.first_timers:
            schedules.append([index, timer.due, timer.cancelled])
        elif not timer.cancelled:
            raise StateError(
                f"{where(plan, task.spec.program.nodes[timer.node])}: a timer that a processor schedules outside `init` can't be kept in a checkpoint"
            )
    # Their timers end with the processors, whose last records may still change the times of windows.
    task.close_processors()
    task.touch(task.inputs)
    offsets = task.prepare_commit(lambda place: 0)
    return {
        "times": [[*place, offset.metadata] for place, offset in sorted(offsets.items())],
        "volatile": {
            name: values
            for name, volatile_object in task.volatile_objects().items()
            if (values := volatile_object.volatile_values())
        },
        "timers": schedules,
    }


# -- Rows ------------------------------------------------------------------------------------------------------------


def leading_state(batch: pa.RecordBatch) -> int:
    """Return how many rows at the beginning of a batch are rows of stores."""
    if arrow_rows.NAMES[arrow_rows.SOURCE] not in batch.schema.names:
        return 0
    sources: np.ndarray = batch.column(batch.schema.get_field_index("source")).to_numpy()
    others = (sources != STATE_SOURCE).nonzero()[0]
    return int(others[0]) if len(others) else len(batch)


def fill(kept: Kept, stores: KeptStores, rows: pa.RecordBatch, partition: int) -> None:
    """Fill stores with their rows from a checkpoint. Each Spark row contains many store rows. Raises StateError."""
    names, paths = rows.column(arrow_rows.TOPIC).to_pylist(), rows.column(arrow_rows.KEY).to_pylist()
    values = rows.column(arrow_rows.VALUE)
    for at, (name, path) in enumerate(zip(names, paths, strict=True)):
        if name.startswith(_STATE):
            unpacked = unpack_rows(kept, path.decode(), values[at].as_buffer())
            stores.fill(name.removeprefix(_STATE), partition, unpacked)


def unpack_rows(kept: Kept, path: str, data: pa.Buffer) -> list[tuple[bytes, bytes | None]]:
    """Return the rows of a store from a file of a checkpoint. Raises StateError if the file is damaged."""
    import pyarrow as pa

    # Parquet has a checksum for each page, but none for the metadata that locates the pages.
    want = kept.files.get(path)
    if want is not None and want != crc32(data):
        raise _damaged_file(path, "its contents do not match its checksum")
    try:
        columns = map(arrow_rows.values_of, unpack(data).columns)
        return list(zip(*columns, strict=True))
    except (pa.ArrowException, OSError) as error:
        raise _damaged_file(path, str(error).partition("\n")[0]) from error


def missing_file(path: str) -> StateError:
    """Return the error for a missing state file, with a remedy."""
    return StateError(f"--checkpoint: the state file {path} is missing; {_PUT_BACK}")


def _damaged_file(path: str, reason: str) -> StateError:
    return StateError(f"--checkpoint: the state file {path} is damaged ({reason}); {_PUT_BACK}")


def check_filled(kept: Kept, stores: KeptStores, names: Iterable[str], partition: int) -> None:
    """Check that stores have all rows that earlier runs have written. Raises StateError."""
    for name in names:
        want, filled = kept.rows.get((name, partition), 0), stores.filled(name, partition)
        if filled != want:
            state = "missing" if filled < want else "not the ones that earlier runs wrote"
            raise StateError(
                f"--checkpoint: store {name}, partition {partition}: state files are {state} ({filled} of {want} rows "
                f"were found); {_PUT_BACK}"
            )


def memories_in(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that contain the memory of tasks, which an earlier stage has written."""
    import pyarrow.compute as pc

    return rows.filter(pc.equal(rows.column(arrow_rows.TOPIC), MEMORY))


def unpack_state(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield store rows in the columns of a checkpoint (STATE_DDL), from the rows that tasks write."""
    import pyarrow as pa

    for batch in batches:
        columns = (batch.column(at).to_pylist() for at in (arrow_rows.TOPIC, arrow_rows.PARTITION, arrow_rows.OFFSET))
        values = batch.column(arrow_rows.VALUE)
        for at, (topic, partition, number) in enumerate(zip(*columns, strict=True)):
            rows = unpack(values[at].as_buffer())
            part, kind = divmod(number, len(_KINDS))
            numbers = (pa.scalar(number, pa.int32()) for number in (partition, part))
            place = (topic.removeprefix(_STATE), _KINDS[kind], *numbers)
            constants = [pa.repeat(number, len(rows)) for number in place]
            for part in rows.combine_chunks().to_batches():
                yield pa.RecordBatch.from_arrays([*constants, *part.columns], names=list(STATE_NAMES))


class StateWriter:
    """Writes the state of a task at the end of a run as rows. The job collects them and writes them to the checkpoint."""

    def __init__(self, kept: Kept, stores: KeptStores):
        self._kept = kept
        self._stores = stores

    def write(self, task: BatchTask, memory: dict[str, Json]) -> Iterator[pa.RecordBatch]:
        """Yield the packed rows of a task's stores, and a row with its memory and the number and size of those rows."""
        counts: dict[str, Json] = {}
        for name in task.spec.sub_topology.stores:
            complete = (name, task.partition) not in self._kept.deltas
            count = total = 0
            for part, keys, values, size in _chunks(self._stores.state(name, task.partition, complete)):
                count, total = count + len(keys), total + size
                number = part * len(_KINDS) + complete
                yield _row(state_of(name), task.partition, None, pack(keys, values), number)
            if count or complete:
                counts[name] = [_KINDS[complete], count, total]
        text = json.dumps({**memory, "state": counts}).encode()
        yield _row(MEMORY, task.partition, task.task_id.encode(), text, 0)


def _chunks(rows: Iterator[tuple[bytes, bytes | None]]) -> Iterator[tuple[int, list[bytes], list[bytes | None], int]]:
    """Yield chunks of rows: the number of the part, the keys, the values, and their size in bytes."""
    keys: list[bytes] = []
    values: list[bytes | None] = []
    part = part_size = size = 0
    for key, value in rows:
        length = len(key) + len(value or b"")
        is_full = part_size > 0 and part_size + length > _PART_BYTES
        if keys and (is_full or len(keys) == _BATCH):
            yield part, keys, values, size
            keys, values, size = [], [], 0
        if is_full:
            part, part_size = part + 1, 0
        keys.append(key)
        values.append(value)
        size, part_size = size + length, part_size + length
    if keys:
        yield part, keys, values, size


def _row(topic: str, partition: int, key: bytes | None, value: bytes, number: int) -> pa.RecordBatch:
    """Return a row that, as input of a later stage, comes before all records of its partition."""
    return arrow_rows.to_batch(
        ([topic], [partition], [key], [value], [-1], [None], [STATE_ORDER], [STATE_SOURCE], [number])
    )
