"""A task whose program is traced, and whose failures, drops and timers are noted in the trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streamkit.operators.core.task_services import FailedRecord
from streamkit.runtime.execution.punctuation import Punctuator
from streamkit.runtime.execution.reasons import human_reason
from streamkit.runtime.execution.task import Task
from streamkit.runtime.execution.task_environment import TaskEnvironment, TaskSpec
from streamkit.runtime.tracing.tracer import ProgramTrace
from streamkit.runtime.tracing.visits import COMMIT, EXPIRY, TIMER


class TracedTask(Task):
    """A task that notes in a trace what its program does not report itself."""

    def __init__(self, spec: TaskSpec, environment: TaskEnvironment, trace: ProgramTrace):
        trace.task = self
        self._trace = trace
        super().__init__(spec, environment)

    def on_error(self, node: int, error: Exception, record: FailedRecord) -> None:
        """Handle a node's failure."""
        with self._noted(node, error, record):
            super().on_error(node, error, record)

    def on_refusal(self, node: int, error: Exception, record: FailedRecord, encoding: bool) -> None:
        """Handle a sink's failure."""
        with self._noted(node, error, record):
            super().on_refusal(node, error, record, encoding)

    def on_deserialization_error(self, node: int | None, error: Exception, record: FailedRecord) -> None:
        """Handle bytes that do not decode."""
        with self._noted(node, error, record):
            super().on_deserialization_error(node, error, record)

    def dropped(self, reason: str, place: str | None = None) -> None:
        """Count a dropped record."""
        super().dropped(reason, place)
        self._trace.dropped(reason)

    def flush_stores(self) -> None:
        """Flush the caches of the stores."""
        with self._trace.caused_by(COMMIT):
            super().flush_stores()

    def fire(self, punctuator: Punctuator, time: int) -> None:
        """Call a punctuator."""
        with self._trace.caused_by(TIMER):
            super().fire(punctuator, time)

    def expire(self) -> None:
        """Delete expired rows."""
        with self._trace.caused_by(EXPIRY):
            super().expire()

    @contextmanager
    def _noted(self, node: int | None, error: Exception, record: FailedRecord) -> Iterator[None]:
        # The handler takes the error's traceback, which has the places in the user's modules.
        reason, written = human_reason(error), len(self.output)
        try:
            yield
        finally:
            self._trace.failed(node, reason, record, self.output[written:])
