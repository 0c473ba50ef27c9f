"""The context of a global store's processor (GlobalProcessorContextImpl)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NoReturn

from streamkit.errors import StreamkitError
from streamkit.operators.kernels.processor_calls import ProcessorContext


class GlobalProcessorContext(ProcessorContext):
    """A context without timers and stream time, and without a commit of its own: every process reads all partitions."""

    def schedule(
        self, interval: str | int, kind: str, callback: Callable[[int], object], start: int | datetime | None = None
    ) -> NoReturn:
        """Raise StreamkitError."""
        raise StreamkitError("the processor of a global store has no timers")

    def commit(self) -> None:
        """Do nothing."""

    @property
    def stream_time(self) -> int:
        """Raise StreamkitError."""
        raise StreamkitError("the processor of a global store has no stream time")
