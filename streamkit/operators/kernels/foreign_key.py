"""Foreign-key joins of tables: subscriptions, responses, and the bytes that carry them (KIP-213).

Follows SubscriptionSendProcessorSupplier, SubscriptionReceiveProcessorSupplier, SubscriptionJoinProcessorSupplier,
ForeignTableJoinProcessorSupplier and ResponseJoinProcessorSupplier.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from streamkit.errors import SerdeError
from streamkit.metrics import DropReason
from streamkit.record import Headers, Key, RecordContext, Value
from streamkit.rounds import MANY, ROW, made
from streamkit.serdes.partitioner import murmur3_128
from streamkit.serdes.serde import Serde

if TYPE_CHECKING:
    from streamkit.operators.core.task_services import TaskServices
    from streamkit.operators.kernels.signatures import Forward, Lookup
    from streamkit.state.stores.key_value import SubscriptionStore

DELETE_SILENTLY, DELETE_AND_RESPOND, RESPOND_ALWAYS, RESPOND_ON_MATCH = range(4)
VERSION = 1
NO_HASH = 0x80
HASH_SEED = 104729

_INT = Struct(">i")


class Subscription(NamedTuple):
    """The message of a row of the left table to the right table's task (SubscriptionWrapper)."""

    instruction: int
    hash: bytes | None
    primary_key: bytes
    partition: int


def hash_of(data: bytes | None) -> bytes | None:
    """Return the hash of a row's value, 16 bytes: a response with another hash is stale."""
    return None if data is None else murmur3_128(data, HASH_SEED)


def pack_subscription(subscription: Subscription) -> bytes:
    """Return the bytes of a subscription: version, instruction, hash if any, primary key, its partition."""
    instruction, digest, key, partition = subscription
    version = VERSION | NO_HASH if digest is None else VERSION
    return bytes((version, instruction)) + (digest or b"") + key + _INT.pack(partition)


def unpack_subscription(data: bytes) -> Subscription:
    """Return the subscription of some bytes. Raises SerdeError for another version."""
    if data[0] & 0x7F > VERSION:
        raise SerdeError(f"subscription of version {data[0] & 0x7F}; this release reads up to {VERSION}")
    start = 2 if data[0] & NO_HASH else 18
    return Subscription(data[1], None if start == 2 else data[2:18], data[start:-4], _INT.unpack(data[-4:])[0])


def pack_response(digest: bytes | None, value: bytes | None) -> bytes:
    """Return the bytes of a response: version 0, the hash that came with the subscription, the foreign value."""
    return (bytes((NO_HASH,)) if digest is None else b"\0" + digest) + (value or b"")


def unpack_response(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Return hash and foreign value; an empty value reads as absent, as in Java. Raises SerdeError for another version."""
    if data[0] & 0x7F:
        raise SerdeError(f"response of version {data[0] & 0x7F}; this release reads version 0")
    start = 1 if data[0] & NO_HASH else 17
    return (None if start == 1 else data[1:17]), data[start:] or None


class SubscriptionSender:
    """The left table's side: sends the right table which rows refer to which key."""

    def __init__(
        self,
        rt: TaskServices,
        left_join: bool,
        extract: Callable[[Key, Value, int, RecordContext], Key],
        serdes: tuple[Serde, Serde, Serde],
        forward: Forward,
    ):
        self._rt = rt
        self._left = left_join
        self._extract = extract
        self._key_serde, self._value_serde, self._foreign_serde = serdes
        self._forward = forward

    def process(self, k: Key, new: Value, old: Value, t: int, c: RecordContext) -> None:
        """Send the subscriptions that a change of a row makes or ends, for its old and its new foreign key."""
        if new is None and old is None:
            return
        before = None if old is None else self._extract(k, old, t, c)
        after = None if new is None else self._extract(k, new, t, c)
        if self._left:
            if before is not None and self._bytes(before) != self._bytes(after):
                self._send(k, new, before, DELETE_SILENTLY, t, c)
            self._send(k, new, after, RESPOND_ALWAYS, t, c)
        elif after is None:
            if new is not None:
                self._rt.dropped(DropReason.NULL)
            if before is not None:
                self._send(k, new, before, DELETE_AND_RESPOND, t, c)
        elif before is None or self._bytes(before) == self._bytes(after):
            self._send(k, new, after, RESPOND_ON_MATCH, t, c)
        else:
            self._send(k, new, before, DELETE_SILENTLY, t, c)
            # The response comes even without a match: the result of the old key must be deleted.
            self._send(k, new, after, RESPOND_ALWAYS, t, c)

    def _bytes(self, foreign_key: Key) -> bytes | None:
        return None if foreign_key is None else self._foreign_serde.encode(foreign_key)

    def _send(self, k: Key, new: Value, foreign_key: Key, instruction: int, t: int, c: RecordContext) -> None:
        digest = None if new is None else hash_of(self._value_serde.encode(new))
        subscription = Subscription(instruction, digest, self._key_serde.encode(k), self._rt.partition)
        self._forward(foreign_key, pack_subscription(subscription), t, c)


class SubscriptionReceiver:
    """The right table's side: keeps subscriptions, so that a change of a row finds the rows that refer to it."""

    def __init__(self, rt: TaskServices, store: SubscriptionStore, forward: Forward):
        self._rt = rt
        self._store = store
        self._forward = forward

    def process(
        self, foreign_key: bytes | None, data: bytes, t: int, c: RecordContext, headers: Headers | None
    ) -> None:
        """Store or delete a subscription, then forward (foreign key bytes, subscription)."""
        subscription = unpack_subscription(data)
        if foreign_key is None:
            if subscription.instruction != RESPOND_ALWAYS:
                self._rt.dropped(DropReason.NULL)
                return
        else:
            deletes = subscription.instruction in (DELETE_SILENTLY, DELETE_AND_RESPOND)
            self._store.put(foreign_key, subscription.primary_key, None if deletes else data, t, headers)
        self._forward(foreign_key, subscription, t, c)


class SubscriptionJoin:
    """Responds to a subscription with the right table's present row."""

    def __init__(self, lookup: Lookup, encode: Callable[[Value], bytes], forward: Forward):
        self._lookup = lookup
        self._encode = encode
        self._forward = forward

    def process(self, foreign_key: bytes | None, subscription: Subscription, t: int, c: RecordContext) -> None:
        """Forward (primary key bytes, (response, partition)) with the later of both timestamps."""
        instruction, digest, primary_key, partition = subscription
        if instruction == DELETE_SILENTLY:
            return
        found = None if foreign_key is None else self._lookup(foreign_key)
        if found is not None:
            t = max(t, found[1])
        elif instruction == RESPOND_ON_MATCH:
            return
        value = None
        if found is not None and instruction != DELETE_AND_RESPOND:
            value = None if found[0] is None else self._encode(found[0])
        self._forward(primary_key, (pack_response(digest, value), partition), t, c)


class ForeignTableJoin:
    """Responds to all subscriptions to a row of the right table when it changes."""

    def __init__(self, rt: TaskServices, store: SubscriptionStore, encode: Callable[[Value], bytes], forward: Forward):
        self._rt = rt
        self._store = store
        self._encode = encode
        self._forward = forward

    def process(self, foreign_key: bytes | None, new: Value, t: int, c: RecordContext) -> None:
        """Forward (primary key bytes, (response, partition)) for each subscription, with the row's own timestamp."""
        if foreign_key is None:
            self._rt.dropped(DropReason.NULL)
            return
        value = None if new is None else self._encode(new)
        for number, (primary_key, data, _) in enumerate(self._store.prefix(foreign_key), 1):
            if number % MANY == 0:
                made(MANY * (ROW + len(value or b"")))
            subscription = unpack_subscription(data)
            response = pack_response(subscription.hash, value)
            self._forward(primary_key, (response, subscription.partition), t, c)


class ResponseJoin:
    """Joins a response with the present row of the left table, if that has not changed since its subscription."""

    def __init__(
        self,
        rt: TaskServices,
        left_join: bool,
        lookup: Lookup,
        serdes: tuple[Serde, Serde],
        work: tuple[Callable[[Key, Value, Value, int, RecordContext], Value], Forward],
    ):
        self._rt = rt
        self._left = left_join
        self._lookup = lookup
        self._value_serde, self._foreign_serde = serdes
        self._joiner, self._forward = work

    def process(self, kb: bytes, k: Key, data: bytes, t: int, c: RecordContext) -> None:
        """Forward the joined value or a tombstone; a stale response is dropped."""
        digest, foreign = unpack_response(data)
        found = self._lookup(kb)
        current = None if found is None else found[0]
        present = None if current is None else hash_of(self._value_serde.encode(current))
        if present != digest:
            self._rt.dropped(DropReason.STALE)
            return
        value = None if foreign is None else self._foreign_serde.decode(foreign)
        if value is None and (not self._left or current is None):
            result = None
        else:
            result = self._joiner(k, current, value, t, c)
        self._forward(k, result, t, c)
