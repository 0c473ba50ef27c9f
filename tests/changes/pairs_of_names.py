"""What changes the names of stores and of repartition topics, and what keeps them."""

from __future__ import annotations

from tests.changes.versions import (
    EXPLICIT,
    FOREIGN,
    GLOBAL,
    NAMED,
    REKEYED,
    STORES,
    STREAMS,
    SUPPRESS,
    TABLES,
    WORDS,
    Pair,
    pair,
)

_COUNT3, _COUNT4 = "KSTREAM-AGGREGATE-STATE-STORE-0000000003", "KSTREAM-AGGREGATE-STATE-STORE-0000000004"
NAMES: list[Pair] = [
    pair("nothing", WORDS),
    pair("comment-and-description", WORDS, ("application: pair\n", "application: pair\ndescription: Counts\n")),
    # Steps before a store without a name
    pair(
        "filter-before-count",
        WORDS,
        ("      - group_by", "      - filter: len(value) > 2\n      - group_by"),
        expect=f"renamed: store {_COUNT4}\nrecords left behind: topic {_COUNT4}-repartition",
        notes=("filter is new",),
    ),
    pair(
        "step-removed-before-count",
        WORDS.replace("      - group_by", "      - peek: len(value)\n      - group_by"),
        ("      - peek: len(value)\n", ""),
        expect=f"renamed: store {_COUNT3}\nrecords left behind: topic {_COUNT3}-repartition",
    ),
    pair("filter-before-named-count", NAMED, ("      - group_by", "      - filter: len(value) > 2\n      - group_by")),
    pair("filter-after-count", WORDS, ("      - to_stream\n", "      - to_stream\n      - filter: value > 1\n")),
    pair(
        "expression-changes", WORDS, ("value.lower()", "value.upper()"), notes=("flat_map_values behaves differently",)
    ),
    pair(
        "pinned-by-the-old-name",
        WORDS,
        ("      - group_by", "      - filter: len(value) > 2\n      - group_by"),
        ("- count\n", f"- count: {_COUNT3}\n"),
    ),
    # What findings propose
    pair(
        "join-pinned",
        STREAMS,
        ("stream: left\n    steps:\n", "stream: left\n    steps:\n      - filter: value > ''\n"),
        (
            "within: 10s",
            "within: 10s, this_store: {name: KSTREAM-JOINTHIS-0000000004-store}, "
            "other_store: {name: KSTREAM-JOINOTHER-0000000005-store}",
        ),
    ),
    pair(
        "table-pinned",
        TABLES,
        ("  users:\n", "  more: {table: more, store: more}\n  users:\n"),
        ("table: users", "table: users\n    store: users-STATE-STORE-0000000000"),
        expect="restore: sub-topology 1\nstop: sub-topology 0",
    ),
    pair(
        "repartition-pinned",
        REKEYED,
        ("      - select_key", "      - filter: value > ''\n      - select_key"),
        ("value_serde: string}\n    to: out", "value_serde: string, name: KSTREAM-KEY-SELECT-0000000004}\n    to: out"),
    ),
    # Names of stores
    pair(
        "store-gets-a-name",
        WORDS,
        ("- count\n", "- count: counts\n"),
        expect="renamed: store counts\nrecords left behind: topic counts-repartition",
    ),
    pair("store-loses-its-name", NAMED, ("- count: counts\n", "- count\n"), expect=f"renamed: store {_COUNT3}"),
    pair("store-renamed", NAMED, ("- count: counts\n", "- count: totals\n"), expect="renamed: store totals"),
    pair("store-of-processors-renamed", STORES, ("seen", "known"), expect="renamed: store known", java=False),
    pair(
        "table-gets-a-name", TABLES, ("table: users", "table: users\n    store: users"), expect="renamed: store users"
    ),
    pair("suppress-renamed", SUPPRESS, ("name: final", "name: last"), expect="renamed: store last-store"),
    pair(
        "foreign-key-join-renamed",
        FOREIGN,
        ("name: customer", "name: buyer"),
        expect="""
        renamed: store buyer-subscription-store
        records left behind: topic buyer-subscription-registration-topic
        records left behind: topic buyer-subscription-response-topic""",
    ),
    pair(
        "suppress-loses-its-name",
        SUPPRESS,
        ("{until: window_closes, name: final}", "{until: window_closes}"),
        expect="renamed: store KTABLE-SUPPRESS-STATE-STORE-0000000003",
    ),
    pair(
        "foreign-key-join-loses-its-name",
        FOREIGN,
        (", name: customer", ""),
        expect="""
        renamed: store KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-0000000008
        records left behind: topic KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000004-topic
        records left behind: topic KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000012-topic""",
    ),
    pair(
        "global-table-renamed",
        GLOBAL,
        ("global_table: rates", "global_table: rates, store: rates"),
        notes=("is read again from its topic",),
    ),
    pair(
        "join-of-streams-shifts",
        STREAMS,
        ("stream: left\n    steps:\n", "stream: left\n    steps:\n      - filter: value > ''\n"),
        expect="""
        renamed: store KSTREAM-JOINOTHER-0000000006-store
        renamed: store KSTREAM-JOINTHIS-0000000005-store""",
    ),
    # Repartition topics
    pair(
        "group-renamed", NAMED, ("name: by-word", "name: words"), expect="records left behind: topic words-repartition"
    ),
    pair(
        "repartition-renamed",
        EXPLICIT,
        ("name: spread", "name: wide"),
        expect="records left behind: topic wide-repartition",
    ),
    pair(
        "repartition-goes",
        REKEYED,
        ("      - select_key: {key: value, key_serde: string}\n", ""),
        expect="records left behind: topic KSTREAM-KEY-SELECT-0000000004-repartition\nstop: sub-topology 0\nstop: sub-topology 1",
    ),
    pair(
        "repartition-comes",
        TABLES,
        ("      - join", "      - select_key: {key: value, key_serde: string}\n      - join"),
        expect="stop: sub-topology 0\nstop: sub-topology 1",
    ),
]
