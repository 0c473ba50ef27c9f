"""Steps that hold records back until the end of a run, and then forward them in order."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from streamkit.errors import TakenTracebacks
from streamkit.record import FullContext, Headers, Key, RecordContext, Value

log = logging.getLogger(__name__)

Batch: TypeAlias = tuple[Sequence[int], list[Headers | None], list[int]]
"""Offsets, headers and timestamps of the records of a run."""

Origin: TypeAlias = tuple[bytes | None, bytes | None, int, tuple[str | None, int], Batch]
"""The source record's key bytes, value bytes, offset, (topic, partition) and batch."""

Fail: TypeAlias = Callable[[int, Exception, Key, Value, int, RecordContext], None]
"""(node, error, key, value, timestamp, context): handles a failure of a node, or raises."""


class HeldRecord(NamedTuple):
    """A record that a step holds back."""

    key: Key
    value: Value
    timestamp: int
    context: FullContext
    origin: Origin
    argument: Value = None
    """The function's argument, unless the function takes the key and the value."""


_held = partial(tuple.__new__, HeldRecord)


class Failed:
    """The result of a record whose call failed."""

    __slots__ = ("_tracebacks", "error")

    def __init__(self, error: Exception):
        self.error = error
        self._tracebacks = TakenTracebacks(error)

    def with_traceback(self) -> Exception:
        """Return the error with the call's traceback, even if the same object has been raised again since."""
        self._tracebacks.restore()
        return self.error


class Replays:
    """The steps of a program that hold records back; makes held records the program's current record."""

    def __init__(self, origin: Callable[[], Origin], switch: Callable[[Origin], None]):
        self.origin = origin
        self.switch = switch
        self.loop: Origin | None = None
        """The record that the source's loop has reached, while earlier records are forwarded."""
        self._steps: list[HoldingStep] = []

    def add(self, step: HoldingStep) -> None:
        """Add a step; steps are added in the order of the nodes."""
        self._steps.append(step)

    def flush(self) -> None:
        """Forward all records that are held back, including records that reach another holding step."""
        again = True
        while again:
            again = False
            for step in self._steps:
                again = step.flush() or again

    def clear(self) -> None:
        """Discard the records that are held back, after a failure."""
        for step in self._steps:
            step.clear()


class HoldingStep(ABC):
    """Holds records back until there are `size` of them or the run ends, then finds their results and forwards them in order."""

    def __init__(self, replays: Replays, node: int, size: int, fail: Fail):
        """Create the step of a node, which holds back up to `size` records; 0: none, because that would change their order."""
        self._replays = replays
        self._node = node
        self._size = size or 1
        self._one_by_one = not size
        self._fail = fail
        self._origin = replays.origin
        self._held: list[HeldRecord] = []
        replays.add(self)

    def add(self, k: Key, v: Value, t: int, c: FullContext, argument: Value = None) -> None:
        """Hold a record back."""
        # Without the checks of the named tuple's constructor, which take longer than everything else here.
        self._held.append(_held((k, v, t, c, self._origin(), argument)))
        if len(self._held) >= self._size:
            self.flush()

    def flush(self) -> bool:
        """Forward the records that are held back; return whether the step held any. Raises ProcessingError."""
        held, self._held = self._held, []
        if not held:
            return False
        replays = self._replays
        here, outer = replays.origin(), replays.loop
        replays.loop = here if outer is None else outer
        try:
            replays.switch(held[0].origin)
            self._deliver(held, self._found(held))
        finally:
            replays.switch(here)
            replays.loop = outer
        return True

    def clear(self) -> None:
        """Discard the records that are held back."""
        self._held = []

    def report(self, place: str) -> None:
        """If no records are held back, log that. `place`: the position of the step in the file."""
        if self._one_by_one:
            log.info(
                "%s: one record at a time, since steps elsewhere write to a topic, a store or a step below it; give it "
                "places of its own",
                place,
            )

    def _found(self, held: Sequence[HeldRecord]) -> Sequence[Value | Failed]:
        try:
            return self.results(held)
        except Exception as error:
            # All records have failed; `fail` raises errors that no handler may handle.
            return [Failed(error)] * len(held)

    def _deliver(self, held: Sequence[HeldRecord], results: Sequence[Value | Failed]) -> None:
        switch, deliver = self._replays.switch, self.deliver
        for record, result in zip(held, results, strict=True):
            key, value, time, context, origin, _ = record
            switch(origin)
            try:
                if type(result) is Failed:
                    raise result.with_traceback()
                deliver(record, result)
            except Exception as error:
                # Handles this step's failure, and raises failures that a step below has handled.
                self._fail(self._node, error, key, value, time, context)

    @abstractmethod
    def results(self, records: Sequence[HeldRecord]) -> Sequence[Value | Failed]:
        """Return each record's result or failure, in order."""

    @abstractmethod
    def deliver(self, record: HeldRecord, result: Value) -> None:
        """Forward the records that follow from a record and its result."""
