"""The store of a foreign-key join on the right table's side: subscriptions by foreign key (CombinedKeySchema)."""

from __future__ import annotations

from collections.abc import Iterator

from streamkit.record import Headers, Key, Value
from streamkit.state.keys import combined_key, pack_int, pack_long, prefix_end, split_combined_key, unpack_long
from streamkit.state.stores.changelogged import MapStore, timestamped_rows


class SubscriptionStore(MapStore):
    """Subscription bytes (SubscriptionWrapper) with a timestamp, by foreign key and primary key; never cached.

    Keys are length4 of the foreign key + foreign key + primary key. In the map a value is timestamp8 + subscription,
    in the changelog it is plain, and timestamp and headers are the record's
    (ChangeLoggingTimestampedKeyValueBytesStoreWithHeaders).
    """

    def get(self, foreign: bytes, primary: bytes) -> tuple[bytes, int] | None:
        """Return (subscription, timestamp), or None."""
        data = self._map.get(combined_key(foreign, primary))
        return None if data is None else (data[8:], unpack_long(data)[0])

    def put(
        self,
        foreign: bytes,
        primary: bytes,
        subscription: bytes | None,
        timestamp: int,
        headers: Headers | None = None,
    ) -> None:
        """Set a subscription, or delete it with None."""
        key = combined_key(foreign, primary)
        self._map.put(key, None if subscription is None else pack_long(timestamp) + subscription)
        self._log(key, subscription, timestamp, headers)

    def prefix(self, foreign: bytes) -> list[tuple[bytes, bytes, int]]:
        """Return (primary key, subscription, timestamp) of all subscriptions to a foreign key, by primary key bytes."""
        low = pack_int(len(foreign)) + foreign
        found = self._map.range(low, prefix_end(low), include_high=False)
        return [(key[len(low) :], data[8:], unpack_long(data)[0]) for key, data in found]

    def rows(self) -> Iterator[tuple[Key, Value]]:
        """Yield ({"foreign", "primary"} as bytes, subscription bytes) in byte order of keys."""
        for key, data in self._map.range(None, None):
            foreign, primary = split_combined_key(key)
            yield {"foreign": foreign, "primary": primary}, data[8:]

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers | None) -> None:
        """Apply one changelog record."""
        self._map.put(key, None if value is None else pack_long(timestamp) + value)

    def restore_batch(
        self, keys: list[bytes], values: list[bytes | None], timestamps: list[int], headers: list[Headers | None]
    ) -> None:
        """Apply consecutive changelog records, given as columns."""
        self._map.put_many(timestamped_rows(keys, values, timestamps))
