"""What changes the rows of stores, and where they lie."""

from __future__ import annotations

from tests.changes.versions import (
    NAMED,
    SESSIONS,
    STREAMS,
    SUPPRESS,
    TABLES,
    TOTALS,
    WINDOWS,
    Pair,
    pair,
)

_OUTER = ("- join:", "- outer_join:"), ("left + right", "str(left) + str(right)")
_VERSIONED = TABLES.replace("table: users", "table: users\n    store: {name: users, versioned: 1h}")
STORES_AND_ROWS: list[Pair] = [
    # Rows of changelogs
    pair(
        "value-serde",
        TOTALS,
        ("store: totals}", "store: totals, value_serde: string}"),
        ("totals: {value: json}", "totals: {value: string}"),
        ("{'n': 0}", "''"),
        ("{'n': aggregate.n + value.n}", "aggregate + 'x'"),
        expect="incompatible: store totals\nunknown: topic totals",
    ),
    pair(
        "key-serde",
        NAMED,
        ("key: value, name", "key: len(value), key_serde: long, name"),
        ("counts: {value: long}", "counts: {key: long, value: long}"),
        expect="incompatible: store counts\nincompatible: topic by-word-repartition\nunknown: topic counts",
    ),
    pair(
        "count-becomes-sum",
        NAMED,
        ("- count: counts\n", "- aggregate: {initial: 0.5, add: aggregate + 1, value_serde: double, store: counts}\n"),
        ("counts: {value: long}", "counts: {value: double}"),
        expect="incompatible: store counts\nunknown: topic counts",
    ),
    pair(
        "aggregate-of-json-changes",
        TOTALS,
        ("aggregate.n + value.n", "aggregate.n + 1"),
        expect="unknown: store totals",
    ),
    pair("window-size", WINDOWS, ("tumbling: 60s", "tumbling: 120s"), expect="incompatible: store per-key"),
    pair(
        "window-size-below-suppress",
        SUPPRESS,
        ("tumbling: 60s", "tumbling: 120s"),
        expect="incompatible: store final-store\nincompatible: store per-key",
    ),
    pair(
        "tumbling-becomes-hopping",
        WINDOWS,
        ("tumbling: 60s", "hopping: 60s, advance: 30s"),
        notes=("its advance was 60000 ms, is 30000 ms",),
    ),
    pair("tumbling-becomes-session", WINDOWS, ("tumbling: 60s", "session: 60s"), expect="incompatible: store per-key"),
    pair(
        "windows-come",
        NAMED,
        ("      - count: counts\n", "      - window: {tumbling: 60s}\n      - count: counts\n"),
        ("- to_stream", "- to_stream: {key: key.key}"),
        expect="incompatible: store counts",
    ),
    pair(
        "sliding-difference",
        WINDOWS.replace("tumbling: 60s", "sliding: 60s"),
        ("sliding: 60s", "sliding: 30s"),
        expect="incompatible: store per-key",
    ),
    pair(
        "grace-grows",
        WINDOWS,
        ("tumbling: 60s", "tumbling: 60s, grace: 240s"),
        expect="restore: store per-key\nrestore: store per-key",
        notes=("its grace was 0 ms, is 240000 ms",),
    ),
    pair(
        "grace-shrinks",
        WINDOWS.replace("tumbling: 60s", "tumbling: 60s, grace: 240s"),
        ("grace: 240s", "grace: 0s"),
        expect="restore: store per-key",
    ),
    pair(
        "session-gap",
        SESSIONS,
        ("session: 30s", "session: 40s"),
        expect="restore: store per-key",
        notes=("its gap was 30000 ms, is 40000 ms",),
    ),
    pair(
        "session-gap-shrinks",
        SESSIONS,
        ("session: 30s", "session: 20s"),
        notes=("its gap was 30000 ms, is 20000 ms",),
    ),
    pair(
        "retention",
        WINDOWS,
        ("count: per-key", "count: {store: {name: per-key, retention: 10m}}"),
        expect="restore: store per-key\nrestore: store per-key",
    ),
    pair(
        "join-window",
        STREAMS,
        ("within: 10s", "within: 20s"),
        expect="""
        restore: store KSTREAM-JOINOTHER-0000000005-store
        restore: store KSTREAM-JOINTHIS-0000000004-store""",
    ),
    pair(
        "join-window-shrinks",
        STREAMS,
        ("within: 10s", "within: 5s"),
    ),
    pair(
        "inner-becomes-outer",
        STREAMS,
        *_OUTER,
        expect="""
        renamed: store KSTREAM-OUTEROTHER-0000000005-store
        renamed: store KSTREAM-OUTERTHIS-0000000004-store""",
    ),
    pair(
        "versions-come",
        TABLES,
        ("table: users", "table: users\n    store: {name: users, versioned: 1h}"),
        expect="renamed: store users",
    ),
    pair(
        "table-becomes-versioned",
        TABLES.replace("table: users", "table: users\n    store: users"),
        ("store: users", "store: {name: users, versioned: 1h}"),
        expect="restore: store users",
    ),
    pair(
        "versioned-becomes-plain",
        _VERSIONED,
        ("{name: users, versioned: 1h}", "users"),
        expect="incompatible: store users",
    ),
    pair(
        "history-grows",
        _VERSIONED,
        ("versioned: 1h", "versioned: 2h"),
        expect="restore: store users",
    ),
    pair(
        "history-shrinks",
        _VERSIONED,
        ("versioned: 1h", "versioned: 30m"),
        notes=("its history was 3600000 ms, is 1800000 ms",),
    ),
    pair(
        "windows-go",
        WINDOWS,
        ("      - window: {tumbling: 60s}\n", ""),
        ('to_stream: {key: "key.key"}', "to_stream"),
        expect="incompatible: store per-key",
    ),
    # Where state lies
    pair(
        "in-memory",
        NAMED,
        ("count: counts", "count: {store: {name: counts, persistent: false}}"),
        expect="restore: store counts",
    ),
    pair(
        "on-disk",
        NAMED.replace("count: counts", "count: {store: {name: counts, persistent: false}}"),
        ("persistent: false", "persistent: true"),
        expect="restore: store counts",
    ),
    pair(
        "no-changelog",
        NAMED,
        ("count: counts", "count: {store: {name: counts, logging: false}}"),
        expect="renamed: store counts",
    ),
    pair(
        "changelog-comes",
        NAMED.replace("count: counts", "count: {store: {name: counts, logging: false}}"),
        ("logging: false", "logging: true"),
        expect="renamed: store counts",
    ),
    pair(
        "cache-comes",
        NAMED.replace("count: counts", "count: {store: {name: counts, caching: false}}"),
        ("caching: false", "caching: true"),
    ),
    pair("cache-goes", NAMED, ("count: counts", "count: {store: {name: counts, caching: false}}")),
    pair(
        "source-topic-is-changelog",
        TABLES,
        ("application: pair\n", "application: pair\nconfig: {topology.optimization: all}\n"),
        expect="restore: store users-STATE-STORE-0000000000",
    ),
    pair(
        "source-topic-is-no-changelog",
        TABLES.replace("application: pair\n", "application: pair\nconfig: {topology.optimization: all}\n"),
        ("config: {topology.optimization: all}\n", ""),
        expect="renamed: store users-STATE-STORE-0000000000",
    ),
]
