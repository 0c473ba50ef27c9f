"""The ids that the `deduplicate` step has forwarded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkit.errors import StreamkitError
from streamkit.metrics import DropReason
from streamkit.record import Value
from streamkit.serdes.plain import shown

if TYPE_CHECKING:
    from streamkit.operators.core.task_services import TaskServices
    from streamkit.state.stores.key_value import KeyValueStore


class KnownIds:
    """The ids of one node, each with the timestamp of the last record that passed; times in milliseconds.

    One row an id suffices. A record that is not late is compared with the latest one that passed: an earlier one is at
    least `within` before that, and a record between the two is less than `within` before the latest.
    """

    __slots__ = ("_encode", "_rt", "_store", "_within")

    def __init__(self, rt: TaskServices, store: KeyValueStore, within: int):
        self._rt = rt
        self._store = store
        self._within = within
        self._encode = store.key_serde.encode

    def is_first(self, found: Value, time: int) -> bool:
        """Return whether a record passes. Raises SerdeError for an id that its serde does not encode."""
        if found is None:
            return True
        if time <= self._rt.stream_time() - self._within:
            self._rt.dropped(DropReason.LATE)
            return False
        key = self._encode(found)
        if key is None:
            raise StreamkitError(f"deduplicate: the id {shown(found, 80)} has no bytes")
        row = self._store.get(key)
        if row is not None and time - row[1] < self._within:
            return False
        self._store.put(key, time, time)
        return True
