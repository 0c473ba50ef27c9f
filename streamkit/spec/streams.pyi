"""Streams, tables and groups of a topology in Python. `make generate` writes this file from the steps in streamkit/operators."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Literal, TypeAlias

from streamkit.api.protocols import Serde
from streamkit.spec.recorded_calls import Branch as Branch
from streamkit.spec.recorded_calls import PythonCall, RecordedStream

Expression: TypeAlias = str | int | float | bool | Callable[..., object] | PythonCall
"""An expression of the language as text, a constant, or a function."""
SerdeSpec: TypeAlias = str | Mapping[str, object] | type[Serde]
"""A serde by name or with its arguments, or the class of one."""
StoreSpec: TypeAlias = str | Mapping[str, object]
"""The name of a store, or its options."""
Duration: TypeAlias = str | int | timedelta
"""Text such as `5m`, or milliseconds."""
OnError: TypeAlias = str | Mapping[str, str] | None
"""What happens to a record on which a step fails."""

class AnyStream(RecordedStream):
    """What all streams, tables and groups have."""

    def step(self, name: str, *arguments: object, **options: object) -> Stream:
        """Add a step by its name: a macro, or a step of a plugin."""

class Stream(AnyStream):
    """A stream."""

    def to(
        self,
        topic: str | None = None,
        *,
        route: Expression | None = None,
        key: SerdeSpec | None = None,
        value: SerdeSpec | None = None,
        partition: Expression | None = None,
        partitions: int | None = None,
        name: str | None = None,
    ) -> None:
        """Write the records to a topic, or to the topic whose name `route` gives for each record.

        key, value: the serdes of the topic, if nothing else declares it; partition: the partition of a record, out of
            `partitions`; partitions: how many partitions the topic has if streamkit creates it.
        """

    def for_each(
        self, call: str | Callable[..., object], *, with_: Mapping[str, object] | None = None, name: str | None = None
    ) -> None:
        """Call a function with the key and the value of each record; ends the stream."""

    def filter(
        self,
        if_: Expression,
        *,
        with_: Mapping[str, object] | None = None,
        batch: int | None = None,
        as_: Literal["arrow", "pandas", "numpy"] | None = None,
        name: str | None = None,
        store: StoreSpec | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Keeps the records for which the condition is true. On a table, a row whose condition is false, or becomes false,
        is deleted from the result, and `store` materializes the result.

        if_: The condition, by Python's rules of truth.
        with_: The callable's arguments by name.
        batch: The callable takes lists of up to this many records.
        as_: With `batch`: values are passed as columns, named by their fields.
        name: The name of the step's node, instead of a generated one.
        store: The store for the result; without it no Materialized is passed.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def filter_not(
        self,
        if_: Expression,
        *,
        with_: Mapping[str, object] | None = None,
        batch: int | None = None,
        as_: Literal["arrow", "pandas", "numpy"] | None = None,
        name: str | None = None,
        store: StoreSpec | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Keeps the records for which the condition is false. On a table, a row whose condition is true is deleted from
        the result, and `store` materializes the result.

        if_: The condition, by Python's rules of truth.
        with_: The callable's arguments by name.
        batch: The callable takes lists of up to this many records.
        as_: With `batch`: values are passed as columns, named by their fields.
        name: The name of the step's node, instead of a generated one.
        store: The store for the result; without it no Materialized is passed.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def map(
        self,
        *,
        key: Expression | None = None,
        value: Expression | None = None,
        key_serde: SerdeSpec | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Replaces the key and the value of each record. If `key` or `value` is absent, that side does not change. A later
        step that needs records by key, such as an aggregation or a join, repartitions first; if the key does not
        change, use `map_values` to avoid this.

        key: The new key; without it, the key and its serde do not change.
        value: The new value; without it, the value and its serde do not change.
        key_serde: The serde of the new key; by default the file's key serde.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def map_values(
        self,
        value: Expression,
        *,
        with_: Mapping[str, object] | None = None,
        batch: int | None = None,
        as_: Literal["arrow", "pandas", "numpy"] | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        store: StoreSpec | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Replaces the value and keeps the key, so no repartitioning is needed. On a table, deleted rows stay deleted
        without evaluating the expression, and `store` materializes the result.

        value: The new value.
        with_: The callable's arguments by name.
        batch: The callable takes lists of up to this many records.
        as_: With `batch`: values are passed as columns, named by their fields.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        store: The store for the result; without it no Materialized is passed.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def flat_map(
        self,
        records: Expression,
        *,
        key_serde: SerdeSpec | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Turns each record into any number of records, given as a list of `(key, value)` pairs. Like `map` it changes
        keys, so later steps may need to repartition; `flat_map_values` does not.

        records: A list of pairs `(key, value)`.
        key_serde: The serde of the new key; by default the file's key serde.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def flat_map_values(
        self,
        values: Expression,
        *,
        with_: Mapping[str, object] | None = None,
        batch: int | None = None,
        as_: Literal["arrow", "pandas", "numpy"] | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Turns each record into one record per value of an iterable, all with the record's key. An empty iterable drops
        the record.

        values: An iterable of new values.
        with_: The callable's arguments by name.
        batch: The callable takes lists of up to this many records.
        as_: With `batch`: values are passed as columns, named by their fields.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def select_key(
        self,
        key: Expression,
        *,
        key_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Gives each record a new key. The record stays in its partition until an aggregation, a join or `to_table` needs
        records by key and repartitions.

        key: The new key.
        key_serde: The serde of the new key; by default the file's key serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def peek(
        self,
        do: Expression,
        *,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Evaluates an expression, or calls a Python callable with key and value, for each record, and forwards the record
        unchanged.

        do: Evaluated for each record; the result is ignored.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def print(
        self,
        label: str | None = None,
        *,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Prints each record as `[label]: key, value`; under `try` to stderr. The node has no successors; the next step
        follows the node above `print`.

        label: The prefix of each line; by default the name of the node above.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def merge(
        self,
        with_: Stream | Sequence[Stream],
        *,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Merges streams into one that contains the records of all, in no particular order. Records keep their keys; if
        the keys of one stream have changed, the merged stream counts as one with changed keys.

        with_: The other stream, or a list of streams.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def branch(
        self,
        when: Mapping[str, Expression | Branch] | Sequence[Expression | Branch],
        *,
        default: str | Literal[True] | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Branches:
        """Sends each record to the first branch whose predicate holds, in the order of `when`. If none holds, the record
        goes to the `default` branch; without one, it is dropped. The step ends its pipeline; other pipelines continue
        from a branch with `from: PIPELINE.BRANCH`. The name of a branch's node is the step's name (`name`, or else the
        generated one) followed by the branch's name. In a list, a branch without `name` is named by its position,
        counted from 1, and `default: true` is named 0: `from: PIPELINE.1`. All branches are created first, and then the
        nodes below each branch, in the order of `when`. With `chained: true`, a branch's steps and ends are created
        with the branch itself, as with `Branched.withFunction` and `withConsumer`; this affects indices, never records.

        when: Branches by name, or a list of branches without names: a predicate, or `if` with `steps` and ends.
        default: The name of the branch for records that match no predicate; `true`: a branch without a name.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def process(
        self,
        call: str | Callable[..., object],
        *,
        with_: Mapping[str, object] | None = None,
        stores: str | Sequence[str] | None = None,
        key_serde: SerdeSpec | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Passes each record to a Python class, which is instantiated once per task, or to a function. The callable can
        use stores, punctuators and headers, and forward any number of records with any keys; the keys count as changed.

        call: The class or function: `module:Name`.
        with_: The callable's arguments by name.
        stores: The names of the stores that the callable uses.
        key_serde: The serde of the new key; by default the file's key serde.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def process_values(
        self,
        call: str | Callable[..., object],
        *,
        with_: Mapping[str, object] | None = None,
        batch: int | None = None,
        as_: Literal["arrow", "pandas", "numpy"] | None = None,
        stores: str | Sequence[str] | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        store: StoreSpec | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Like `process`, but keys do not change: forwarding another key is an error, and later steps do not repartition.
        On a table it corresponds to `transformValues`: a class with `transform(self, key, value)` and optionally
        `init(self, context)` and `close(self)`, or a function `(key, value)` or `(key, value, context)`, returns the
        row's new value. It is also called for deleted rows, with the value None; returning None deletes the row. Its
        context has everything except `forward`. `store` materializes the result. Without it, values are computed again
        whenever they are needed: as old values for later steps and, by a separate instance, when a join looks up a row,
        even a missing one.

        call: The class or function: `module:Name`.
        with_: The callable's arguments by name.
        batch: The callable takes lists of up to this many records.
        as_: With `batch`: values are passed as columns, named by their fields.
        stores: The names of the stores that the callable uses.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        store: The store for the result; without it no Materialized is passed.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def set_headers(
        self,
        headers: Mapping[str, Expression | None],
        *,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Sets record headers: each expression returns text or bytes; null removes the header. An existing header of that
        name is replaced; others, the key and the value do not change. If an expression returns None, the header has no
        value, like `new RecordHeader(name, null)` in Java.

        headers: Headers by name: an expression, or null to remove it.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def set_timestamp(
        self,
        to: Expression,
        *,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Gives each record another timestamp, which downstream windows, joins and topics use. A result other than a whole
        number of at least 0, including null, is an error of the step. The task's stream time does not change, because
        it comes from the records that the task reads. To set it too, give the topic a `timestamp`, or use `repartition`
        after this step.

        to: The new timestamp in milliseconds, a whole number of at least 0.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def enrich(
        self,
        call: str | Callable[..., object],
        *,
        with_: Mapping[str, object] | None = None,
        by: Expression | None = None,
        value: Expression | None = None,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        retries: int | None = None,
        backoff: Duration | None = None,
        batch: int | None = None,
        cache: Mapping[str, str | int] | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Calls a function with a part of each record and joins its result with the record: a look-up in a service, a
        database or a remote model. The function is `async`, or an ordinary function, which runs in a thread, or a class
        whose objects are called. The calls for the records of a run are made in parallel. Records continue in order,
        each once it and all before it have their results, and are committed after that. See enrich.  Kafka Streams has
        no such step; the node is named `STREAMKIT-ENRICH-…`.

        call: The function or class that does the look-up: `module:Name`.
        with_: The callable's arguments by name.
        by: The function's argument, and the key of the cache; by default the value.
        value: The new value; by default the result.
        concurrency: How many calls may run at once in a stream thread. Default: 64.
        timeout: How long one call may take. Default: 30s.
        retries: How often a call that raises `RetriableError` is repeated. Default: 0.
        backoff: The pause before the first retry; it doubles for each further retry. Default: 100ms.
        batch: The function takes a list of up to this many arguments, and returns as many results.
        cache: How many results to keep in memory (`size`), and how long (`ttl`).
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def deduplicate(
        self,
        by: Expression,
        *,
        within: Duration,
        id_serde: SerdeSpec | None = None,
        store: StoreSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Forwards the first record of each id and drops records with the same id whose timestamps are less than `within`
        later; a record that is `within` or more after the forwarded one counts as the first again. The first record is
        the one that the task reads first. No two forwarded records of one id have timestamps less than `within` apart.
        A record whose id is null is forwarded. A record that is `within` or more behind stream time is late: it is
        dropped and counted (`dropped-records`) regardless of its id, because ids of that time may have been deleted; a
        record that is less late is a duplicate if its id has been forwarded. Keys and values, including null, are not
        examined and do not change.  Records are compared within their partition. If the stream's keys have changed, it
        repartitions first, so that records of a key meet; if `by` is not the key, records with the same id must have
        the same key, or follow `select_key`. The store has a row for each id with the timestamp of the forwarded
        record, for at most 2 × `within` of stream time; it has a changelog and no cache.

        by: The id of a record.
        within: How long after a record other records with its id count as duplicates.
        id_serde: The serde of ids in the store; equal ids have equal bytes. Default: json.
        store: The store of the ids: `name`, `type`, `logging`, `config`.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def sample(
        self,
        rate: float,
        *,
        by: Expression | None = None,
        seed: int | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Keeps a part of the records and drops the others. A hash (BLAKE2b) of `seed` and of the result of `by` decides,
        so all records with the same result are kept or dropped together, on every instance and in each replay. Of many
        different results, a share of about `rate` is kept, and a higher `rate` keeps all records that a lower one
        keeps. Equal numbers have equal hashes (1, 1.0), and the order of an object's fields does not matter. If `by`
        returns null, the position of the record decides (topic, partition and offset), so records are kept or dropped
        individually.

        rate: The share of the records to keep, from 0 to 1.
        by: The value that decides; by default the record's key.
        seed: A different number keeps different records. Default: 0.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def assert_(
        self,
        if_: Expression,
        *,
        message: str | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Forwards the records for which the condition is true. Every other record is an error of the step with `message`,
        and `on_error` decides what happens: the application ends (the default), the record is dropped, or it goes to a
        dead-letter topic with the message in its headers.

        if_: The condition; as in Python, null, 0 and empty values are false.
        message: The message of the error. Default: the condition does not hold.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def log(
        self,
        message: Expression,
        *,
        level: Literal["debug", "info", "warning", "error"] | None = None,
        limit: int | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Logs a line for each record, which begins with the name of the node, and forwards the record unchanged. `run`
        writes it to its log (logger `streamkit.steps`), `try`, `test` and Spark to stderr. A task logs at most `limit`
        lines in a second of the wall clock; for further records the message is not computed, and the next line begins
        with the number of omitted lines. A line has at most 10,000 characters, and line breaks in it are written as
        `\\n`.

        message: The message: text is logged unchanged, other values as JSON or in Python's notation.
        level: The level of the line. Default: info.
        limit: The maximum number of lines that a task logs per second. Default: 100.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def repartition(
        self,
        partitions: int | None = None,
        *,
        partition: Expression | None = None,
        key_serde: SerdeSpec | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Writes the stream to an internal topic and reads it back, so that records with the same key share a partition
        again, and work can be spread over a different number of partitions. `name` names the topic:
        `APPLICATION-NAME-repartition`.

        partitions: The number of partitions; by default derived from the upstream topics.
        partition: The partition of each record, out of `partitions`: a number, None for the key's partition, or a list
            of these; an empty list drops the record.
        key_serde: The serde of keys in the topic; by default the stream's key serde.
        value_serde: The serde of values in the topic; by default the stream's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def to_table(
        self,
        store: StoreSpec | None = None,
        *,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Reads the stream as changes of a table: the latest value of each key is the row, null deletes it. If the
        stream's keys have changed, it repartitions first. Without `store`, a store is created only if a step needs one.

        store: The store for the result; without it no Materialized is passed.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def group_by(
        self,
        key: Expression,
        *,
        value: Expression | None = None,
        key_serde: SerdeSpec | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> GroupedStream:
        """Groups records by a new key for the next aggregation; this repartitions them. On a table, the aggregation
        removes a row's old value from its group and adds the new one to its new group. `name` names the repartition
        topic, which aggregations of the same group then share.

        key: The key of the group.
        value: On tables: the value to aggregate; by default the row's value.
        key_serde: The serde of the group's key; by default the file's key serde.
        value_serde: The serde of the value; by default the stream's serde (with `value`: the file's value serde).
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def group_by_key(
        self,
        *,
        key_serde: SerdeSpec | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> GroupedStream:
        """Groups records by their current key for the next aggregation; this repartitions them only if keys have changed.

        key_serde: The serde of keys in a repartition topic; by default the stream's key serde.
        value_serde: The serde of values in a repartition topic; by default the stream's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def join(
        self,
        with_: Joinable,
        *,
        value: Expression,
        on: Expression | None = None,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        grace: Duration | None = None,
        store: StoreSpec | None = None,
        this_store: StoreSpec | None = None,
        other_store: StoreSpec | None = None,
        partition: Expression | None = None,
        other_partition: Expression | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Joins two pipelines. Two streams join records with the same key whose times differ by at most `within`; a stream
        and a table look up the record's key in the table; a stream and a global table look up the key that `on`
        returns; two tables join rows with the same key, or with `on` the row that a foreign key names. Only records
        with a match on both sides are emitted.

        with_: The other side: a pipeline, or an inline source.
        value: The joined value, from `left`, `right` and `key` (foreign keys: only `left` and `right`; global tables:
            also `mapped_key`, the result of `on`, KIP-1340).
        on: The key to look up in a global table, or the foreign key, computed from the left side's `key` and `value`.
        within: Two streams: the maximum time between two joined records.
        before: Two streams: how much earlier the right record may be; with `-5m`, it must be at least 5 minutes later.
        after: Two streams: how much later the right record may be; with `-5m`, it must be at least 5 minutes earlier.
        grace: Two streams: how long the window accepts late records, in the task's stream time, as in `window`.
            Versioned table: how long to wait.
        store: Two tables: the store of the result. Two streams: `name`, the prefix of the names of the join's stores,
            and `type`, `logging` and `config` for all of them.
        this_store: Two streams: the store of the left side by `name`, `type` and `segment_interval`; it always has a
            changelog.
        other_store: Two streams: the same for the store of the right side.
        partition: Foreign key: the partition of the left row's `key`, out of `partitions`, if the left table is not
            partitioned by the key's bytes. If the result is None, the bytes decide.
        other_partition: Foreign key: the same for the right row's `key`.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def left_join(
        self,
        with_: Joinable,
        *,
        value: Expression,
        on: Expression | None = None,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        grace: Duration | None = None,
        store: StoreSpec | None = None,
        this_store: StoreSpec | None = None,
        other_store: StoreSpec | None = None,
        partition: Expression | None = None,
        other_partition: Expression | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Joins like `join`, but also emits records of the left side without a match; `right` is then None. For two
        streams, an unmatched record is emitted when its window has ended.

        with_: The other side: a pipeline, or an inline source.
        value: The joined value, from `left`, `right` and `key` (foreign keys: only `left` and `right`; global tables:
            also `mapped_key`, the result of `on`, KIP-1340).
        on: The key to look up in a global table, or the foreign key, computed from the left side's `key` and `value`.
        within: Two streams: the maximum time between two joined records.
        before: Two streams: how much earlier the right record may be; with `-5m`, it must be at least 5 minutes later.
        after: Two streams: how much later the right record may be; with `-5m`, it must be at least 5 minutes earlier.
        grace: Two streams: how long the window accepts late records, in the task's stream time, as in `window`.
            Versioned table: how long to wait.
        store: Two tables: the store of the result. Two streams: `name`, the prefix of the names of the join's stores,
            and `type`, `logging` and `config` for all of them.
        this_store: Two streams: the store of the left side by `name`, `type` and `segment_interval`; it always has a
            changelog.
        other_store: Two streams: the same for the store of the right side.
        partition: Foreign key: the partition of the left row's `key`, out of `partitions`, if the left table is not
            partitioned by the key's bytes. If the result is None, the bytes decide.
        other_partition: Foreign key: the same for the right row's `key`.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def outer_join(
        self,
        with_: Joinable,
        *,
        value: Expression,
        on: Expression | None = None,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        grace: Duration | None = None,
        store: StoreSpec | None = None,
        this_store: StoreSpec | None = None,
        other_store: StoreSpec | None = None,
        partition: Expression | None = None,
        other_partition: Expression | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Joins two streams or two tables, and also emits records of both sides without a match; the missing side is None.

        with_: The other side: a pipeline, or an inline source.
        value: The joined value, from `left`, `right` and `key` (foreign keys: only `left` and `right`; global tables:
            also `mapped_key`, the result of `on`, KIP-1340).
        on: The key to look up in a global table, or the foreign key, computed from the left side's `key` and `value`.
        within: Two streams: the maximum time between two joined records.
        before: Two streams: how much earlier the right record may be; with `-5m`, it must be at least 5 minutes later.
        after: Two streams: how much later the right record may be; with `-5m`, it must be at least 5 minutes earlier.
        grace: Two streams: how long the window accepts late records, in the task's stream time, as in `window`.
            Versioned table: how long to wait.
        store: Two tables: the store of the result. Two streams: `name`, the prefix of the names of the join's stores,
            and `type`, `logging` and `config` for all of them.
        this_store: Two streams: the store of the left side by `name`, `type` and `segment_interval`; it always has a
            changelog.
        other_store: Two streams: the same for the store of the right side.
        partition: Foreign key: the partition of the left row's `key`, out of `partitions`, if the left table is not
            partitioned by the key's bytes. If the result is None, the bytes decide.
        other_partition: Foreign key: the same for the right row's `key`.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

class Table(AnyStream):
    """A table."""

    def filter(
        self,
        if_: Expression,
        *,
        with_: Mapping[str, object] | None = None,
        batch: int | None = None,
        as_: Literal["arrow", "pandas", "numpy"] | None = None,
        name: str | None = None,
        store: StoreSpec | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Keeps the records for which the condition is true. On a table, a row whose condition is false, or becomes false,
        is deleted from the result, and `store` materializes the result.

        if_: The condition, by Python's rules of truth.
        with_: The callable's arguments by name.
        batch: The callable takes lists of up to this many records.
        as_: With `batch`: values are passed as columns, named by their fields.
        name: The name of the step's node, instead of a generated one.
        store: The store for the result; without it no Materialized is passed.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def filter_not(
        self,
        if_: Expression,
        *,
        with_: Mapping[str, object] | None = None,
        batch: int | None = None,
        as_: Literal["arrow", "pandas", "numpy"] | None = None,
        name: str | None = None,
        store: StoreSpec | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Keeps the records for which the condition is false. On a table, a row whose condition is true is deleted from
        the result, and `store` materializes the result.

        if_: The condition, by Python's rules of truth.
        with_: The callable's arguments by name.
        batch: The callable takes lists of up to this many records.
        as_: With `batch`: values are passed as columns, named by their fields.
        name: The name of the step's node, instead of a generated one.
        store: The store for the result; without it no Materialized is passed.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def map_values(
        self,
        value: Expression,
        *,
        with_: Mapping[str, object] | None = None,
        batch: int | None = None,
        as_: Literal["arrow", "pandas", "numpy"] | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        store: StoreSpec | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Replaces the value and keeps the key, so no repartitioning is needed. On a table, deleted rows stay deleted
        without evaluating the expression, and `store` materializes the result.

        value: The new value.
        with_: The callable's arguments by name.
        batch: The callable takes lists of up to this many records.
        as_: With `batch`: values are passed as columns, named by their fields.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        store: The store for the result; without it no Materialized is passed.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def process_values(
        self,
        call: str | Callable[..., object],
        *,
        with_: Mapping[str, object] | None = None,
        batch: int | None = None,
        as_: Literal["arrow", "pandas", "numpy"] | None = None,
        stores: str | Sequence[str] | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        store: StoreSpec | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Like `process`, but keys do not change: forwarding another key is an error, and later steps do not repartition.
        On a table it corresponds to `transformValues`: a class with `transform(self, key, value)` and optionally
        `init(self, context)` and `close(self)`, or a function `(key, value)` or `(key, value, context)`, returns the
        row's new value. It is also called for deleted rows, with the value None; returning None deletes the row. Its
        context has everything except `forward`. `store` materializes the result. Without it, values are computed again
        whenever they are needed: as old values for later steps and, by a separate instance, when a join looks up a row,
        even a missing one.

        call: The class or function: `module:Name`.
        with_: The callable's arguments by name.
        batch: The callable takes lists of up to this many records.
        as_: With `batch`: values are passed as columns, named by their fields.
        stores: The names of the stores that the callable uses.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        store: The store for the result; without it no Materialized is passed.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def to_stream(
        self,
        key: Expression | None = None,
        *,
        key_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Stream:
        """Turns a table into the stream of its changes: one record per update, with the value null for a deleted row. A
        table must become a stream before `to` can write it.

        key: A new key for the stream; by default the table's key.
        key_serde: The serde of the new key; by default the file's key serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def group_by(
        self,
        key: Expression,
        *,
        value: Expression | None = None,
        key_serde: SerdeSpec | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> GroupedTable:
        """Groups records by a new key for the next aggregation; this repartitions them. On a table, the aggregation
        removes a row's old value from its group and adds the new one to its new group. `name` names the repartition
        topic, which aggregations of the same group then share.

        key: The key of the group.
        value: On tables: the value to aggregate; by default the row's value.
        key_serde: The serde of the group's key; by default the file's key serde.
        value_serde: The serde of the value; by default the stream's serde (with `value`: the file's value serde).
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def suppress(
        self,
        until: Duration,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        when_full: Literal["emit_early", "shut_down"] | None = None,
        logging: bool | None = None,
        config: Mapping[str, str | int | float | bool] | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Holds back the updates of a table and forwards only the last of several: until the key's window closes, which
        gives one final result per window, or for a given time. The buffer is unbounded, or bounded by `max_records` and
        `max_bytes`; when it is full, the oldest updates are emitted early, or the application stops.

        until: `window_closes`, or how long a key's updates are held back after the first one.
        max_records: The maximum number of keys in the buffer; unbounded by default.
        max_bytes: The maximum number of bytes in the buffer; unbounded by default.
        when_full: What happens when the buffer is full.
        logging: Whether the buffer has a changelog, from which it is restored. Default: True.
        config: Settings of the changelog topic, which take precedence over `topic.` in the file's `config`.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def join(
        self,
        with_: Joinable,
        *,
        value: Expression,
        on: Expression | None = None,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        grace: Duration | None = None,
        store: StoreSpec | None = None,
        this_store: StoreSpec | None = None,
        other_store: StoreSpec | None = None,
        partition: Expression | None = None,
        other_partition: Expression | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Joins two pipelines. Two streams join records with the same key whose times differ by at most `within`; a stream
        and a table look up the record's key in the table; a stream and a global table look up the key that `on`
        returns; two tables join rows with the same key, or with `on` the row that a foreign key names. Only records
        with a match on both sides are emitted.

        with_: The other side: a pipeline, or an inline source.
        value: The joined value, from `left`, `right` and `key` (foreign keys: only `left` and `right`; global tables:
            also `mapped_key`, the result of `on`, KIP-1340).
        on: The key to look up in a global table, or the foreign key, computed from the left side's `key` and `value`.
        within: Two streams: the maximum time between two joined records.
        before: Two streams: how much earlier the right record may be; with `-5m`, it must be at least 5 minutes later.
        after: Two streams: how much later the right record may be; with `-5m`, it must be at least 5 minutes earlier.
        grace: Two streams: how long the window accepts late records, in the task's stream time, as in `window`.
            Versioned table: how long to wait.
        store: Two tables: the store of the result. Two streams: `name`, the prefix of the names of the join's stores,
            and `type`, `logging` and `config` for all of them.
        this_store: Two streams: the store of the left side by `name`, `type` and `segment_interval`; it always has a
            changelog.
        other_store: Two streams: the same for the store of the right side.
        partition: Foreign key: the partition of the left row's `key`, out of `partitions`, if the left table is not
            partitioned by the key's bytes. If the result is None, the bytes decide.
        other_partition: Foreign key: the same for the right row's `key`.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def left_join(
        self,
        with_: Joinable,
        *,
        value: Expression,
        on: Expression | None = None,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        grace: Duration | None = None,
        store: StoreSpec | None = None,
        this_store: StoreSpec | None = None,
        other_store: StoreSpec | None = None,
        partition: Expression | None = None,
        other_partition: Expression | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Joins like `join`, but also emits records of the left side without a match; `right` is then None. For two
        streams, an unmatched record is emitted when its window has ended.

        with_: The other side: a pipeline, or an inline source.
        value: The joined value, from `left`, `right` and `key` (foreign keys: only `left` and `right`; global tables:
            also `mapped_key`, the result of `on`, KIP-1340).
        on: The key to look up in a global table, or the foreign key, computed from the left side's `key` and `value`.
        within: Two streams: the maximum time between two joined records.
        before: Two streams: how much earlier the right record may be; with `-5m`, it must be at least 5 minutes later.
        after: Two streams: how much later the right record may be; with `-5m`, it must be at least 5 minutes earlier.
        grace: Two streams: how long the window accepts late records, in the task's stream time, as in `window`.
            Versioned table: how long to wait.
        store: Two tables: the store of the result. Two streams: `name`, the prefix of the names of the join's stores,
            and `type`, `logging` and `config` for all of them.
        this_store: Two streams: the store of the left side by `name`, `type` and `segment_interval`; it always has a
            changelog.
        other_store: Two streams: the same for the store of the right side.
        partition: Foreign key: the partition of the left row's `key`, out of `partitions`, if the left table is not
            partitioned by the key's bytes. If the result is None, the bytes decide.
        other_partition: Foreign key: the same for the right row's `key`.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def outer_join(
        self,
        with_: Joinable,
        *,
        value: Expression,
        on: Expression | None = None,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        grace: Duration | None = None,
        store: StoreSpec | None = None,
        this_store: StoreSpec | None = None,
        other_store: StoreSpec | None = None,
        partition: Expression | None = None,
        other_partition: Expression | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Joins two streams or two tables, and also emits records of both sides without a match; the missing side is None.

        with_: The other side: a pipeline, or an inline source.
        value: The joined value, from `left`, `right` and `key` (foreign keys: only `left` and `right`; global tables:
            also `mapped_key`, the result of `on`, KIP-1340).
        on: The key to look up in a global table, or the foreign key, computed from the left side's `key` and `value`.
        within: Two streams: the maximum time between two joined records.
        before: Two streams: how much earlier the right record may be; with `-5m`, it must be at least 5 minutes later.
        after: Two streams: how much later the right record may be; with `-5m`, it must be at least 5 minutes earlier.
        grace: Two streams: how long the window accepts late records, in the task's stream time, as in `window`.
            Versioned table: how long to wait.
        store: Two tables: the store of the result. Two streams: `name`, the prefix of the names of the join's stores,
            and `type`, `logging` and `config` for all of them.
        this_store: Two streams: the store of the left side by `name`, `type` and `segment_interval`; it always has a
            changelog.
        other_store: Two streams: the same for the store of the right side.
        partition: Foreign key: the partition of the left row's `key`, out of `partitions`, if the left table is not
            partitioned by the key's bytes. If the result is None, the bytes decide.
        other_partition: Foreign key: the same for the right row's `key`.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

class GlobalTable(AnyStream):
    """A global table."""

class GroupedStream(AnyStream):
    """A grouped stream."""

    def window(
        self,
        *,
        tumbling: Duration | None = None,
        hopping: Duration | None = None,
        advance: Duration | None = None,
        sliding: Duration | None = None,
        session: Duration | None = None,
        grace: Duration | None = None,
        emit: Literal["on_update", "on_close"] | None = None,
        on_error: OnError = None,
    ) -> WindowedStream:
        """Divides the records of each group by time, so that the next aggregation has one result per key and window:
        `tumbling`, `hopping`, `sliding` or `session`. Results are emitted with every update, or with `emit: on_close`
        once, when the window and its `grace` have ended.

        tumbling: Windows of this size, one after the other.
        hopping: Windows of this size, a new one every `advance`.
        advance: The interval between the starts of hopping windows.
        sliding: A window for each set of records at most this far apart.
        session: A window for each burst of records, with gaps of at most this between them.
        grace: How long a window accepts late records after its end, in the task's stream time. If a repartition merges
            partitions that are catching up, partitions that are ahead make the records of the others late. Default: 0.
        emit: When results are emitted. Default: on_update.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def cogroup(
        self,
        add: Expression,
        *,
        inputs: Sequence[tuple[GroupedStream, Expression]] | None = None,
        on_error: OnError = None,
    ) -> CogroupedStream:
        """Aggregates several grouped streams into one result per key, each with its own `add`. The step `aggregate`
        follows, possibly after a `window`, and gives the initial result. All groups need the same keys.

        add: The new result for the pipeline's own records, from `key`, `value` and `aggregate`.
        inputs: Other grouped pipelines, each with its own `add`.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def count(
        self,
        store: StoreSpec | None = None,
        *,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Counts the records of each group, per window if the group is windowed; on a grouped table, the current rows of
        the group. The result is a table of `long` values.

        store: The store for the result; without it no Materialized is passed.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def reduce(
        self,
        add: Expression,
        *,
        subtract: Expression | None = None,
        store: StoreSpec | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Combines the values of each group into one of the same type. The first value becomes the result unchanged; `add`
        combines each further value with it. On a grouped table, `subtract` removes a row's old value.

        add: The new result, from `aggregate` (the result so far) and `value`.
        subtract: On tables: `aggregate` without `value`, which has left the group.
        store: The store for the result; without it no Materialized is passed.
        value_serde: The serde of the result; by default the stream's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def aggregate(
        self,
        initial: Expression,
        *,
        add: Expression | None = None,
        subtract: Expression | None = None,
        merge: Expression | None = None,
        store: StoreSpec | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Combines the values of each group into a result that starts as `initial`. `add` adds a value; on a grouped
        table, `subtract` removes one; with session windows, `merge` combines the results of two sessions. After
        `cogroup`, which has an `add` for each input, give only `initial` (and `merge`).

        initial: The result before the first value: an expression of constants and functions, without `key` and `value`.
        add: The new result, from `key`, `value` and `aggregate`, the result so far.
        subtract: On tables: `aggregate` without `value`, which has left the group.
        merge: For sessions: the combined result of two sessions that become one.
        store: The store for the result; without it no Materialized is passed.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def top(
        self,
        n: int,
        *,
        by: Expression,
        store: StoreSpec | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Keeps the `n` values with the highest ranks of each group, per window if the group is windowed. The result is a
        table of lists, the highest rank first. Among equal ranks, the earlier value comes first, and a value that only
        equals the last rank of a full list is not added. For the lowest ranks, write `by: -value.x`. A row is updated
        each time its list changes, with the highest timestamp of the records that changed it; sliding windows and
        sessions are updated by each record. A cache (see stores) holds updates back until the commit, as for other
        aggregations. Values are kept unchanged; select fields with `map_values` before this step.  A record without key
        or value, or whose rank is null or NaN, is dropped and counted. Ranks that can't be compared, such as a number
        and text, are an error of the step. A record that is late for its window is dropped. Without windows, lists
        ignore time, and a value leaves a list only for a higher rank. With a `ttl`, a row is deleted that long after
        its last change. When two sessions become one, values of the earlier session come first among equal ranks.

        n: The maximum length of the list, up to 10,000.
        by: The rank of a value; higher ranks come first.
        store: The store for the result; without it no Materialized is passed.
        value_serde: The serde of the list. Default: json.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

class GroupedTable(AnyStream):
    """A grouped table."""

    def count(
        self,
        store: StoreSpec | None = None,
        *,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Counts the records of each group, per window if the group is windowed; on a grouped table, the current rows of
        the group. The result is a table of `long` values.

        store: The store for the result; without it no Materialized is passed.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def reduce(
        self,
        add: Expression,
        *,
        subtract: Expression | None = None,
        store: StoreSpec | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Combines the values of each group into one of the same type. The first value becomes the result unchanged; `add`
        combines each further value with it. On a grouped table, `subtract` removes a row's old value.

        add: The new result, from `aggregate` (the result so far) and `value`.
        subtract: On tables: `aggregate` without `value`, which has left the group.
        store: The store for the result; without it no Materialized is passed.
        value_serde: The serde of the result; by default the stream's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def aggregate(
        self,
        initial: Expression,
        *,
        add: Expression | None = None,
        subtract: Expression | None = None,
        merge: Expression | None = None,
        store: StoreSpec | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Combines the values of each group into a result that starts as `initial`. `add` adds a value; on a grouped
        table, `subtract` removes one; with session windows, `merge` combines the results of two sessions. After
        `cogroup`, which has an `add` for each input, give only `initial` (and `merge`).

        initial: The result before the first value: an expression of constants and functions, without `key` and `value`.
        add: The new result, from `key`, `value` and `aggregate`, the result so far.
        subtract: On tables: `aggregate` without `value`, which has left the group.
        merge: For sessions: the combined result of two sessions that become one.
        store: The store for the result; without it no Materialized is passed.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

class CogroupedStream(AnyStream):
    """A cogrouped stream."""

    def window(
        self,
        *,
        tumbling: Duration | None = None,
        hopping: Duration | None = None,
        advance: Duration | None = None,
        sliding: Duration | None = None,
        session: Duration | None = None,
        grace: Duration | None = None,
        emit: Literal["on_update", "on_close"] | None = None,
        on_error: OnError = None,
    ) -> WindowedCogroup:
        """Divides the records of each group by time, so that the next aggregation has one result per key and window:
        `tumbling`, `hopping`, `sliding` or `session`. Results are emitted with every update, or with `emit: on_close`
        once, when the window and its `grace` have ended.

        tumbling: Windows of this size, one after the other.
        hopping: Windows of this size, a new one every `advance`.
        advance: The interval between the starts of hopping windows.
        sliding: A window for each set of records at most this far apart.
        session: A window for each burst of records, with gaps of at most this between them.
        grace: How long a window accepts late records after its end, in the task's stream time. If a repartition merges
            partitions that are catching up, partitions that are ahead make the records of the others late. Default: 0.
        emit: When results are emitted. Default: on_update.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def aggregate(
        self,
        initial: Expression,
        *,
        add: Expression | None = None,
        subtract: Expression | None = None,
        merge: Expression | None = None,
        store: StoreSpec | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Combines the values of each group into a result that starts as `initial`. `add` adds a value; on a grouped
        table, `subtract` removes one; with session windows, `merge` combines the results of two sessions. After
        `cogroup`, which has an `add` for each input, give only `initial` (and `merge`).

        initial: The result before the first value: an expression of constants and functions, without `key` and `value`.
        add: The new result, from `key`, `value` and `aggregate`, the result so far.
        subtract: On tables: `aggregate` without `value`, which has left the group.
        merge: For sessions: the combined result of two sessions that become one.
        store: The store for the result; without it no Materialized is passed.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

class WindowedStream(AnyStream):
    """A windowed stream."""

    def count(
        self,
        store: StoreSpec | None = None,
        *,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Counts the records of each group, per window if the group is windowed; on a grouped table, the current rows of
        the group. The result is a table of `long` values.

        store: The store for the result; without it no Materialized is passed.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def reduce(
        self,
        add: Expression,
        *,
        subtract: Expression | None = None,
        store: StoreSpec | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Combines the values of each group into one of the same type. The first value becomes the result unchanged; `add`
        combines each further value with it. On a grouped table, `subtract` removes a row's old value.

        add: The new result, from `aggregate` (the result so far) and `value`.
        subtract: On tables: `aggregate` without `value`, which has left the group.
        store: The store for the result; without it no Materialized is passed.
        value_serde: The serde of the result; by default the stream's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def aggregate(
        self,
        initial: Expression,
        *,
        add: Expression | None = None,
        subtract: Expression | None = None,
        merge: Expression | None = None,
        store: StoreSpec | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Combines the values of each group into a result that starts as `initial`. `add` adds a value; on a grouped
        table, `subtract` removes one; with session windows, `merge` combines the results of two sessions. After
        `cogroup`, which has an `add` for each input, give only `initial` (and `merge`).

        initial: The result before the first value: an expression of constants and functions, without `key` and `value`.
        add: The new result, from `key`, `value` and `aggregate`, the result so far.
        subtract: On tables: `aggregate` without `value`, which has left the group.
        merge: For sessions: the combined result of two sessions that become one.
        store: The store for the result; without it no Materialized is passed.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

    def top(
        self,
        n: int,
        *,
        by: Expression,
        store: StoreSpec | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Keeps the `n` values with the highest ranks of each group, per window if the group is windowed. The result is a
        table of lists, the highest rank first. Among equal ranks, the earlier value comes first, and a value that only
        equals the last rank of a full list is not added. For the lowest ranks, write `by: -value.x`. A row is updated
        each time its list changes, with the highest timestamp of the records that changed it; sliding windows and
        sessions are updated by each record. A cache (see stores) holds updates back until the commit, as for other
        aggregations. Values are kept unchanged; select fields with `map_values` before this step.  A record without key
        or value, or whose rank is null or NaN, is dropped and counted. Ranks that can't be compared, such as a number
        and text, are an error of the step. A record that is late for its window is dropped. Without windows, lists
        ignore time, and a value leaves a list only for a higher rank. With a `ttl`, a row is deleted that long after
        its last change. When two sessions become one, values of the earlier session come first among equal ranks.

        n: The maximum length of the list, up to 10,000.
        by: The rank of a value; higher ranks come first.
        store: The store for the result; without it no Materialized is passed.
        value_serde: The serde of the list. Default: json.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

class WindowedCogroup(AnyStream):
    """A windowed cogrouped stream."""

    def aggregate(
        self,
        initial: Expression,
        *,
        add: Expression | None = None,
        subtract: Expression | None = None,
        merge: Expression | None = None,
        store: StoreSpec | None = None,
        value_serde: SerdeSpec | None = None,
        name: str | None = None,
        on_error: OnError = None,
    ) -> Table:
        """Combines the values of each group into a result that starts as `initial`. `add` adds a value; on a grouped
        table, `subtract` removes one; with session windows, `merge` combines the results of two sessions. After
        `cogroup`, which has an `add` for each input, give only `initial` (and `merge`).

        initial: The result before the first value: an expression of constants and functions, without `key` and `value`.
        add: The new result, from `key`, `value` and `aggregate`, the result so far.
        subtract: On tables: `aggregate` without `value`, which has left the group.
        merge: For sessions: the combined result of two sessions that become one.
        store: The store for the result; without it no Materialized is passed.
        value_serde: The serde of the new value; by default the file's value serde.
        name: The name of the step's node, instead of a generated one.
        on_error: `fail`, `continue` or `{'dead_letter': TOPIC}`.
        """

class Branches(AnyStream):
    """The branches of a stream by name."""

    def __getitem__(self, name: str) -> Stream: ...
    def __iter__(self) -> Iterator[str]: ...

CLASSES_BY_NAME: Mapping[str, type[AnyStream]]
"""The classes above."""
Joinable: TypeAlias = Stream | Table | GlobalTable
"""The other side of a join."""
