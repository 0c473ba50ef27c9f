"""The times at which closed windows are emitted (`emit: on_close`), for all kinds of windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamkit.operators.core.task_services import TaskServices

NO_TIMESTAMP = -1


class FinalEmitter:
    """Decides when to emit and keeps the last close time (AbstractKStreamTimeWindowAggregateProcessor).

    The last close time is kept with the committed offsets under the store's name, so that a restart continues from it.
    """

    def __init__(self, rt: TaskServices, store_name: str):
        self._rt = rt
        self._store_name = store_name
        self._next_emit = 0

    @property
    def last_close(self) -> int:
        """The time up to which closed windows are emitted; read each time, since a task gets committed metadata later."""
        return self._rt.processor_metadata.get(self._store_name, NO_TIMESTAMP)

    def due(self, close_time: int) -> bool:
        """Return whether windows may be emitted now: after the throttle, and only where close time has advanced."""
        now = self._rt.now()
        if now < self._next_emit:
            return False
        self._next_emit = now + self._rt.emit_intervals.windows
        last = self.last_close
        return last == NO_TIMESTAMP or last < close_time

    def emitted(self, close_time: int) -> None:
        """Note that all windows that closed until then are emitted."""
        self._rt.processor_metadata[self._store_name] = close_time
