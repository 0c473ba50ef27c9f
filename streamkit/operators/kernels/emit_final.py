"""When closed windows are emitted (`emit: on_close`): the part that all kinds of windows share."""

from __future__ import annotations

from typing import Any

NO_TIMESTAMP = -1


class FinalEmitter:
    """Decides when to emit and remembers how far it got (AbstractKStreamTimeWindowAggregateProcessor).

    The last close time is kept with the committed offsets under the store's name, so that a restart goes on from it.
    """

    def __init__(self, rt: Any, store_name: str):
        self._rt = rt
        self._store_name = store_name
        self._next_emit = 0

    @property
    def last_close(self) -> int:
        """Until when closed windows are out; read each time, since a task learns what was committed after it was made."""
        time: int = self._rt.processor_metadata.get(self._store_name, NO_TIMESTAMP)
        return time

    def due(self, close_time: int) -> bool:
        """Whether windows may be emitted now: not within the throttle, and only where close time has progressed."""
        now = self._rt.now()
        if now < self._next_emit:
            return False
        self._next_emit = now + self._rt.emit_intervals.windows
        last = self.last_close
        return last == NO_TIMESTAMP or last < close_time

    def emitted(self, close_time: int) -> None:
        """Remember that all windows that closed until then are out."""
        self._rt.processor_metadata[self._store_name] = close_time
